//! The configuration module.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_char, c_int, c_void};

use crate::process;
use crate::settings::ModuleSettings;

/// What OpenSSL knows of a module, and a parsed configuration: never looked into.
type Module = c_void;
type Configuration = c_void;

unsafe extern "C" {
    fn CONF_imodule_get_value(module: *const Module) -> *const c_char;
    fn NCONF_get_string(
        configuration: *const Configuration,
        section: *const c_char,
        name: *const c_char,
    ) -> *mut c_char;
    fn ERR_set_mark() -> c_int;
    fn ERR_pop_to_mark() -> c_int;
}

/// OpenSSL has loaded this library. Always 1: a program is not to fail since we cannot help it.
#[unsafe(export_name = "OPENSSL_init")]
unsafe extern "C" fn module_loaded(
    module: *mut Module,
    configuration: *const Configuration,
) -> c_int {
    // A program that loads its configuration twice has us already; what went wrong was told.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes both, valid during the call.
        let section = unsafe { CONF_imodule_get_value(module) };
        process::attach_once(|name| {
            // SAFETY: as above.
            process::variable(name).or_else(|| unsafe { value(configuration, section, name) })
        })
    }));
    1
}

/// OpenSSL unloads it: nothing to do, for it stays.
#[unsafe(export_name = "OPENSSL_finish")]
unsafe extern "C" fn module_unloaded(_module: *mut Module) {}

/// A setting of the section, if it is there.
///
/// # Safety
/// All pointers are valid.
unsafe fn value(
    configuration: *const Configuration,
    section: *const c_char,
    name: &str,
) -> Option<String> {
    debug_assert!(ModuleSettings::NAMES.contains(&name), "{name}");
    let name = CString::new(name).ok()?;
    // What is not there leaves an error behind, which is nobody's business.
    // SAFETY: no arguments.
    unsafe { ERR_set_mark() };
    // SAFETY: the caller vouches for the pointers.
    let found = unsafe { NCONF_get_string(configuration, section, name.as_ptr()) };
    // SAFETY: no arguments.
    unsafe { ERR_pop_to_mark() };
    if found.is_null() {
        return None;
    }
    // SAFETY: a text that the configuration owns.
    Some(unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
}
