//! `errno`, which is the program's.

use core::ffi::c_int;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Returns the error of the last call that failed.
pub(crate) fn errno() -> c_int {
    // SAFETY: the function takes no arguments.
    let errno = unsafe { __errno_location() };
    // SAFETY: the variable is this thread's own.
    unsafe { errno.read() }
}

/// Runs `what`, and restores `errno` afterwards: programs read, and print, what their TLS library left in it.
pub fn undisturbed<T>(what: impl FnOnce() -> T) -> T {
    // SAFETY: the function takes no arguments.
    let errno = unsafe { __errno_location() };
    // SAFETY: the variable is this thread's own.
    let before = unsafe { errno.read() };
    let done = what();
    // SAFETY: the variable is this thread's own.
    unsafe { errno.write(before) };
    done
}
