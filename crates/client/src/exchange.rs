//! A request and its answer, without a socket: the bytes to send, and the room for the bytes that arrive.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use zeroize::Zeroizing;

use crate::protocol::{self, ANSWER_BYTES, Answer, Connect, LENGTH_BYTES, Malformed, Request};
use crate::{Error, FIRST_BYTES};

/// The longest wait for an answer, after the request's own deadline if it has one.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The silence after which a program asks a manager for its counters, to tell one that hangs from one that waits for a
/// server.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// The longest wait for the counters.
const LIVES: Duration = Duration::from_secs(2);

/// One request, and its answer.
pub(super) struct Exchange<'a> {
    /// The request, which may have a private key, and the bytes that follow it.
    request: Zeroizing<Vec<u8>>,
    sent: usize,
    /// The descriptors that go with the first byte.
    passed: Vec<BorrowedFd<'a>>,
    /// The longest wait for the answer.
    pub(super) patience: Duration,
    /// The answer, as long as is known so far.
    answer: Vec<u8>,
    received: usize,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(request: &Request) -> Result<Self, Error> {
        let request = protocol::write_request(request)?.into();
        Ok(Self { request, ..Self::awaiting() })
    }

    /// Makes an exchange that passes descriptors with the request.
    pub(super) fn passing(request: &Request, passed: Vec<BorrowedFd<'a>>) -> Result<Self, Error> {
        Ok(Self { passed, ..Self::new(request)? })
    }

    /// Makes an exchange without a request, for a further answer.
    pub(super) fn awaiting() -> Self {
        let answer = vec![0; LENGTH_BYTES];
        let (request, passed) = (Zeroizing::default(), Vec::new());
        Self { request, sent: 0, passed, patience: PATIENCE, answer, received: 0 }
    }

    /// Makes a request for a connection, over a socket that is passed or not. `first` goes to the server. It fits into
    /// the socket's buffer, because the manager reads the request before.
    pub(super) fn connect(
        wanted: &Connect,
        passed: Option<BorrowedFd<'a>>,
        first: &[u8],
    ) -> Result<Self, Error> {
        if first.len() > FIRST_BYTES {
            return Err(Malformed::TooLarge { bytes: first.len(), most: FIRST_BYTES }.into());
        }
        if wanted.early_data.is_some() && !first.is_empty() {
            let why =
                "first bytes and early_data exclude each other: what is sent again comes last";
            return Err(Malformed::Text(why.to_owned()).into());
        }
        let wish = Connect { socket: passed.is_some(), ..wanted.clone() };
        let patience = PATIENCE + Duration::from_millis(wanted.deadline_ms.into());
        let asked = Self::new(&Request::Connect(Box::new(wish)))?;
        // In one piece, so that the manager finds both at once.
        let request = Zeroizing::new([&asked.request, first].concat());
        Ok(Self { request, passed: passed.into_iter().collect(), patience, ..asked })
    }

    /// Makes a request that every manager answers at once.
    pub(super) fn of_life() -> Result<Self, Error> {
        Ok(Self { patience: LIVES, ..Self::new(&Request::Stats {})? })
    }

    /// Returns true if the answer may take long because the manager waits for a server.
    pub(super) fn is_long(&self) -> bool {
        self.patience > PATIENCE
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.request.len()
    }

    /// Sends as much as the socket accepts.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let descriptors: Vec<_> = self.passed.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let goes_along = self.sent == 0 && !descriptors.is_empty();
        let rights = if goes_along { &rights[..] } else { &[] };
        let part = [io::IoSlice::new(&self.request[self.sent..])];
        // A manager that is gone must be an error, and not a signal.
        let flags = MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<()>(socket.as_raw_fd(), &part, rights, flags, None) {
            Err(nix::Error::EINTR) => Ok(()),
            sent => {
                self.sent += sent?;
                Ok(())
            }
        }
    }

    /// Returns the error of [`send`](Self::send) that may wait until the answer is read: a manager that refuses may have
    /// answered before it hung up. Without a byte sent there is no answer to any other.
    pub(super) fn broke(&self, error: io::Error) -> Result<io::Error, Error> {
        match nix::Error::from_raw(error.raw_os_error().unwrap_or_default()) {
            nix::Error::EPIPE | nix::Error::ECONNRESET => Ok(error),
            _ if self.sent > 0 => Ok(error),
            nix::Error::EBADF => Err(Error::Unpassable(error)),
            _ => Err(Error::Silent(error)),
        }
    }

    /// Returns the room for the next bytes of the answer, which is empty when the answer is whole. It has no byte more,
    /// because the server's plaintext follows the answer.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.answer[self.received..]
    }

    /// Records the result of a read. `broke` is the error that stopped the sending: reading went on after it, because a
    /// manager that refuses may have answered before it hung up.
    pub(super) fn received(
        &mut self,
        read: io::Result<usize>,
        broke: &mut Option<io::Error>,
    ) -> Result<(), Error> {
        let bytes = match read {
            Ok(bytes @ 1..) => bytes,
            Ok(_) => {
                let gone = broke.take().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                return Err(Error::Silent(gone));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(Error::Silent(broke.take().unwrap_or(error))),
        };
        self.received += bytes;
        if self.received == LENGTH_BYTES
            && let Some(prefix) = self.answer.first_chunk()
        {
            let more = protocol::length(*prefix, ANSWER_BYTES)?;
            self.answer.resize(LENGTH_BYTES + more, 0);
        }
        Ok(())
    }

    pub(super) fn is_received(&self) -> bool {
        self.received == self.answer.len()
    }

    /// Returns the answer, once it is received.
    pub(super) fn answer(self) -> Result<Answer, Error> {
        match protocol::read_answer(&self.answer[LENGTH_BYTES..])? {
            Answer::Error(problem) => Err(Error::Refused(problem)),
            answer => Ok(answer),
        }
    }
}

/// Returns the result of a manager's test, by the answer to [`Exchange::of_life`].
pub(super) fn lives<T>(answer: Result<T, Error>) -> Result<(), Error> {
    match answer {
        Ok(_) | Err(Error::Refused(_)) => Ok(()),
        Err(_) => {
            let seconds = (SILENCE + LIVES).as_secs();
            let why = format!("it has been silent for {seconds} seconds");
            Err(Error::Silent(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{End, Token};

    fn exchange() -> Exchange<'static> {
        Exchange::new(&Request::End { connection: Token([7; 16]) }).expect("a request")
    }

    /// Returns the bytes that the exchange leaves.
    fn feed(exchange: &mut Exchange<'_>, mut bytes: &[u8], most: usize) -> Vec<u8> {
        while !exchange.is_received() {
            let room = exchange.room();
            let count = room.len().min(most).min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            exchange.received(Ok(count), &mut None).expect("an answer");
        }
        bytes.to_vec()
    }

    #[test]
    fn what_follows_the_answer_is_left_alone() {
        let mut bytes = protocol::write_answer(&Answer::End(End::Clean)).expect("an answer");
        bytes.extend(b"plaintext");
        for most in [1, 3, 1_000] {
            let mut exchange = exchange();
            assert_eq!(feed(&mut exchange, &bytes, most), b"plaintext");
            assert_eq!(exchange.answer().expect("an answer"), Answer::End(End::Clean));
        }
    }

    #[test]
    fn an_answer_without_bounds_is_refused() {
        let mut exchange = exchange();
        exchange.room().copy_from_slice(&[0xff; LENGTH_BYTES]);
        assert!(matches!(exchange.received(Ok(LENGTH_BYTES), &mut None), Err(Error::Malformed(_))));
    }

    #[test]
    fn a_manager_that_goes_is_told() {
        let gone = exchange().received(Ok(0), &mut None);
        assert!(matches!(gone, Err(Error::Silent(_))), "{gone:?}");
    }
}
