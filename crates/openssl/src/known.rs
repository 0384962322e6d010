//! Programs whose checks of client certificates are known, although they run in callbacks of their own.
//!
//! A program is known by the file that its callback is in, and by the form of its session-id contexts. nginx makes
//! SHA-1 of its own certificates and of the authorities' names (`ngx_ssl_session_id_context`), and resumes sessions of
//! other processes from a cache of its own under that context alone. What else it checks, OpenSSL does, and shows, but for
//! the signature algorithms of clients (`ssl_conf_command ClientSignatureAlgorithms`), which no function returns, and the
//! question to [responders](crate::responders), which nginx asks again when a client resumes. Apache
//! is not here: its context is the name of a virtual server, and its callback checks more, such as the depth and OCSP.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use libc::c_int;
use openssl_sys::SSL_CTX;

/// Returns true if the program with this callback puts what it checks into session-id contexts.
pub(crate) fn hashes_its_checks(callback: usize) -> bool {
    is_in(callback, "nginx")
}

/// Returns true if the program with this callback puts what it checks into session-id contexts, and this is such a one.
pub(crate) fn hashes_what_it_checks(callback: usize, id_context: &[u8]) -> bool {
    id_context.len() == 20 && hashes_its_checks(callback)
}

/// Returns true if nginx asks the responders of authorities about the clients of this context (`ssl_ocsp`), which it notes in the
/// context's extra data, under an index in a variable that it exports, whatever its file's name. `None` if no program does.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn asks_responders(context: *const SSL_CTX) -> Option<bool> {
    static INDEX: OnceLock<usize> = OnceLock::new();
    let find = || {
        // SAFETY: the name ends with a zero byte.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ngx_ssl_ocsp_index".as_ptr()) as usize }
    };
    let index = *INDEX.get_or_init(find) as *const c_int;
    // SAFETY: null, or nginx's own variable, which it sets before it makes a context.
    let index = *unsafe { index.as_ref() }?;
    // SAFETY: the caller vouches for `context`; the call reads a pointer, which is null under an index that nobody uses.
    Some(!unsafe { openssl_sys::SSL_CTX_get_ex_data(context, index) }.is_null())
}

/// Returns true if this callback is Postfix's, whose processes begin by `exec` and get their ticket keys from `tlsmgr`.
pub(crate) fn shares_ticket_keys(callback: usize) -> bool {
    is_in(callback, "libpostfix-tls.so")
}

/// Returns true in lighttpd, which demands certificates in its certificate callback. OpenSSL calls that in full handshakes
/// alone, so that a connection that resumes does not show the demand.
pub(crate) fn demands_late() -> bool {
    static IS_LIGHTTPD: OnceLock<bool> = OnceLock::new();
    *IS_LIGHTTPD.get_or_init(|| {
        let mut is_there = false;
        // SAFETY: the callback reads what the linker passes, and the variable outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(note_lighttpd), (&raw mut is_there).cast()) };
        is_there
    })
}

/// # Safety
/// `info` is valid, and `is_there` is a `bool`.
unsafe extern "C" fn note_lighttpd(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    is_there: *mut libc::c_void,
) -> c_int {
    // SAFETY: the caller vouches for `info`.
    let path = unsafe { (*info).dlpi_name };
    // SAFETY: the linker's own text.
    let is_lighttpd = unsafe { ends_with(path, "mod_openssl.so") };
    if is_lighttpd {
        // SAFETY: the caller vouches for `is_there`.
        unsafe { is_there.cast::<bool>().write(true) };
    }
    // Any other than 0 ends the search.
    is_lighttpd.into()
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
    // SAFETY: the linker's or the kernel's own text, which lives as long as the library or the program.
    is_found && unsafe { ends_with(path, name) }
}

/// Returns true if a path is of a file of this name.
///
/// # Safety
/// `path` is null or a valid text.
unsafe fn ends_with(path: *const libc::c_char, name: &str) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller vouches for `path`.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    path.file_name() == Some(OsStr::new(name))
}
