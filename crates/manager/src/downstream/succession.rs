//! The succession of managers: a new one takes the listening socket over from the one that serves.
//!
//! The new manager sends `take_over`, and gets the socket and the lock of its path. When it has started, it sends
//! `accepted`. The old one stops accepting, answers, and drains. Then the new one accepts. Programs that connect in
//! between wait in the socket's queue. The new manager does not know how the old one's connections ended. It passes the
//! sockets of programs that ask for that to the old one, over the connection by which it took over.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustix::net::sockopt::{socket_acceptconn, socket_peercred};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use tokio::io::Interest;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::Error;
use crate::downstream::connection::{ProgramConnection, refuse};
use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::input::has_hung_up;
use crate::downstream::messages;
use crate::downstream::program::Program;
use crate::failure::Failure;
use crate::life::Sockets;
use crate::protocol::{self, Answer, End, ErrorKind, LENGTH_BYTES, Request, Token};
use crate::state::State;

/// The time in which the other manager must answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The sockets that go with the first answer: the listener, and the lock if there is one.
const PASSED: usize = 2;

/// The sockets that a successor gets, and the predecessor that drains.
#[derive(Debug)]
pub(crate) struct Succession {
    given: Mutex<Option<Given>>,
    takers: UnboundedSender<Taken>,
    predecessor: OnceLock<Mutex<UnixStream>>,
}

#[derive(Debug)]
struct Given {
    listener: OwnedFd,
    lock: Option<OwnedFd>,
}

/// The news that a successor has started.
#[derive(Debug)]
pub(crate) struct Taken {
    stops: oneshot::Sender<()>,
    telling: Weak<()>,
}

impl Taken {
    /// Tells the successor that this manager no longer accepts. Returns what is alive until the successor has been told:
    /// a manager that ended before would take the socket along.
    pub(crate) fn confirm(self) -> Weak<()> {
        // The successor may be gone; nobody listens then, as after an end.
        let _ = self.stops.send(());
        self.telling
    }
}

impl Succession {
    pub(crate) fn new(
        listener: &impl AsFd,
        lock: Option<File>,
        takers: UnboundedSender<Taken>,
    ) -> io::Result<Self> {
        let given = Given {
            listener: listener.as_fd().try_clone_to_owned()?,
            lock: lock.map(OwnedFd::from),
        };
        Ok(Self { given: Mutex::new(Some(given)), takers, predecessor: OnceLock::new() })
    }

    /// Tells the predecessor that this manager serves from now on, and waits until the other no longer accepts.
    pub(crate) async fn follow(&self, predecessor: Predecessor) -> io::Result<()> {
        let stream = predecessor.replace().await?;
        self.predecessor.get_or_init(|| Mutex::new(stream));
        Ok(())
    }

    /// Returns copies of the sockets. `None`: a successor has them already.
    fn copies(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Given { listener, lock }) = given.as_ref() else { return Ok(None) };
        let both = [Some(listener), lock.as_ref()].into_iter().flatten();
        both.map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>().map(Some)
    }

    /// Gives the sockets up, and waits until this manager no longer accepts. Returns what keeps it from its end. `None`: a
    /// successor has them already.
    async fn give(&self) -> Option<Arc<()>> {
        drop(self.given.lock().unwrap_or_else(PoisonError::into_inner).take()?);
        let ((stops, stopped), telling) = (oneshot::channel(), Arc::new(()));
        self.takers.send(Taken { stops, telling: Arc::downgrade(&telling) }).ok()?;
        stopped.await.ok()?;
        Some(telling)
    }

    /// Returns true if there may be a predecessor that knows connections.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.predecessor.get().is_some()
    }

    /// Returns true if the predecessor still drains. Programs ask it through this manager how their connections ended.
    pub(crate) fn has_draining_predecessor(&self) -> bool {
        self.predecessor.get().is_some_and(|predecessor| {
            let predecessor = predecessor.lock().unwrap_or_else(PoisonError::into_inner);
            !has_hung_up(predecessor.as_fd())
        })
    }

    /// Passes a program, which asks for the end of a connection, to the predecessor. Returns false if it is gone.
    fn forward(&self, connection: Token, program: BorrowedFd<'_>) -> bool {
        let Some(predecessor) = self.predecessor.get() else { return false };
        let predecessor = predecessor.lock().unwrap_or_else(PoisonError::into_inner);
        let question = protocol::write_request(&Request::End { connection });
        question.is_ok_and(|question| pass(predecessor.as_fd(), &question, &[program]).is_ok())
    }
}

/// Sends a message, with descriptors, as a whole.
fn pass(stream: BorrowedFd<'_>, message: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(passed));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(stream, &[IoSlice::new(message)], &mut ancillary, flags)? {
        sent if sent == message.len() => Ok(()),
        // The queue is full; what follows would be out of step.
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

impl ProgramConnection {
    /// Passes the program to the predecessor, which tells it how its connection ended.
    pub(crate) async fn forward_question(self, connection: Token) {
        tell_end(&self.state, self.stream, connection).await;
    }

    /// Hands the listening socket to a successor, and answers its questions until it is gone.
    pub(crate) async fn hand_over(self) {
        let Self { state, program, stream, .. } = &self;
        let refuses = |kind, detail: &str| refuse(stream, Failure::new(kind, detail));
        if let Err(failure) = self.may_take_over() {
            return refuse(stream, failure).await;
        }
        let copies = match state.succession.copies() {
            Ok(Some(copies)) => copies,
            Ok(None) => {
                return refuses(ErrorKind::ShuttingDown, "another manager has the socket").await;
            }
            Err(error) => return refuses(ErrorKind::Busy, &error.to_string()).await,
        };
        if offer(stream, &copies).await.is_err() {
            return;
        }
        drop(copies);
        let starts = messages::read_request(stream, (&state.rooms, program.uid)).await;
        // Otherwise it did not start, and this manager goes on.
        if !matches!(starts, Some(Ok((Request::Accepted {}, ..)))) {
            return;
        }
        let Some(telling) = state.succession.give().await else { return };
        let told = messages::write(stream, Answer::Ready {}).await;
        drop(telling);
        if told.is_ok() {
            while self.answer_for_successor().await.is_some() {}
        }
    }

    /// Answers a program that asked the successor. `None`: the successor is gone.
    async fn answer_for_successor(&self) -> Option<()> {
        self.stream.readable().await.ok()?;
        let rooms = (&self.state.rooms, self.program.uid);
        let (request, sockets, _) = messages::read_request(&self.stream, rooms).await?.ok()?;
        let (Request::End { connection }, Some(socket)) = (request, sockets.into_iter().next())
        else {
            return None;
        };
        if let Ok(Some(socket)) = ProgramSocket::take_over(socket)
            && let Ok(program) = Program::of(&socket)
        {
            match self.state.end_of(connection, program.uid) {
                End::Unknown => tell_end(&self.state, socket, connection).await,
                // The program may be gone.
                end => drop(messages::write(&socket, Answer::End(end)).await),
            }
        }
        Some(())
    }
}

/// Has a program told how a connection ended that this manager does not know: by the predecessor, if there still is one.
async fn tell_end(state: &State, program: ProgramSocket, connection: Token) {
    if state.succession.forward(connection, program.as_fd()) {
        return program.leave();
    }
    // The program may be gone.
    let _ = messages::write(&program, Answer::End(End::Unknown)).await;
}

async fn offer(stream: &ProgramSocket, sockets: &[OwnedFd]) -> io::Result<()> {
    let message = messages::message(Answer::Ready {})?;
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    stream.async_io(Interest::WRITABLE, || pass(stream.as_fd(), &message, &sockets)).await
}

/// A manager that gives its socket up when its successor has started.
#[derive(Debug)]
pub struct Predecessor(UnixStream);

impl Predecessor {
    /// Tells it to stop accepting. Returns the connection to it when it has.
    async fn replace(self) -> io::Result<UnixStream> {
        let Self(mut stream) = self;
        let replaced = tokio::task::spawn_blocking(move || {
            let message = protocol::write_request(&Request::Accepted {});
            io::Write::write_all(&mut stream, &message.map_err(io::Error::other)?)?;
            read_ready(&stream)?;
            stream.set_read_timeout(None)?;
            Ok(stream)
        });
        replaced.await.map_err(io::Error::other)?
    }
}

/// Takes the socket at this path over from the manager that serves it, which must be this user's, root's, or that of
/// `user`. It goes on serving until [`serve`](crate::serve) has started. `None`: no manager listens there.
///
/// # Errors
/// The manager does not hand over, or is another user's.
pub fn take_over(path: &Path, user: Option<u32>) -> Result<Option<Sockets>, Error> {
    let failed = |cause| Error::NotHandedOver { path: path.into(), cause };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let taken = || {
        let owner = socket_peercred(&stream)?.uid.as_raw();
        if ![0, geteuid().as_raw()].contains(&owner) && user != Some(owner) {
            return Err(io::Error::other(format!("user {owner} listens there")));
        }
        let message = protocol::write_request(&Request::TakeOver {}).map_err(io::Error::other)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A manager that refuses has perhaps said why, and hung up.
        let sent = io::Write::write_all(&mut &stream, &message);
        let passed = match sent {
            Err(broke) if broke.kind() != io::ErrorKind::BrokenPipe => return Err(broke),
            _ => read_ready(&stream)?,
        };
        let mut passed = passed.into_iter();
        let listener = passed.next().filter(|socket| socket_acceptconn(socket) == Ok(true));
        let listener = listener.ok_or_else(|| io::Error::other("no listening socket came"))?;
        Ok((std::os::unix::net::UnixListener::from(listener), passed.next().map(File::from)))
    };
    let (listener, lock) = taken().map_err(failed)?;
    Ok(Some(Sockets { listener, lock, predecessor: Some(Predecessor(stream)) }))
}

/// Reads the answer "ready". Returns the descriptors that came with it.
fn read_ready(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut passed = Vec::new();
    let mut prefix = [0; LENGTH_BYTES];
    fill(stream, &mut prefix, &mut passed)?;
    let bytes = protocol::length(prefix, protocol::ANSWER_BYTES).map_err(io::Error::other)?;
    let mut answer = vec![0; bytes];
    fill(stream, &mut answer, &mut passed)?;
    match protocol::read_answer(&answer).map_err(io::Error::other)? {
        Answer::Ready {} => Ok(passed),
        Answer::Error(problem) => Err(io::Error::other(problem.detail)),
        _ => Err(io::Error::other("it is of another version")),
    }
}

fn fill(stream: &UnixStream, mut buffer: &mut [u8], passed: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(buffer)];
        let read = recvmsg(stream, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                passed.extend(descriptors);
            }
        }
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
    }
    Ok(())
}
