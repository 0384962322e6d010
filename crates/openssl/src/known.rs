//! Programs whose checks of client certificates are known, although they run in callbacks of their own.
//!
//! A program is known by the file that its callback is in, and by the form of its session-id contexts. nginx makes
//! SHA-1 of its own certificates and of the authorities' names (`ngx_ssl_session_id_context`), and Apache the hexadecimal
//! MD5 of the virtual server's name (`mod_ssl.c`). Both resume sessions of other processes from caches of their own
//! under that context alone.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns true if the program with this callback puts what it checks into session-id contexts, and this is such a one.
pub(crate) fn hashes_what_it_checks(callback: usize, id_context: &[u8]) -> bool {
    match id_context.len() {
        20 => is_in(callback, "nginx"),
        32 => id_context.iter().all(u8::is_ascii_hexdigit) && is_in(callback, "mod_ssl.so"),
        _ => false,
    }
}

/// Returns true if an address is within the file of this name, the program's own or a library's.
fn is_in(address: usize, name: &str) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for, and the variable is this function's own.
    let is_found = unsafe { libc::dladdr(address as *const _, info.as_mut_ptr()) } != 0;
    // SAFETY: zeros are valid.
    let info = unsafe { info.assume_init() };
    // The program itself begins one header before the table of its headers, and is known to the linker by its first
    // argument, which programs overwrite.
    // SAFETY: the call reads a number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let is_program = info.dli_fbase as usize == headers & !0xfff;
    let path = if is_program {
        // SAFETY: the call reads a number.
        unsafe { libc::getauxval(libc::AT_EXECFN) as *const _ }
    } else {
        info.dli_fname
    };
    if !is_found || path.is_null() {
        return false;
    }
    // SAFETY: the linker's or the kernel's own text, which lives as long as the library or the program.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    path.file_name() == Some(OsStr::new(name))
}
