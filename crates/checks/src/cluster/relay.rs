//! A TCP relay on loopback: each connection goes to the next address, and what passes is written down
//! if one wants to search it. It can be cut: then nothing passes, and nobody is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};

/// Connections at a time; others wait.
const MOST_AT_ONCE: usize = 1_024;
const PART_BYTES: usize = 16 << 10;
/// The bytes of one direction of one connection.
const MOST_RECORDED_BYTES: usize = 64 << 20;

/// All ways of all connections, each as it passed.
type Record = Arc<Mutex<Vec<Way>>>;
type Way = Arc<Mutex<Vec<u8>>>;

/// Ends when it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    record: Option<Record>,
    is_cut: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Passes connections on to each of these in turn.
    pub(crate) fn round_robin(targets: Vec<SocketAddr>) -> Self {
        Self::start(targets, None)
    }

    pub(crate) fn recording(target: SocketAddr) -> Self {
        Self::start(vec![target], Some(Record::default()))
    }

    fn start(targets: Vec<SocketAddr>, record: Option<Record>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let (is_cut, cut) = watch::channel(false);
        let its_record = record.clone();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, targets, its_record, cut) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, record, is_cut, stop: Some(stop), thread: Some(thread) }
    }

    /// Cuts the relay, or opens it again. Bytes that do not pass wait, as in TCP.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }

    /// The bytes that passed so far, one entry for each direction of each connection.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        let ways = self.record.iter().flat_map(|record| record.lock().expect("no panic").clone());
        ways.map(|way| way.lock().expect("no panic").clone()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(
    listener: TcpListener,
    targets: Vec<SocketAddr>,
    record: Option<Record>,
    cut: watch::Receiver<bool>,
) {
    let at_once = Arc::new(Semaphore::new(MOST_AT_ONCE));
    for target in targets.iter().copied().cycle() {
        let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
        let Ok((from, _)) = listener.accept().await else { return };
        let ways = [(); 2].map(|()| {
            let way = Way::default();
            record.as_ref()?.lock().expect("no panic").push(Arc::clone(&way));
            Some(way)
        });
        let mut cut = cut.clone();
        tokio::spawn(async move {
            whole(&mut cut).await;
            // Whoever asked sees a connection that ends.
            if let Ok(to) = TcpStream::connect(target).await {
                join(from, to, ways, &cut).await;
            }
            drop(turn);
        });
    }
}

/// Waits until the relay is open.
async fn whole(cut: &mut watch::Receiver<bool>) {
    let _ = cut.wait_for(|is_cut| !is_cut).await;
}

async fn join(
    from: TcpStream,
    to: TcpStream,
    [there, back]: [Option<Way>; 2],
    cut: &watch::Receiver<bool>,
) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let ((from_reads, from_writes), (to_reads, to_writes)) = (from.into_split(), to.into_split());
    tokio::join!(
        carry(from_reads, to_writes, there, cut.clone()),
        carry(to_reads, from_writes, back, cut.clone())
    );
}

/// Copies until one end has no more to say, or does not listen.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Option<Way>,
    mut cut: watch::Receiver<bool>,
) {
    let mut part = vec![0; PART_BYTES];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        whole(&mut cut).await;
        if let Some(way) = &way {
            let mut way = way.lock().expect("no panic");
            assert!(way.len() + read <= MOST_RECORDED_BYTES, "too much to record");
            way.extend_from_slice(&part[..read]);
        }
        if to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
    whole(&mut cut).await;
    let _ = to.shutdown().await;
}
