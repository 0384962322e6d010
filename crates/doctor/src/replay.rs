//! A first flight with early data, and copies of it (RFC 8446, section 8).
//!
//! Nothing of the client's second flight leaves before the server's answer has come: who copies a first flight has no
//! more. An answer is encrypted, so a copy's answer is told by its length.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use openssl::ssl::{ErrorCode, SslStream};

use crate::connection::{FAREWELL, Failure, Wanted, Wire};
use crate::heard;
use crate::message::Message;

/// The head of a record: type, version and length.
const RECORD_HEAD: usize = 5;
const HANDSHAKE: u8 = 22;
/// The beginning of the answer of an application that wants no early data (425, RFC 8470, section 5.2).
const TOO_EARLY: [&[u8]; 2] = [b"HTTP/1.1 425", b"HTTP/1.0 425"];

/// The fate of a first flight.
#[derive(Debug)]
pub(crate) enum Fate {
    /// The session was not taken. It may be offered again.
    Untaken,
    /// The session was taken, and its early data was rejected.
    Rejected,
    /// It was accepted, and no answer came before the client's second flight.
    Unanswered,
    /// The application wants no early data (425).
    TooEarly,
    /// It was answered. A copy of it may be.
    Answered(Flight),
}

/// A first flight that was answered.
#[derive(Debug)]
pub(crate) struct Flight {
    bytes: Vec<u8>,
    /// The bytes that a server sends at least if it resumes and answers.
    least: u64,
}

impl Wanted<'_> {
    /// Sends a request as early data. The session must allow it.
    pub(crate) fn send_early(&self) -> Result<Fate, Failure> {
        let began = Instant::now();
        let mut stream = self.open()?;
        let round_trip = began.elapsed();
        let failed = |error: openssl::ssl::Error, stream: &SslStream<Wire<'_>>| {
            self.failure(&error, stream.get_ref())
        };
        stream.get_mut().held = Some(Vec::new());
        let request = self.request();
        let mut unsent = request.as_bytes();
        while !unsent.is_empty() {
            let sent = stream.write_early_data(unsent).map_err(|error| failed(error, &stream))?;
            unsent = &unsent[sent..];
        }
        let bytes = release(stream.get_mut());
        stream.get_mut().held = Some(Vec::new());
        stream.connect().map_err(|error| failed(error, &stream))?;
        let fate = match heard::heard(|heard| heard.accepts_early_data) {
            true => self.answer(&mut stream).map_or(Fate::Unanswered, |answer| {
                let least = stream.get_ref().read - answer.len() as u64 / 2;
                match TOO_EARLY.iter().any(|begin| answer.starts_with(begin)) {
                    true => Fate::TooEarly,
                    false => Fate::Answered(Flight { bytes, least }),
                }
            }),
            false if !stream.ssl().session_reused() => Fate::Untaken,
            false => Fate::Rejected,
        };
        stream.get_mut().wait(self.deadline);
        release(stream.get_mut());
        let _ = stream.shutdown();
        stream.get_mut().end(FAREWELL.max(2 * round_trip));
        Ok(fate)
    }

    /// Returns the first part of an answer, or `None` if none comes in time.
    fn answer(&self, stream: &mut SslStream<Wire<'_>>) -> Option<Vec<u8>> {
        let mut part = vec![0; 1024];
        let until = Instant::now() + self.deadline;
        let is_over = || Instant::now() >= until || self.stop.load(Ordering::Relaxed);
        stream.get_mut().wait(self.deadline);
        loop {
            match stream.ssl_read(&mut part) {
                Ok(length) => {
                    part.truncate(length);
                    return Some(part);
                }
                // A ticket came.
                Err(error) if error.code() == ErrorCode::WANT_READ && !is_over() => {}
                Err(_) => return None,
            }
        }
    }
}

/// Sends what was held back, and returns it. A connection that has failed shows it when it reads.
fn release(wire: &mut Wire<'_>) -> Vec<u8> {
    let held = wire.held.take().unwrap_or_default();
    let _ = wire.write_all(&held);
    held
}

impl Flight {
    /// Sends the flight again. Returns true if the server resumes and answers.
    pub(crate) fn is_answered_again(
        &self,
        address: SocketAddr,
        deadline: Duration,
        stop: &AtomicBool,
    ) -> Result<bool, Failure> {
        let mut wire = Wire::open(address, deadline, stop)?;
        if wire.write_all(&self.bytes).is_err() {
            return Ok(false);
        }
        let (mut begin, mut part) = (Vec::new(), [0; 1024]);
        while wire.read < self.least {
            let Some(length) = wire.read(&mut part).ok().filter(|length| *length > 0) else {
                return Ok(false);
            };
            if begin.len() < part.len() {
                begin.extend_from_slice(&part[..length]);
            }
            if resumes(&begin) == Some(false) {
                return Ok(false);
            }
        }
        Ok(resumes(&begin) == Some(true))
    }
}

/// Returns true if the first record of a server's flight resumes the session offered. `None`: it is not there yet.
fn resumes(bytes: &[u8]) -> Option<bool> {
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD>()?;
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let record = rest.get(..length)?;
    let hello = (head[0] == HANDSHAKE).then(|| Message::read(record, true)).flatten();
    Some(matches!(hello, Some(Message::ServerHello { takes_key: true, .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_resumes_if_its_hello_takes_the_key() {
        let hello = |extension: u8| {
            let body = [&[3, 3][..], &[1; 32], &[0, 0x13, 1, 0, 0, 4, 0, extension, 0, 0]].concat();
            let message = [&[2, 0, 0, body.len() as u8][..], &body].concat();
            [&[HANDSHAKE, 3, 3, 0, message.len() as u8][..], &message].concat()
        };
        assert_eq!(resumes(&hello(41)), Some(true));
        assert_eq!(resumes(&hello(43)), Some(false));
        assert_eq!(resumes(&[21, 3, 3, 0, 2, 2, 40]), Some(false));
        for length in 0..hello(41).len() {
            assert_eq!(resumes(&hello(41)[..length]), None, "{length}");
        }
    }
}
