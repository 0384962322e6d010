//! The process's environment and its standard error.

use core::ffi::{CStr, c_char};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    /// `secure_getenv` of glibc and musl.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

const STDERR: RawFd = 2;

/// Returns a copy of an environment variable's value. `None`: the variable is not set, or the process has more rights
/// than the user who started it (`AT_SECURE`, getauxval(3)), so that its environment is not to be trusted.
///
/// The value is copied at once, because some programs move their environment (nginx, to set its title). As with
/// getenv(3), no other thread may change the environment during the call.
pub fn variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a zero byte.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the C library returned a text that ends, and nothing changes it before it is copied.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsStr::from_bytes(value.to_bytes()).to_owned())
}

/// Returns true if `REJOIN_DEBUG` is set to anything but the empty text and `0`.
pub fn is_debugging() -> bool {
    variable("REJOIN_DEBUG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Writes one line on standard error in a single piece, so that the lines of several processes do not mix. Writes
/// nothing if standard error is a connection: that of a server that inetd started is its client.
pub fn report(line: &str) {
    let own = std::io::stderr().as_fd().try_clone_to_owned();
    if own.is_ok_and(|descriptor| TcpStream::from(descriptor).local_addr().is_ok()) {
        return;
    }
    // Not through the standard library's own, whose lock a thread may have held while this process was forked.
    // SAFETY: the descriptor is only written to, and never closed; if it is not open, that fails.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(STDERR) });
    // A program without standard error has nowhere to show the line.
    let _ = (&*file).write_all(format!("rejoin: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn a_variable_is_read_as_the_standard_library_reads_it() {
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(variable("REJOIN_NOBODY_SETS_THIS"), None);
        assert_eq!(variable("a zero \0 byte"), None);
    }
}
