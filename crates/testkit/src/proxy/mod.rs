//! Servers that misbehave, byte by byte, and the contents of a ClientHello.

pub mod connect;
pub mod delayed;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

const PRE_SHARED_KEY: u16 = 41;

/// Listens, and lets `behave` have each connection; it ends with the test's process.
pub fn rogue(behave: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behave = behave.clone();
            std::thread::spawn(move || behave(stream));
        }
    });
    port
}

/// Connects to a server, and passes on to the client whatever it says.
pub fn call(to: u16, client: &TcpStream) -> TcpStream {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).expect("a server");
    let (mut from, mut into) =
        (server.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
    std::thread::spawn(move || std::io::copy(&mut from, &mut into));
    server
}

/// A port that passes everything on to another, and each first flight of clients to the test.
pub fn tapped(to: u16) -> (u16, Receiver<Vec<u8>>) {
    silent_to(|_| false, to)
}

/// The same, but clients whose first flight is like this hear nothing; the test is told of it when
/// they have gone.
pub fn silent_to(is_ignored: fn(&[u8]) -> bool, to: u16) -> (u16, Receiver<Vec<u8>>) {
    let (tell, told) = channel();
    let port = rogue(move |mut client| {
        let mut first = vec![0; 64 * 1024];
        let Ok(read) = client.read(&mut first) else { return };
        first.truncate(read);
        // Whole records: a hello of a new key exchange comes in several pieces.
        while first.len() < 5
            || first.len() < 5 + usize::from(u16::from_be_bytes([first[3], first[4]]))
        {
            let mut more = [0; 4096];
            match client.read(&mut more) {
                Ok(read) if read > 0 => first.extend(&more[..read]),
                _ => return,
            }
        }
        if is_ignored(&first) {
            let _ = client.read_to_end(&mut Vec::new());
            let _ = tell.send(first);
            return;
        }
        let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { return };
        // Before the server can answer: a test that has the answer also finds the flight.
        let _ = tell.send(first.clone());
        let _ = server.write_all(&first);
        let (mut from, mut back) =
            (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
        let up = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut back);
            let _ = back.shutdown(std::net::Shutdown::Write);
        });
        let _ = std::io::copy(&mut server, &mut client);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = up.join();
    });
    (port, told)
}

/// The extensions of a ClientHello in a first flight: their types and contents.
pub fn extensions(flight: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let two = |at: usize| usize::from(u16::from_be_bytes([flight[at], flight[at + 1]]));
    // Record header, message header, version and random.
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(flight[at]);
    at += 2 + two(at);
    at += 1 + usize::from(flight[at]);
    let end = at + 2 + two(at);
    at += 2;
    let mut found = Vec::new();
    while at < end {
        let length = two(at + 2);
        found.push((two(at) as u16, flight[at + 4..at + 4 + length].to_vec()));
        at += 4 + length;
    }
    found
}

/// The content of one extension.
pub fn extension(flight: &[u8], of: u16) -> Option<Vec<u8>> {
    extensions(flight).into_iter().find(|(kind, _)| *kind == of).map(|(_, content)| content)
}

/// The ticket in a first flight: the first identity of the pre-shared keys.
pub fn ticket(flight: &[u8]) -> Option<Vec<u8>> {
    let keys = extension(flight, PRE_SHARED_KEY)?;
    let length = usize::from(u16::from_be_bytes([keys[2], keys[3]]));
    Some(keys[4..4 + length].to_vec())
}
