//! Bytes over the manager's socket, in two parts of any size: from a program to a real manager, with descriptors or
//! without, or to a client from anything that pretends to be a manager. A manager gives one valid answer, or none; a
//! client gets a session or an error.

use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rejoin_manager::Settings;
use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{
    ANSWER_BYTES, Answer, Connect, LENGTH_BYTES, REQUEST_BYTES, Records, Request, Trust, length,
    read_answer, read_request, write_request,
};

pub(crate) fn check(input: &[u8]) {
    let [flags, part, bytes @ ..] = input else { return };
    let prefix = (bytes.len() as u32).to_be_bytes();
    let is_framed = flags & 1 != 0;
    let message = [if is_framed { &prefix[..] } else { &[] }, bytes].concat();
    let said = Said { message, part: (*part).into(), descriptors: usize::from(flags >> 2 & 3) };
    if flags & 2 == 0 { ask(said) } else { hear(said) }
}

/// The bytes of one side, which then closes its direction.
#[derive(Default)]
struct Said {
    message: Vec<u8>,
    /// The length of the first part. The rest is sent by itself, with the descriptors.
    part: usize,
    descriptors: usize,
}

impl Said {
    /// Sends the bytes. The other side may stop reading at any time.
    fn send(&self, socket: &mut UnixStream) {
        let (first, rest) = self.message.split_at(self.message.len().min(self.part));
        let _ = socket.write_all(first);
        let descriptors = vec![socket.as_raw_fd(); self.descriptors];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if descriptors.is_empty() { &[] } else { &rights[..] };
        let (part, flags) = ([IoSlice::new(rest)], MsgFlags::MSG_NOSIGNAL);
        let sent = sendmsg::<()>(socket.as_raw_fd(), &part, rights, flags, None);
        let _ = socket.write_all(&rest[sent.unwrap_or(rest.len())..]);
        let _ = socket.shutdown(Shutdown::Write);
    }
}

/// Sends the bytes to a manager, as a program.
fn ask(mut said: Said) {
    static MANAGER: OnceLock<PathBuf> = OnceLock::new();
    // The manager must not connect to anyone, so a socket must come with the request, or a session must exist.
    let wanted = match understood(&said.message) {
        Some(Request::Connect(wanted)) => {
            Some(Request::Connect(Box::new(Connect { socket: true, ..*wanted })))
        }
        Some(Request::Records(wanted)) => {
            Some(Request::Records(Box::new(Records { trust: Trust::None, ..*wanted })))
        }
        _ => None,
    };
    if let Some(wanted) = wanted {
        let Ok(written) = write_request(&wanted) else { return };
        said.message = written;
    }
    let mut socket = UnixStream::connect(MANAGER.get_or_init(manager)).expect("it listens");
    said.send(&mut socket);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let Some((prefix, body)) = answer.split_first_chunk() else { return };
    assert_eq!(length(*prefix, ANSWER_BYTES), Ok(body.len()));
    let answer = read_answer(body).expect("an answer");
    assert!(!matches!(answer, Answer::Connected(_)), "to nobody");
}

/// Reads the request as the manager does.
fn understood(message: &[u8]) -> Option<Request> {
    let (prefix, rest) = message.split_first_chunk::<LENGTH_BYTES>()?;
    let bytes = length(*prefix, REQUEST_BYTES).ok()?;
    read_request(rest.get(..bytes)?).ok()
}

/// Starts a real manager in a thread.
fn manager() -> PathBuf {
    let path = place("manager");
    let (listener, lock) = rejoin_manager::listen(&path, 0o600).expect("a socket");
    thread::spawn(move || {
        let _lock = lock;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).expect("a socket");
            let never = std::future::pending();
            rejoin_manager::run(listener, Settings::default(), || {}, never).await
        })
    });
    path
}

/// Sends the bytes to a client as the answer to every request.
fn hear(said: Said) {
    static LIAR: OnceLock<(Manager, Arc<Mutex<Said>>)> = OnceLock::new();
    let (manager, says) = LIAR.get_or_init(liar);
    *says.lock().expect("nobody panics") = said;
    let host = "example.com".parse().expect("a name");
    let wanted = Connect::new(host, 443.try_into().expect("a port"));
    if let Ok(mut stream) = manager.connect(&wanted) {
        let _ = stream.finish_writing();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let _ = manager.stats();
}

/// Starts a thread that answers every request with the same bytes.
fn liar() -> (Manager, Arc<Mutex<Said>>) {
    let path = place("answers");
    let listener = UnixListener::bind(&path).expect("a socket");
    let says = Arc::<Mutex<Said>>::default();
    let said = Arc::clone(&says);
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            // The request arrives in one piece.
            let _ = socket.read(&mut [0; 1024]);
            said.lock().expect("nobody panics").send(&mut socket);
        }
    });
    (Manager::at(path), says)
}

/// Returns a path for a socket, which has 107 characters at most: beside this program, or in the temporary folder.
fn place(name: &str) -> PathBuf {
    let file = format!("rejoin-fuzz-{name}-{}", std::process::id());
    let beside = std::env::current_exe().map(|program| program.with_file_name(&file));
    let beside = beside.ok().filter(|path| path.as_os_str().len() <= 107 - ".lock".len());
    let path = beside.unwrap_or_else(|| std::env::temp_dir().join(file));
    let _ = std::fs::remove_file(&path);
    path
}
