//! The configuration module.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use libc::{c_char, c_int, c_void};
use rejoin_cache::Hints;
use rejoin_openssl::{Everywhere, ServerSessions, TicketHistory, TicketKeys};
use rejoin_store::{SharedKeys, Store};

use crate::settings::{ModuleSettings, TicketSettings};

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
    let attached = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes both, valid during the call.
        let section = unsafe { CONF_imodule_get_value(module) };
        attach(|name| {
            let variable = format!("REJOIN_{}", name.to_ascii_uppercase());
            // SAFETY: as above.
            std::env::var(variable).ok().or_else(|| unsafe { value(configuration, section, name) })
        })
    }));
    match attached {
        Ok(Ok(())) => {}
        Ok(Err(why)) => eprintln!("rejoin: {why}; going on without Rejoin"),
        Err(_) => eprintln!("rejoin: a fault of its own; going on without Rejoin"),
    }
    1
}

/// OpenSSL unloads it: nothing to do, for it stays.
#[unsafe(export_name = "OPENSSL_finish")]
unsafe extern "C" fn module_unloaded(_module: *mut Module) {}

fn attach(get: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let settings = ModuleSettings::read(get)?;
    let failed = |error| format!("cache {}: {error}", settings.cache);
    let store = Store::open(&settings.folder, &settings.cache, settings.settings.as_ref());
    let store = Arc::new(store.map_err(failed)?);
    let sessions = ServerSessions::new(Arc::clone(&store), *store.id_key(), Hints::Never);
    let mut everywhere = Everywhere::default()
        .with_sessions(&sessions, settings.stateful)
        .resumable_for(settings.resumable_for);
    if let Some(TicketSettings { schedule, file }) = &settings.tickets {
        let keys = SharedKeys::open(store, *schedule, file.as_deref(), now_s(), complain);
        let keys = TicketKeys::following(Box::new(keys.map_err(failed)?));
        everywhere = everywhere.with_tickets(&keys, TicketHistory::Carried);
    }
    // A program that loads its configuration twice has us already.
    let _ = everywhere.attach();
    Ok(())
}

fn complain(error: &rejoin_store::Error) {
    eprintln!("rejoin: {error}; ticket keys go on changing, in memory alone");
}

/// Unix time.
fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

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
    unsafe { CStr::from_ptr(found) }.to_str().ok().map(str::to_owned)
}
