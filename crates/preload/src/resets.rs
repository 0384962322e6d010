//! Writes after the server's reset. A TCP socket fails the first one with `ECONNRESET`, without a signal, and later ones
//! with `EPIPE` and `SIGPIPE`. The Unix socket that has the place of one fails all with `EPIPE` (unix(7)), although it
//! knows of the reset.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, socklen_t, ssize_t};

/// The descriptors whose socket was handed over, a bit for each. The program may have closed some since.
static HANDED_OVER: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

fn place(descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    let bits = u64::BITS as usize;
    Some((HANDED_OVER.get(number / bits)?, 1 << (number % bits)))
}

/// Notes a descriptor whose socket is handed over.
pub(crate) fn note(descriptor: c_int) {
    if let Some((word, bit)) = place(descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Writes by `quietly`, a call that raises no signal, if the descriptor's socket was handed over, and otherwise, or for
/// the signal, by `real`.
pub(crate) fn written(
    descriptor: c_int,
    quietly: impl FnOnce() -> ssize_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let is_noted = |(word, bit): (&AtomicU64, u64)| word.load(Ordering::Relaxed) & bit != 0;
    if !place(descriptor).is_some_and(is_noted) {
        return real();
    }
    let done = quietly();
    if done >= 0 {
        return done;
    }
    // SAFETY: the function takes no arguments.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: the variable is this thread's own.
    match unsafe { error.read() } {
        libc::EPIPE if is_reset(descriptor) => {
            // SAFETY: the variable is this thread's own.
            unsafe { error.write(libc::ECONNRESET) };
            done
        }
        // The second one is a pipe or a file that has the descriptor now.
        libc::EPIPE | libc::ENOTSOCK => real(),
        _ => done,
    }
}

/// Takes the error that a socket has kept. Returns true if it is a reset.
fn is_reset(descriptor: c_int) -> bool {
    let mut error: c_int = 0;
    let mut bytes = size_of::<c_int>() as socklen_t;
    let into = (&raw mut error).cast();
    // SAFETY: `into` has room for `bytes` bytes.
    let asked = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_ERROR, into, &raw mut bytes)
    };
    asked == 0 && error == libc::ECONNRESET
}
