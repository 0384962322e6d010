//! A TCP relay on loopback: each connection goes to the next address, and what passes is written down
//! if one wants to search it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

/// Connections at a time; others wait.
const MOST_AT_ONCE: usize = 1_024;
const PART_BYTES: usize = 16 << 10;
/// Of each way of each connection.
const MOST_RECORDED_BYTES: usize = 64 << 20;

/// All ways of all connections, each as it passed.
type Record = Arc<Mutex<Vec<Way>>>;
type Way = Arc<Mutex<Vec<u8>>>;

/// Ends when it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    record: Option<Record>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// In turn to each of these.
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
        let its_record = record.clone();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, targets, its_record) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, record, stop: Some(stop), thread: Some(thread) }
    }

    /// What passed so far, each way of each connection by itself.
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

async fn serve(listener: TcpListener, targets: Vec<SocketAddr>, record: Option<Record>) {
    let at_once = Arc::new(Semaphore::new(MOST_AT_ONCE));
    for target in targets.iter().copied().cycle() {
        let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
        let Ok((from, _)) = listener.accept().await else { return };
        let ways = [(); 2].map(|()| {
            let way = Way::default();
            record.as_ref()?.lock().expect("no panic").push(Arc::clone(&way));
            Some(way)
        });
        tokio::spawn(async move {
            // Whoever asked sees a connection that ends.
            if let Ok(to) = TcpStream::connect(target).await {
                join(from, to, ways).await;
            }
            drop(turn);
        });
    }
}

async fn join(from: TcpStream, to: TcpStream, [there, back]: [Option<Way>; 2]) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let ((from_reads, from_writes), (to_reads, to_writes)) = (from.into_split(), to.into_split());
    tokio::join!(carry(from_reads, to_writes, there), carry(to_reads, from_writes, back));
}

/// Until one end has no more to say, or does not listen.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Option<Way>) {
    let mut part = vec![0; PART_BYTES];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        if let Some(way) = &way {
            let mut way = way.lock().expect("no panic");
            assert!(way.len() + read <= MOST_RECORDED_BYTES, "too much to record");
            way.extend_from_slice(&part[..read]);
        }
        if to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
