//! Descriptors that programs pass, closed by separate threads.
//!
//! The last close of a file can block, even with `O_NONBLOCK`: for a socket's linger time, or for
//! the daemon of a file system in user space. The program decides for how long. So a thread per user closes the
//! descriptors that came from this user, and no thread that serves others waits for them. This holds for every
//! descriptor that arrives, wanted or not, and for a program's own socket, which may contain unread descriptors.
//!
//! Programs' own sockets have a thread apart, because nothing bounds how many come. When they are many, each one that comes
//! interrupts the close that lasts: a signal ends the wait of a socket that lingers. The data goes on being sent. Only the
//! daemon of a file system is waited for nevertheless, and only for a descriptor that the manager has received: those that
//! are unread in a socket are dropped without asking it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use rustix::net::{Shutdown, SocketType, sockopt};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

/// The closers of all users.
#[derive(Debug, Default)]
pub(crate) struct Closers {
    users: Mutex<HashMap<u32, Arc<Closer>>>,
}

/// Closes the descriptors of one user.
#[derive(Debug, Default)]
pub(crate) struct Closer {
    passed: Queue,
    /// Programs' own sockets.
    own: Queue,
}

#[derive(Debug, Default)]
struct Queue {
    inner: Mutex<Inner>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<OwnedFd>,
    /// The number of descriptors that wait or are being closed.
    pending: usize,
    /// The thread that closes descriptors or waits for more.
    thread: Option<JoinHandle<()>>,
}

/// The signal that ends the wait of a close. Its default is to be ignored.
const INTERRUPTS: Signal = Signal::SIGURG;

impl Closers {
    /// Prepares this process for the signal by which a close is interrupted.
    ///
    /// # Errors
    /// The system refuses, or the calling thread has no runtime.
    pub(crate) fn new() -> io::Result<Self> {
        // A signal without a handler interrupts nothing. The handler stays.
        let _ = signal(SignalKind::from_raw(INTERRUPTS as i32))?;
        Ok(Self::default())
    }

    pub(crate) fn of(&self, uid: u32) -> Arc<Closer> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        // A closer with descriptors is not dropped, because that would close them here.
        users.retain(|_, closer| Arc::strong_count(closer) > 1 || closer.has_some());
        Arc::clone(users.entry(uid).or_default())
    }
}

impl Closer {
    /// The number of waiting descriptors from which on a user's requests wait.
    const MANY: usize = 64;
    /// The number from which on nothing of the user's is read. One message can add up to 253.
    const MOST: usize = 256;
    /// The longest wait of a request.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// Returns true if the user may pass more descriptors.
    pub(crate) fn has_room(&self) -> bool {
        self.passed.lock().pending < Self::MOST
    }

    /// Waits until few of the user's descriptors are being closed. A thread that closes many of them lags on a busy
    /// machine. Sockets that linger are waited for in vain.
    pub(crate) async fn catch_up(&self) {
        let until = Instant::now() + Self::PATIENCE;
        while self.passed.lock().pending >= Self::MANY && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Queues a passed descriptor for closing.
    pub(crate) fn close(self: &Arc<Self>, descriptor: OwnedFd) {
        self.push(|closer| &closer.passed, descriptor);
    }

    /// Queues a program's own socket for closing.
    fn close_own(self: &Arc<Self>, socket: OwnedFd) {
        self.push(|closer| &closer.own, socket);
    }

    fn push(self: &Arc<Self>, queue: fn(&Self) -> &Queue, descriptor: OwnedFd) {
        let closer = Arc::clone(self);
        queue(self).push(descriptor, move || queue(&closer).work());
    }

    fn has_some(&self) -> bool {
        [&self.passed, &self.own].iter().any(|queue| !queue.lock().waiting.is_empty())
    }
}

impl Queue {
    /// The number of descriptors from which on each further one interrupts the close that lasts.
    const FEW: usize = 16;
    const STACK_BYTES: usize = 64 * 1024;
    /// The time for which a thread waits for more descriptors: starting a thread takes longer than closing one.
    const STAYS: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

    /// Queues a descriptor. `work` is for the thread that closes it, if there is none.
    fn push(&self, descriptor: OwnedFd, work: impl FnOnce() + Send + 'static) {
        let mut inner = self.lock();
        inner.pending += 1;
        inner.waiting.push_back(descriptor);
        let Some(thread) = &inner.thread else {
            let thread = std::thread::Builder::new().stack_size(Self::STACK_BYTES);
            // If no thread can be started, the one started for the next descriptor closes this one, too.
            inner.thread = thread.spawn(work).ok();
            return;
        };
        if inner.pending > Self::FEW {
            // It exists for as long as its handle does. If the signal comes between two closes, that of the next
            // descriptor does not.
            let _ = pthread_kill(thread.as_pthread_t(), INTERRUPTS);
        }
        self.more.notify_one();
    }

    fn work(&self) {
        while let Some(descriptor) = self.next() {
            drop(descriptor);
            self.lock().pending -= 1;
        }
    }

    /// Waits for the next descriptor to close. `None`: none came for a while; the next one starts a new thread.
    fn next(&self) -> Option<OwnedFd> {
        let nothing = |inner: &mut Inner| inner.waiting.is_empty();
        let waited = self.more.wait_timeout_while(self.lock(), Self::STAYS, nothing);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = inner.waiting.pop_front();
        if next.is_none() {
            inner.thread = None;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that a program passed.
#[derive(Debug)]
pub(crate) struct PassedDescriptor {
    descriptor: Option<OwnedFd>,
    closer: Arc<Closer>,
}

impl PassedDescriptor {
    pub(crate) fn new(descriptor: OwnedFd, closer: &Arc<Closer>) -> Self {
        Self { descriptor: Some(descriptor), closer: Arc::clone(closer) }
    }
}

impl AsFd for PassedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Some(descriptor) => descriptor.as_fd(),
            None => unreachable!("only drop takes it"),
        }
    }
}

impl Drop for PassedDescriptor {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(descriptor);
        }
    }
}

/// A program's own socket.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    stream: Option<UnixStream>,
    closer: Arc<Closer>,
    /// The passed descriptor of which the stream is a copy. While it is open, closing the stream does not block.
    brought: Option<PassedDescriptor>,
    /// True if the program reads a reset, and not an end of file, when the socket is dropped with unread bytes.
    resets: bool,
}

impl ProgramSocket {
    pub(crate) fn new(stream: UnixStream, closer: Arc<Closer>) -> Self {
        // Otherwise the kernel drops an out-of-band byte while others are read, and closes, on this thread, the
        // descriptors that came with it. Setting it on a Unix socket never fails.
        let _ = sockopt::set_socket_oobinline(&stream, true);
        Self { stream: Some(stream), closer, brought: None, resets: false }
    }

    /// Registers the socket with the calling thread's runtime.
    pub(crate) fn move_here(mut self) -> io::Result<Self> {
        let Some(stream) = self.stream.take() else { unreachable!("only drop takes it") };
        let stream = UnixStream::from_std(stream.into_std()?)?;
        let (closer, brought) = (Arc::clone(&self.closer), self.brought.take());
        Ok(Self { stream: Some(stream), closer, brought, resets: self.resets })
    }

    /// Takes over a Unix socket that a program passed. `None`: it is not a connected Unix socket.
    pub(crate) fn take_over(brought: PassedDescriptor) -> io::Result<Option<Self>> {
        let stream = std::os::unix::net::UnixStream::from(brought.as_fd().try_clone_to_owned()?);
        let is_stream = matches!(sockopt::socket_type(&stream), Ok(SocketType::STREAM));
        if !is_stream || stream.peer_addr().is_err() {
            return Ok(None);
        }
        // tokio requires it.
        stream.set_nonblocking(true)?;
        let closer = Arc::clone(&brought.closer);
        let mut own = Self::new(UnixStream::from_std(stream)?, closer);
        own.brought = Some(brought);
        Ok(Some(own))
    }

    /// Sets whether the program reads a reset when the socket is dropped with unread bytes.
    pub(crate) fn set_resets(&mut self, resets: bool) {
        self.resets = resets;
    }

    /// Closes this copy of the socket, which another process has, too. The program notices nothing.
    pub(crate) fn leave(mut self) {
        drop(self.stream.take());
    }

    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }
}

impl Deref for ProgramSocket {
    type Target = UnixStream;

    fn deref(&self) -> &UnixStream {
        match &self.stream {
            Some(stream) => stream,
            None => unreachable!("only drop takes it"),
        }
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        // The program sees the end now, and nothing more arrives. If no bytes are unread, no descriptors are,
        // and closing the socket does not block.
        if !self.resets {
            let _ = rustix::net::shutdown(&stream, Shutdown::Both);
        }
        if rustix::io::ioctl_fionread(&stream).is_ok_and(|unread| unread == 0) {
            return;
        }
        if let Ok(stream) = stream.into_std() {
            self.closer.close_own(stream.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_closed_and_the_thread_ends() {
        let closers = Closers::default();
        let closer = closers.of(7);
        assert!(Arc::ptr_eq(&closer, &closers.of(7)));
        assert!(!Arc::ptr_eq(&closer, &closers.of(8)));
        for _ in 0..100 {
            let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            drop(PassedDescriptor::new(one.into(), &closer));
            // The end of file shows that it was closed.
            assert_eq!(io::Read::read(&mut other, &mut [0]).unwrap(), 0);
        }
        while closer.passed.lock().thread.is_some() {
            std::thread::yield_now();
        }
        assert!(closer.has_room());
        drop(closer);
        let _ = closers.of(8);
        assert_eq!(closers.users.lock().unwrap().len(), 1);
    }
}
