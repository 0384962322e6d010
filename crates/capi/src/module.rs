//! The configuration module.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_char, c_int, c_void};
use openssl_sys::{OPENSSL_STACK, OPENSSL_sk_num, OPENSSL_sk_value};

use crate::process;

/// OpenSSL's description of a module, and a parsed configuration. Both are opaque here.
type Module = c_void;
type Configuration = c_void;

/// OpenSSL's `CONF_VALUE`: a setting of a section.
#[repr(C)]
struct Setting {
    section: *mut c_char,
    name: *mut c_char,
    value: *mut c_char,
}

unsafe extern "C" {
    fn CONF_imodule_get_value(module: *const Module) -> *const c_char;
    fn NCONF_get_string(
        configuration: *const Configuration,
        section: *const c_char,
        name: *const c_char,
    ) -> *mut c_char;
    fn NCONF_get_section(
        configuration: *const Configuration,
        section: *const c_char,
    ) -> *mut OPENSSL_STACK;
    fn ERR_set_mark() -> c_int;
    fn ERR_pop_to_mark() -> c_int;
}

/// Attaches to the process when OpenSSL has loaded this library. Returns 1 always, because a program must not fail only
/// because Rejoin does.
#[unsafe(export_name = "OPENSSL_init")]
unsafe extern "C" fn module_loaded(
    module: *mut Module,
    configuration: *const Configuration,
) -> c_int {
    // The result is not needed: a failure is reported already, and a second load of the configuration changes nothing.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes a module that is valid during the call.
        let section = unsafe { CONF_imodule_get_value(module) };
        // SAFETY: OpenSSL passes a configuration that is valid during the call; the section is the module's text.
        let names = || unsafe { names(configuration, section) };
        process::attach_once(source, names, |name| {
            // SAFETY: OpenSSL passes a configuration that is valid during the call; the section is the module's text.
            process::variable(name).or_else(|| unsafe { value(configuration, section, name) })
        })
    }));
    1
}

/// Does nothing when OpenSSL unloads this library, which stays loaded.
#[unsafe(export_name = "OPENSSL_finish")]
unsafe extern "C" fn module_unloaded(_module: *mut Module) {}

/// Returns the file that OpenSSL read, as far as it is known.
fn source() -> String {
    let file = rejoin_abi::variable("OPENSSL_CONF");
    file.map_or_else(|| "OpenSSL's own file".to_owned(), |file| file.to_string_lossy().into_owned())
}

/// Returns the names of the section's settings, but for `path`, which is OpenSSL's own.
///
/// # Safety
/// Both pointers are valid.
unsafe fn names(configuration: *const Configuration, section: *const c_char) -> Vec<String> {
    // A missing section leaves an error in OpenSSL's queue, which the program must not see.
    // SAFETY: the function takes no arguments.
    unsafe { ERR_set_mark() };
    // SAFETY: the caller vouches for the pointers.
    let settings = unsafe { NCONF_get_section(configuration, section) };
    // SAFETY: the function takes no arguments.
    unsafe { ERR_pop_to_mark() };
    // SAFETY: the list belongs to the configuration; for a null pointer the function returns -1.
    let places = 0..unsafe { OPENSSL_sk_num(settings) };
    let name = |place| {
        // SAFETY: the list has this place.
        let setting = unsafe { OPENSSL_sk_value(settings, place) };
        // SAFETY: the items of the list are settings, which belong to the configuration.
        let setting = unsafe { setting.cast::<Setting>().as_ref() }?;
        // SAFETY: the name belongs to the configuration, and ends with a zero byte.
        Some(unsafe { CStr::from_ptr(setting.name) }.to_string_lossy().into_owned())
    };
    places.filter_map(name).filter(|name| name != "path").collect()
}

/// Returns a setting of the section, if it is there.
///
/// # Safety
/// All pointers are valid.
unsafe fn value(
    configuration: *const Configuration,
    section: *const c_char,
    name: &str,
) -> Option<OsString> {
    debug_assert!(rejoin_abi::SETTINGS.contains(&name), "{name}");
    let name = CString::new(name).ok()?;
    // A missing setting leaves an error in OpenSSL's queue, which the program must not see.
    // SAFETY: the function takes no arguments.
    unsafe { ERR_set_mark() };
    // SAFETY: the caller vouches for the pointers.
    let found = unsafe { NCONF_get_string(configuration, section, name.as_ptr()) };
    // SAFETY: the function takes no arguments.
    unsafe { ERR_pop_to_mark() };
    if found.is_null() {
        return None;
    }
    // SAFETY: the text belongs to the configuration, and ends with a zero byte.
    let text = unsafe { CStr::from_ptr(found) };
    Some(OsStr::from_bytes(text.to_bytes()).to_owned())
}
