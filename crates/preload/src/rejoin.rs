//! The adapters `librejoin.so` and `librejoin_gnutls.so`, each loaded when it is needed.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{RTLD_LOCAL, RTLD_NODELETE, RTLD_NOW, c_int, c_void};

use rejoin_abi::gate::{self, get_or_make};

use crate::complain;
use crate::next;

/// `rejoin_attach_process` of `rejoin.h`.
type AttachProcess = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Has `librejoin.so` attach to the process, and to this context if it was made before.
///
/// # Safety
/// `context` is null or valid, and belongs to the libssl that `librejoin.so` uses.
pub(crate) unsafe fn attach(context: *mut c_void) {
    static FOUND: OnceLock<Option<AttachProcess>> = OnceLock::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    let find = || {
        let found = LIBREJOIN.function(c"rejoin_attach_process")?;
        // SAFETY: the function of this name has this type in every version.
        Some(unsafe { std::mem::transmute::<*mut c_void, AttachProcess>(found) })
    };
    let _inside = gate::pass();
    let Some(attach) = FOUND.get_or_init(find) else { return };
    // SAFETY: the caller vouches for `context`. libssl's own function reports a null context.
    if unsafe { attach(context) } != 0 {
        // librejoin.so has reported the reason, and would fail in the same way again.
        FAILED.store(true, Ordering::Relaxed);
    }
}

/// `librejoin.so`.
pub(crate) static LIBREJOIN: Library =
    Library { name: "librejoin.so", is_needed: true, open: OnceLock::new() };
/// `librejoin_gnutls.so`, which is in the same folder, or missing.
pub(crate) static LIBREJOIN_GNUTLS: Library =
    Library { name: "librejoin_gnutls.so", is_needed: false, open: OnceLock::new() };

/// One of Rejoin's libraries.
pub(crate) struct Library {
    name: &'static str,
    is_needed: bool,
    open: OnceLock<Option<Open>>,
}

/// The handle of a library, which is never closed.
struct Open(*mut c_void);

// SAFETY: all threads may pass a handle to the loader.
unsafe impl Send for Open {}
// SAFETY: all threads may pass a handle to the loader at the same time.
unsafe impl Sync for Open {}

impl Library {
    /// Returns a function of the library, and loads the library before if necessary.
    pub(crate) fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let Open(library) = get_or_make(&self.open, || self.load()).as_ref()?;
        // SAFETY: the library is open, and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(*library, name.as_ptr()) };
        if found.is_null() {
            self.is_other();
        }
        (!found.is_null()).then_some(found)
    }

    /// Reports that the library is of another version than this one.
    pub(crate) fn is_other(&self) {
        complain(&format!("{} is of another version: install all of one", self.name));
    }

    fn load(&self) -> Option<Open> {
        let mut path = path()?;
        if !self.is_needed {
            path.set_file_name(self.name);
            if let Err(error) = path.metadata() {
                debug(&format!("directly: {}: {error}", path.display()));
                return None;
            }
        }
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the path ends with a zero byte; the library is Rejoin's, and runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) };
        if library.is_null() {
            complain(&format!("cannot load {}: {}", self.name, last_error()));
        }
        (!library.is_null()).then_some(Open(library))
    }
}

/// Returns the path of `librejoin.so`: the value of `REJOIN_LIBRARY`, or else the folder of this library.
fn path() -> Option<PathBuf> {
    // `variable` ignores the environment of a program with more rights than the user who started it.
    if let Some(said) = rejoin_abi::variable("REJOIN_LIBRARY") {
        return Some(said.into());
    }
    let own = next::library_of(path as *const c_void)?;
    let own = Path::new(OsStr::from_bytes(own.to_bytes()));
    Some(own.with_file_name("librejoin.so"))
}

/// Reports a line if `REJOIN_DEBUG` is set.
fn debug(line: &str) {
    if rejoin_abi::is_debugging() {
        rejoin_abi::report(line);
    }
}

fn last_error() -> String {
    // SAFETY: the function takes no arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is given".to_owned();
    }
    // SAFETY: the loader's text ends with a zero byte, and is copied before the next call to the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
