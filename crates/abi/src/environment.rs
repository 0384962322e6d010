//! The process's environment.

use core::ffi::{CStr, c_char};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    /// `secure_getenv` of glibc and musl.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

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
