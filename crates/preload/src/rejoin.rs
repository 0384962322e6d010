//! The adapters `librejoin.so` and `librejoin_gnutls.so`, each loaded when it is needed.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{RTLD_LOCAL, RTLD_NODELETE, RTLD_NOLOAD, RTLD_NOW, c_int, c_void};

use rejoin_abi::Hooks;
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
        // Its handlers of fork(2) must be registered before it is called inside the gate.
        LIBREJOIN.hooks()?;
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
pub(crate) static LIBREJOIN: Library = Library {
    name: "librejoin.so",
    gives: c"rejoin_client_hooks",
    is_needed: true,
    open: OnceLock::new(),
};
/// `librejoin_gnutls.so`, which is in the same folder, or missing.
pub(crate) static LIBREJOIN_GNUTLS: Library = Library {
    name: "librejoin_gnutls.so",
    gives: c"rejoin_gnutls_hooks",
    is_needed: false,
    open: OnceLock::new(),
};

/// One of Rejoin's libraries.
pub(crate) struct Library {
    name: &'static str,
    /// The name of its function that returns the hooks.
    gives: &'static CStr,
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

    /// Returns the library's hooks, of whatever version.
    pub(crate) fn hooks(&self) -> Option<&'static Hooks> {
        let found = self.function(self.gives)?;
        // SAFETY: the function of this name has this type in every version.
        let give =
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Hooks>(found) };
        // SAFETY: the structure is a static of the library, and begins with its digest in every version.
        let hooks = unsafe { give().as_ref() };
        // The library has registered its own handlers of fork(2), and is called inside the gate.
        gate::enclose();
        hooks
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
        // Behind another root only what is loaded already is Rejoin's.
        let is_ours = is_at_the_first_root();
        let only = if is_ours { 0 } else { RTLD_NOLOAD };
        let how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | only;
        // SAFETY: the path ends with a zero byte; the library is Rejoin's, and runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), how) };
        if library.is_null() {
            let said = last_error();
            let why = if is_ours { &said } else { CHANGED };
            complain(&format!("cannot load {}: {why}", self.name));
        }
        (!library.is_null()).then_some(Open(library))
    }
}

const CHANGED: &str = "the process has changed its root";

/// The device and the inode of the process's root when this library was loaded. 0: that is still to come.
static ROOT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Our own constructor, which asks the kernel once. Behind another root (`chroot`) the path of a library leads to a file
/// of whoever owns that root, which would run with the program's rights.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_THE_START: extern "C" fn() = note_the_root;

extern "C" fn note_the_root() {
    let root = root().unwrap_or_default();
    ROOT.iter().zip(root).for_each(|(known, found)| known.store(found, Ordering::Relaxed));
}

fn root() -> Option<[u64; 2]> {
    // The call that the loader makes, too: a seccomp filter may forbid a newer one.
    // SAFETY: the structure has only numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and `found` has room for the answer.
    let is_found = unsafe { libc::stat(c"/".as_ptr(), &raw mut found) } == 0;
    is_found.then_some([found.st_dev, found.st_ino])
}

/// Returns true if the process has the root that it had when this library was loaded.
fn is_at_the_first_root() -> bool {
    let known = || ROOT.each_ref().map(|known| known.load(Ordering::Relaxed));
    if known() == [0; 2] {
        // Another library's constructor makes a connection.
        note_the_root();
    }
    root() == Some(known())
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
pub(crate) fn debug(line: &str) {
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
