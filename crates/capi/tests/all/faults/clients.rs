//! Clients that break off. Only a fatal alert after the handshake removes a session, and only that connection's.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::thread::JoinHandleExt;
use std::thread;
use std::time::Duration;

use openssl::ssl::ShutdownState;

use super::{clients, counters, lines_of_ours, nginx};
use rejoin_testkit::site::Client;

#[test]
fn ends_without_close_notify() {
    let Some(site) = nginx("unclean", "") else { return };
    for mut client in clients(&site) {
        client.connect();
        for _ in 0..30 {
            let mut tls = client.shake_hands().expect("a handshake");
            assert!(tls.ssl().session_reused());
            tls.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
            // The tickets come before the answer.
            tls.read_exact(&mut [0]).expect("an answer");
            // Otherwise OpenSSL's client would not use the session again.
            tls.set_shutdown(ShutdownState::SENT);
        }
        assert!(client.connect(), "an unclean end forgot the session");
    }
    assert_eq!((counters(&site).hits, counters(&site).misses), (62, 0));
}

/// A stream that is closed before anything is read. The close is an RST, because the server has sent something by then.
#[derive(Debug)]
struct Breaking(TcpStream);

impl Read for Breaking {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        self.0.peek(&mut [0])?;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Write for Breaking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn breaks_in_the_middle_of_a_handshake() {
    let Some(site) = nginx("broken", "") else { return };
    for mut client in clients(&site) {
        client.connect();
        for _ in 0..30 {
            let stream = Breaking(TcpStream::connect(site.address()).expect("it listens"));
            let ssl = client.ssl().expect("a connection");
            assert!(ssl.connect(stream).is_err());
        }
        assert!(client.connect(), "a broken handshake forgot the session");
    }
    assert_eq!(counters(&site).misses, 0);
}

/// An attacker who saw the id on the wire can send a plaintext alert.
#[test]
fn sends_a_fatal_alert_before_the_handshake_is_done() {
    let Some(site) = nginx("early-alert", "") else { return };
    for mut client in clients(&site) {
        client.connect();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(site.address()).expect("it listens");
            let copy = Breaking(stream.try_clone().expect("a socket"));
            assert!(client.ssl().expect("a connection").connect(copy).is_err());
            stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).expect("sent");
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(client.connect(), "whoever saw its id could have it forgotten");
    }
}

#[test]
fn a_fatal_alert_after_the_handshake_forgets_its_session_only() {
    let Some(site) = nginx("alert", "") else { return };
    let others = clients(&site);
    for (mut client, mut other) in clients(&site).into_iter().zip(others) {
        client.connect();
        other.connect();
        fail_after_the_handshake(&client);
        assert!(!client.connect(), "a session was resumed after a fatal alert");
        assert!(client.connect() && other.connect());
    }
    assert_eq!(lines_of_ours(&site), [""; 0]);
}

fn fail_after_the_handshake(client: &Client) {
    let mut tls = client.shake_hands().expect("a handshake");
    assert!(tls.ssl().session_reused());
    // Not a record that the server can decrypt.
    let garbage = [&[0x17, 3, 3, 0, 64][..], &[0x55; 64]].concat();
    tls.get_mut().write_all(&garbage).expect("sent");
    // Until the server has sent its alert.
    let _ = tls.get_mut().read_to_end(&mut Vec::new());
    tls.set_shutdown(ShutdownState::SENT);
}

/// A test of the tests' own client: it must not count a signal as a failed connection.
#[test]
fn a_signal_ends_no_connection() {
    extern "C" fn handle(_: libc::c_int) {}
    let Some(site) = nginx("signals", "") else { return };
    // SAFETY: the handler does nothing, and nobody else uses this signal.
    let before = unsafe { libc::signal(libc::SIGUSR1, handle as extern "C" fn(_) as usize) };
    assert_ne!(before, libc::SIG_ERR);
    for mut client in clients(&site) {
        let slow = TcpListener::bind("127.0.0.1:0").expect("a port");
        client.address = slow.local_addr().expect("an address");
        let waiting =
            thread::spawn(move || client.try_connect().map_err(|error| error.to_string()));
        let (from, _) = slow.accept().expect("it connects");
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(5));
            // SAFETY: the thread is not joined.
            assert_eq!(unsafe { libc::pthread_kill(waiting.as_pthread_t(), libc::SIGUSR1) }, 0);
        }
        carry_on(from, TcpStream::connect(site.address()).expect("it listens"));
        assert_eq!(waiting.join().expect("no panic"), Ok(false));
    }
}

/// Copies the data between two sockets, until the second has no more.
fn carry_on(from: TcpStream, to: TcpStream) {
    let copies = [&from, &to].map(|stream| stream.try_clone().expect("a socket"));
    let [mut from_reads, mut to_writes] = copies;
    let there = thread::spawn(move || io::copy(&mut from_reads, &mut to_writes));
    let _ = io::copy(&mut &to, &mut &from);
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    let _ = there.join();
}
