//! Envoy's secret discovery service over a real socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rejoin_outlet::{Peers, Sds};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::wait_until;
use tokio::net::UnixListener;

static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn complain(line: &str) {
    COMPLAINTS.lock().expect("no panic").push(line.to_owned());
}

/// Serves a ring that is not there yet, in a thread.
fn serve(socket: &Path) {
    let (listening, ready) = std::sync::mpsc::channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = UnixListener::bind(&socket).expect("a socket");
            listening.send(()).expect("the test waits");
            let (_rings, followed) = tokio::sync::watch::channel(None);
            let service = Sds::new(followed, complain);
            service.serve(listener, &socket, Peers::new([])).await.expect("served");
        });
    });
    ready.recv().expect("it listens");
}

/// Returns true if the service answers in HTTP/2, and false if it has closed the connection.
fn is_served(stream: &mut UnixStream) -> bool {
    const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let mut answer = [0; 9];
    let answered = stream.write_all(BEGIN).and_then(|()| stream.read_exact(&mut answer));
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
    match answered {
        Ok(()) => answer[3] == 4,
        Err(error) if closed.contains(&error.kind()) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Descriptors would run out otherwise, and Envoy would get nothing.
#[test]
fn connections_are_bounded() {
    let folder = Folder::new();
    let socket = folder.join("socket");
    serve(&socket);
    let connect = || UnixStream::connect(&socket).expect("it listens");
    let mut streams: Vec<_> = (0..Sds::MOST_CONNECTIONS).map(|_| connect()).collect();
    assert!((0..3).all(|_| !is_served(&mut connect())));
    let said = COMPLAINTS.lock().expect("no panic").clone();
    assert!(said.len() == 1 && said[0].contains("256 connections"), "{said:?}");
    for stream in [0, Sds::MOST_CONNECTIONS - 1] {
        assert!(is_served(&mut streams[stream]), "those that were first are served");
    }
    streams.pop();
    wait_until("the place to be free", || is_served(&mut connect()));
}
