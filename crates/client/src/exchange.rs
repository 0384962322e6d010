//! A request and its answer, without the program's socket: what is to be sent, and where what comes
//! belongs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use zeroize::Zeroizing;

use crate::protocol::{self, ANSWER_BYTES, Answer, Connect, LENGTH_BYTES, Malformed, Request};
use crate::{Error, FIRST_BYTES};

/// Past a request's own deadline, and for those that have none: a manager that does not answer is
/// given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// One request on its way, and its answer.
pub(super) struct Exchange<'a> {
    /// May hold a private key; and what comes behind the request.
    request: Zeroizing<Vec<u8>>,
    sent: usize,
    /// Go with the first byte.
    passed: Vec<BorrowedFd<'a>>,
    /// How long the answer may take.
    pub(super) patience: Duration,
    /// As long as is known to come.
    answer: Vec<u8>,
    received: usize,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(request: &Request) -> Result<Self, Error> {
        let request = protocol::write_request(request)?.into();
        Ok(Self { request, ..Self::awaiting() })
    }

    /// A request with which these descriptors go.
    pub(super) fn passing(request: &Request, passed: Vec<BorrowedFd<'a>>) -> Result<Self, Error> {
        Ok(Self { passed, ..Self::new(request)? })
    }

    /// Nothing more is asked, and an answer is to come.
    pub(super) fn awaiting() -> Self {
        let answer = vec![0; LENGTH_BYTES];
        let (request, passed) = (Zeroizing::default(), Vec::new());
        Self { request, sent: 0, passed, patience: PATIENCE, answer, received: 0 }
    }

    /// Asks for a connection, over a socket that is passed or not; `first` is for the server. It fits
    /// into the socket, as no more than it is left when the request has been read.
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
        // In one piece, that the manager finds both at once.
        let request = Zeroizing::new([&asked.request, first].concat());
        Ok(Self { request, passed: passed.into_iter().collect(), patience, ..asked })
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.request.len()
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let descriptors: Vec<_> = self.passed.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let goes_along = self.sent == 0 && !descriptors.is_empty();
        let rights = if goes_along { &rights[..] } else { &[] };
        let part = [io::IoSlice::new(&self.request[self.sent..])];
        // A manager that is gone is an error, and no signal.
        let flags = MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<()>(socket.as_raw_fd(), &part, rights, flags, None) {
            Err(nix::Error::EINTR) => Ok(()),
            sent => {
                self.sent += sent?;
                Ok(())
            }
        }
    }

    /// Where the next bytes of the answer belong; empty when it is whole. Not a byte more: after the
    /// answer comes the server's plaintext.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.answer[self.received..]
    }

    /// So many bytes came, or none. `broke` is what stopped the sending: a manager that refuses has
    /// perhaps said why before it hung up, so that reading went on.
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

    /// The answer, when it is received.
    pub(super) fn answer(self) -> Result<Answer, Error> {
        match protocol::read_answer(&self.answer[LENGTH_BYTES..])? {
            Answer::Error(problem) => Err(Error::Refused(problem)),
            answer => Ok(answer),
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

    /// What is left of `bytes` when the exchange has what it wants of it.
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
