//! Attaching to all of a process, which the module and the preload library ask for.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rejoin_cache::Hints;
use rejoin_openssl::{Everywhere, ServerSessions, TicketHistory, TicketKeys};
use rejoin_store::{SharedKeys, Store};

use crate::settings::{ModuleSettings, TicketSettings};

/// Attaches as the settings say: whoever comes first does it, and whoever comes later has its outcome.
/// What went wrong is one line on standard error.
pub(crate) fn attach_once(get: impl Fn(&str) -> Option<String>) -> Result<(), &'static str> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        let outcome = catch_unwind(AssertUnwindSafe(|| attach(get)));
        let outcome = outcome.unwrap_or_else(|_| Err("a fault of its own".to_owned()));
        if let Err(why) = &outcome {
            // Without standard error there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "rejoin: {why}; going on without Rejoin");
        }
        outcome
    });
    outcome.as_ref().copied().map_err(String::as_str)
}

/// What the environment says of a setting.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(format!("REJOIN_{}", name.to_ascii_uppercase())).ok()
}

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
        let keys = SharedKeys::open(store, Some(*schedule), file.as_deref(), now_s(), complain);
        let keys = TicketKeys::following(Box::new(keys.map_err(failed)?));
        everywhere = everywhere.with_tickets(&keys, TicketHistory::Carried);
    }
    everywhere.attach().map_err(|error| format!("cannot attach: {error}"))
}

pub(crate) fn complain(error: &rejoin_store::Error) {
    let more = "ticket keys go on changing, in memory alone";
    // Without standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "rejoin: {error}; {more}");
}

/// Unix time.
pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
