//! Failures of calls, and the boundary that no panic crosses.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_char, size_t};
use rejoin_store::Error;

use super::status::Status;

/// A failure of a call: its status, and one line with cause and remedy.
#[derive(Debug)]
pub(super) struct Failure {
    status: Status,
    text: String,
    /// True if 0-RTT data may have been sent over a connection that failed.
    pub(super) sent_early: bool,
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Failure {
    pub(super) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), sent_early: false }
    }

    pub(super) fn after_early_data(self, sent_early: bool) -> Self {
        Self { sent_early, ..self }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(Status::RejoinBadArgument, text)
    }

    pub(super) fn null(what: &str) -> Self {
        Self::bad(format!("{what} is null: it must point somewhere"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Status::of(&error), error.to_string())
    }
}

/// Runs the work of a call, and returns its status. The text of a failure is kept for the thread.
pub(super) fn answer(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|_| {
        Err(Failure::new(Status::RejoinInternal, "a fault of Rejoin's own: please report it"))
    });
    match done {
        Ok(()) => Status::RejoinOk,
        Err(Failure { status, text, .. }) => {
            // A thread that is about to end cannot keep it.
            let _ = LAST.try_with(|last| last.replace(text));
            status
        }
    }
}

/// Copies as much of the thread's last text as there is room for, and a 0. Returns the length of the whole text.
///
/// # Safety
/// `buffer` is null, or has room for `bytes` bytes.
pub(super) unsafe fn copy_last(buffer: *mut c_char, bytes: size_t) -> size_t {
    let copied = LAST.try_with(|last| {
        let last = last.borrow();
        if !buffer.is_null() && bytes > 0 {
            let length = last.len().min(bytes - 1);
            // SAFETY: the caller vouches for the buffer, which is longer than `length`, as the text is at least.
            unsafe { std::ptr::copy_nonoverlapping(last.as_ptr(), buffer.cast(), length) };
            // SAFETY: `length` is less than `bytes`, so the place is inside the buffer.
            let end = unsafe { buffer.add(length) };
            // SAFETY: the place is inside the buffer.
            unsafe { end.write(0) };
        }
        last.len()
    });
    copied.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_gets_out_and_its_text_is_kept() {
        assert_eq!(answer(|| panic!("on purpose")), Status::RejoinInternal);
        let mut buffer = [1_u8; 10];
        // SAFETY: the buffer has that size.
        let length = unsafe { copy_last(buffer.as_mut_ptr().cast(), buffer.len()) };
        assert_eq!((&buffer, length > 10), (b"a fault o\0", true));
    }
}
