//! Attaching to all contexts of a process, for the configuration module and for the preload library.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rejoin_abi::{check_setting, check_variables, report, variable_of};
use rejoin_cache::{Capacity, Hints, SourceBy};
use rejoin_openssl::{Everywhere, Left, Moment, ServerSessions, TicketHistory, TicketKeys};
use rejoin_store::{CacheName, Error, SharedKeys, Store, Tiered};

use crate::settings::{EarlyData, ModuleSettings, TicketSettings};
use crate::{posts, start};

/// Attaches with these settings. Only the first call does it, and every further one returns its outcome. A failure is
/// one line on standard error. `source` returns where the settings are from, `names` those of the configuration's
/// section, and `get` the value of a setting.
pub(crate) fn attach_once(
    source: impl FnOnce() -> String,
    names: impl FnOnce() -> Vec<String>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<(), &'static str> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            posts::source(&source());
            attach(&names(), get)
        }));
        let outcome = outcome.unwrap_or_else(|_| Err("a fault of its own".to_owned()));
        if let Err(why) = &outcome {
            give_up(why);
            posts::gave_up(why);
        }
        outcome
    });
    outcome.as_ref().copied().map_err(String::as_str)
}

/// Returns the value of a setting in the environment.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    rejoin_abi::variable(&variable_of(name))
}

/// Attaches with these settings. A process running as root opens the cache with its first context that may serve, or here
/// if it inherited a socket that listens, because it may drop privileges later. Any other process opens it at its first handshake. Most programs that inherit the
/// environment of a server (CGI, hooks) have neither. If the cache does not exist yet, handshakes try again, because an
/// agent may make it.
///
/// What root tried to open in vain is left to root: a worker that has dropped root would make a cache of its own user,
/// which root refuses at the next start. A reload, which makes contexts as root, tries again.
fn attach(names: &[String], get: impl Fn(&str) -> Option<OsString>) -> Result<(), String> {
    names.iter().try_for_each(|name| check_setting(name))?;
    let strangers = check_variables()?;
    let settings = ModuleSettings::read(get)?;
    posts::settings(&settings);
    // Workers may have no /proc.
    let start = start::this();
    let was_root = is_root();
    posts::attached(false);
    let errors_only = settings.errors_only;
    let (mut opened, mut told) = (None, None);
    // When the cache was last opened before a handshake, and what root was told then.
    let (mut tried, mut roots): (Option<Instant>, Option<String>) = (None, None);
    let leave = move |what| {
        if !errors_only {
            report(left(what));
        }
    };
    let make = move |moment| {
        // Nobody named a cache: the program may be a client alone. If it serves, its first handshake tells.
        let is_quiet = moment == Moment::Context && !settings.is_named;
        let mut tell = |why: &String| {
            if !is_quiet && told.replace(why.clone()).as_ref() != Some(why) {
                report(&format!("{why}; going on without Rejoin, and trying again"));
                posts::tries_again(why);
            }
        };
        if moment == Moment::Context {
            let is_due = tried.is_none_or(|tried| tried.elapsed() >= PAUSE);
            if was_root && is_due && opened.is_none() {
                let outcome = open(&settings, None).inspect_err(&mut tell);
                roots = outcome.as_ref().err().filter(|_| is_root()).cloned();
                opened = outcome.ok();
                tried = Some(Instant::now());
                opened.iter().for_each(|_| posts::attached(true));
            }
            return None;
        }
        let roots = roots.as_deref().filter(|_| !is_root());
        let opened = opened.take().map_or_else(|| open(&settings, roots).inspect_err(tell), Ok);
        let (mut everywhere, store) = opened.ok()?;
        posts::attached(true);
        if store.is_first_of(start) {
            say(&settings, &store, &strangers);
        }
        if !errors_only {
            let once = |of: u64, store: Arc<Store>, line: fn(&Store) -> String| {
                let is_said = AtomicBool::new(false);
                move || {
                    if !is_said.swap(true, Ordering::Relaxed) && store.is_first_of(of) {
                        report(&line(&store));
                    }
                }
            };
            everywhere =
                everywhere.when_filled(once(start.swap_bytes(), Arc::clone(&store), filled));
            everywhere = everywhere.when_off(once(!start, store, left_alone));
        }
        Some(everywhere)
    };
    let attached = Everywhere::attach_later(make, leave);
    attached.map_err(|error| format!("cannot attach: {error}"))
}

/// The shortest time between two attempts before a handshake: a configuration may have many contexts.
const PAUSE: Duration = Duration::from_secs(1);

fn is_root() -> bool {
    // SAFETY: the function takes no arguments.
    let user = unsafe { libc::geteuid() };
    user == 0
}

/// Reports what the process is attached to, and which variables are not Rejoin's.
fn say(settings: &ModuleSettings, store: &Store, strangers: &[String]) {
    if !strangers.is_empty() {
        report(&format!("{}: no settings of Rejoin's, and ignored", strangers.join(", ")));
    }
    if !settings.errors_only {
        report(&attached(settings, store));
    }
}

fn attached(settings: &ModuleSettings, store: &Store) -> String {
    let bytes = match store.settings().capacity {
        Capacity::Bytes(bytes) => bytes,
        Capacity::Sessions(_) => store.facts().bytes,
    };
    let mib = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let keys = match (settings.stateful, &settings.tickets) {
        (true, _) => "no stateless tickets",
        (false, Some(_)) => "ticket keys shared",
        (false, None) => "ticket keys the server's own",
    };
    format!(
        "{}: attached, {} MiB, {} sessions, {keys}",
        store.name(),
        mib.trim_end_matches(".0"),
        grouped(store.cache().capacity_sessions())
    )
}

/// Has it reported, once, that a client's source is not known.
pub(crate) fn tell_when_sourceless(sessions: &ServerSessions<Tiered>, cache: &CacheName) {
    let name = cache.clone();
    sessions.when_sourceless(move |by| report(&format!("cache {name}: {}", sourceless(by))));
}

/// Formats the report that a client's source is not known.
fn sourceless(by: SourceBy) -> &'static str {
    match by {
        SourceBy::Address => {
            "source_share does not bound clients without an address: this program does not give libssl its sockets; \
             set source_by = certificate or name"
        }
        SourceBy::Certificate => "source_share does not bound clients without a certificate",
        SourceBy::Name => "source_share does not bound clients that ask for no name",
    }
}

/// Returns the report of what is left to the program, whatever the settings.
fn left(what: Left) -> &'static str {
    match what {
        Left::Quic => "OpenSSL's own QUIC is left alone: its clients resume as without Rejoin",
        Left::BesideQuic => {
            "this program uses, or may use, OpenSSL's own QUIC: its other connections may go on without Rejoin"
        }
    }
}

fn left_alone(store: &Store) -> String {
    format!(
        "{}: this server neither keeps sessions nor issues tickets, and that stays so; set stateful = yes to keep them \
         in the cache",
        store.name()
    )
}

fn filled(store: &Store) -> String {
    format!(
        "{}: this server may keep data of its own in tickets or sessions, so these stay its own, as without Rejoin",
        store.name()
    )
}

/// Formats a number with commas between its thousands.
fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

/// Opens the cache and the ticket keys that the settings name. `roots` is why root could not, if this process was root and
/// is not any more: then it makes no cache.
fn open(
    settings: &ModuleSettings,
    roots: Option<&str>,
) -> Result<(Everywhere, Arc<Store>), String> {
    let failed = |error| failed(&error, &settings.cache);
    let (folder, cache) = (&settings.folder, &settings.cache);
    let opened = match &settings.settings {
        _ if roots.is_some() => Store::open(folder, cache, None).map(|store| (store, None)),
        Some(made) => Store::open_or_replace(folder, cache, made, !settings.takes()),
        None => Store::open(folder, cache, None).map(|store| (store, None)),
    };
    let (store, replaced) = opened.map_err(|error| match roots {
        Some(why) => {
            format!("{why}; then reload the server, because this process is not root any more")
        }
        None => failed(error),
    })?;
    replaced.into_iter().for_each(|why| report(&moved(&why, cache)));
    let store = Arc::new(store);
    let name = settings.cache.clone();
    store.on_trouble(move |trouble| report(&format!("cache {name}: {trouble}")));
    let tiered = match settings.early_data {
        EarlyData::OnceHere => Tiered::alone(Arc::clone(&store)),
        EarlyData::Once if !settings.single_use => {
            Tiered::new(Arc::clone(&store)).taking_unanswered()
        }
        EarlyData::Program | EarlyData::Once => Tiered::new(Arc::clone(&store)),
    };
    let sessions = ServerSessions::new(tiered, *store.id_key(), Hints::Never);
    tell_when_sourceless(&sessions, &settings.cache);
    let mut everywhere = Everywhere::default()
        .with_sessions(&sessions, settings.stateful)
        .single_use(settings.single_use)
        .early_data_once(settings.early_data != EarlyData::Program)
        .vouched(settings.vouched)
        .resumable_for(settings.resumable_for);
    if let Some(name) = &settings.context {
        everywhere = everywhere.named(name);
    }
    if let Some(TicketSettings { schedule, file }) = &settings.tickets {
        let keys = SharedKeys::open(
            Arc::clone(&store),
            Some(*schedule),
            file.as_deref(),
            now_s(),
            complain,
        );
        let keys = TicketKeys::following(Box::new(keys.map_err(failed)?));
        everywhere = everywhere.with_tickets(&keys, TicketHistory::Carried);
    }
    Ok((everywhere, store))
}

fn give_up(why: &str) {
    let going = if why.ends_with('?') { " Going" } else { "; going" };
    report(&format!("{why}{going} on without Rejoin"));
}

/// Formats the report of a cache that was replaced for this reason.
fn moved(why: &Error, cache: &CacheName) -> String {
    let why = match why {
        Error::OtherSettings { setting, theirs, ours, .. } => {
            format!("had another {setting}, {theirs} and not {ours}")
        }
        _ => "was made by another version".to_owned(),
    };
    format!(
        "cache {cache} {why}: a new one takes its place, and running processes finish on the old one"
    )
}

fn failed(error: &Error, cache: &CacheName) -> String {
    match error {
        Error::NotFound { .. } => format!("{error}, or set a capacity"),
        _ if error.cache().is_some() => error.to_string(),
        _ => format!("cache {cache}: {error}"),
    }
}

pub(crate) fn complain(error: &Error) {
    report(&format!("{error}; ticket keys go on changing, in memory alone"));
}

/// Returns Unix time.
pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 999, 1_000, 210_000, 1_002_003].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "210,000", "1,002,003"]);
    }

    #[test]
    fn a_failure_names_the_cache_once() {
        let cache: CacheName = "web".parse().expect("a name");
        let told = [
            Error::Busy { name: cache.clone() },
            Error::NotFound { name: cache.clone(), folder: "/dev/shm".into() },
            Error::NoRoom { bytes: 1, folder: "/dev/shm".into() },
        ]
        .map(|error| failed(&error, &cache));
        assert!(told.iter().all(|line| line.matches("cache web").count() == 1), "{told:?}");
        assert!(told[1].ends_with("or set a capacity"), "{told:?}");
    }
}
