//! Messages over the manager's socket, in two parts of any size: a program's to a real manager, with
//! descriptors and without, or an impostor's to a client. A manager answers once and well, or not at
//! all; a client has a session or an error.

#![no_main]

use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use libfuzzer_sys::fuzz_target;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rejoin_manager::Settings;
use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{
    ANSWER_BYTES, Answer, Connect, LENGTH_BYTES, REQUEST_BYTES, Records, Request, Trust, length,
    read_answer, read_request, write_request,
};

fuzz_target!(|input: &[u8]| {
    let [flags, part, bytes @ ..] = input else { return };
    let prefix = (bytes.len() as u32).to_be_bytes();
    let is_framed = flags & 1 != 0;
    let message = [if is_framed { &prefix[..] } else { &[] }, bytes].concat();
    let said = Said { message, part: (*part).into(), descriptors: usize::from(flags >> 2 & 3) };
    if flags & 2 == 0 { ask(said) } else { hear(said) }
});

/// The words of one side, which then says nothing more.
#[derive(Default)]
struct Said {
    message: Vec<u8>,
    /// After so many bytes the rest is sent by itself, with the descriptors.
    part: usize,
    descriptors: usize,
}

impl Said {
    /// Whoever has read enough does not listen any more.
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

/// As a program that asks a manager.
fn ask(mut said: Said) {
    static MANAGER: OnceLock<PathBuf> = OnceLock::new();
    // Nobody is called: the connection that it wants is to come with it, or a session to be there.
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

/// As the manager reads it.
fn understood(message: &[u8]) -> Option<Request> {
    let (prefix, rest) = message.split_first_chunk::<LENGTH_BYTES>()?;
    let bytes = length(*prefix, REQUEST_BYTES).ok()?;
    read_request(rest.get(..bytes)?).ok()
}

/// A real one, in a thread.
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

/// As a client that hears this, whatever it asks.
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

/// Starts an impostor that gives everybody the same answer, in a thread.
fn liar() -> (Manager, Arc<Mutex<Said>>) {
    let path = place("answers");
    let listener = UnixListener::bind(&path).expect("a socket");
    let says = Arc::<Mutex<Said>>::default();
    let said = Arc::clone(&says);
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            // The request, of which no part is missing.
            let _ = socket.read(&mut [0; 1024]);
            said.lock().expect("nobody panics").send(&mut socket);
        }
    });
    (Manager::at(path), says)
}

/// A socket's path has 107 characters at most.
fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rejoin-fuzz-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}
