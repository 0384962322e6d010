//! `librejoin.so`, loaded when the first connection is made.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{RTLD_LOCAL, RTLD_NODELETE, RTLD_NOW, c_int, c_void};

use crate::complain;
use crate::next::{self, SslNew};

/// `rejoin_attach_process` of `rejoin.h`.
type AttachProcess = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Has `librejoin.so` attach to the process, and to this context if it has not seen it being made.
///
/// # Safety
/// `context` is valid, and a connection is about to be made on it by `next`.
pub(crate) unsafe fn attach(context: *mut c_void, next: SslNew) {
    static LOADED: OnceLock<Option<AttachProcess>> = OnceLock::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    if !is_of_libssl(next as usize) {
        return complain("a libssl other than libssl.so.3 makes this program's connections");
    }
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    let Some(attach) = LOADED.get_or_init(load) else { return };
    // SAFETY: the caller vouches for `context`, which is of the libssl that the library has. A null
    // context is a fault that libssl's own function answers.
    if unsafe { attach(context) } != 0 {
        // It has said why, and says the same again.
        FAILED.store(true, Ordering::Relaxed);
    }
}

/// Whether it is that of the libssl that `librejoin.so` has, too, which may yet be loaded.
fn is_of_libssl(ssl_new: usize) -> bool {
    static LIBSSL: AtomicUsize = AtomicUsize::new(0);
    if LIBSSL.load(Ordering::Relaxed) == 0 {
        LIBSSL.store(next::libssl().unwrap_or(0), Ordering::Relaxed);
    }
    LIBSSL.load(Ordering::Relaxed) == ssl_new
}

fn load() -> Option<AttachProcess> {
    let path = path()?;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the library that belongs to this one; loading it runs nothing of its own.
    let library = unsafe { libc::dlopen(name.as_ptr(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) };
    if library.is_null() {
        complain(&format!("cannot load librejoin.so: {}", last_error()));
        return None;
    }
    // SAFETY: the library is open.
    let attach = unsafe { libc::dlsym(library, c"rejoin_attach_process".as_ptr()) };
    if attach.is_null() {
        complain(&format!("{}: of another version: install both of one", path.display()));
        return None;
    }
    // SAFETY: the function of this name has this type in every version.
    Some(unsafe { std::mem::transmute::<*mut c_void, AttachProcess>(attach) })
}

/// What `REJOIN_LIBRARY` says, or else beside this library.
fn path() -> Option<PathBuf> {
    // SAFETY: it only reads a number.
    let is_raised = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // Who starts a program that has more rights than they do does not say what it loads.
    if let Some(said) = std::env::var_os("REJOIN_LIBRARY").filter(|_| !is_raised) {
        return Some(said.into());
    }
    let own = next::library_of(path as *const c_void)?;
    let own = Path::new(OsStr::from_bytes(own.to_bytes()));
    Some(own.with_file_name("librejoin.so"))
}

fn last_error() -> String {
    // SAFETY: no arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is given".to_owned();
    }
    // SAFETY: the loader's own text, copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
