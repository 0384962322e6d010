//! Plans in TOML: the clients, the servers, and the policies and capacities to try.
//!
//! ```
//! let plan = rejoin_sim::Plan::parse(
//!     r#"
//!     title = "A hundred devices for an hour"
//!     duration_s = 3600
//!     [[group]]
//!     kind = "devices"
//!     devices = 100
//!     running_s = 120
//!     waiting_s = 2760
//!     intervals = "60:23,30:13,15:2"
//!     "#,
//! )?;
//! assert_eq!(plan.groups, ["devices"]);
//! # Ok::<(), rejoin_sim::Error>(())
//! ```
//!
//! # Keys
//!
//! | key | default | |
//! |---|---|---|
//! | `title` | "untitled" | the title of the reports |
//! | `duration_s` | | the length of the simulation; needed if there is a group |
//! | `warm_up_s` | 0 | the part at the beginning that is not counted |
//! | `tls` | "1.2" | or "1.3" |
//! | `tickets_full` | 2 | TLS 1.3: tickets of a full handshake, 1 to 16 |
//! | `tickets_resumed` | 1 | TLS 1.3: tickets of a resumption, 0 to 16 |
//! | `tickets_used_once` | false | TLS 1.3: true if a resumption takes the ticket out of the cache |
//! | `grace_ms` | 2000 | the time a client may be late before its session is the first to be evicted |
//! | `ghosts_percent` | the cache's | the histories of evicted clients that it keeps, in percent of its sessions; in small caches that learn more, unless it is 0 |
//! | `history_carried` | false | true if clients carry their history, so that an evicted one is known |
//! | `source_percent` | no bound | the most that one source can have of the shipped cache, in percent |
//! | `sessions_kept` | true | true if a device still has its session at its next run |
//! | `keyed_by` | "client" where possible | or "session": [`KeyedBy`] |
//! | `servers` | 1 | to 1,024, each with its own cache of the whole capacity |
//! | `balancer` | "random" | or "round-robin", "client": [`Balancer`] |
//! | `capacities`, `policies`, `seeds` | | the values to try, unless the caller gives others |
//!
//! Each `[[group]]` has a `name` (its kind by default, a number behind it if that is taken), a number of `sources` that its
//! clients come from (each from its own by default; it needs `source_percent`), and a `kind`:
//!
//! | kind | keys |
//! |---|---|
//! | "devices" | `devices`, `running_s`, `waiting_s`, `intervals`; `runs` ("exponential", or `{ log_normal = { sigma } }`, `{ habits = { sigma, within } }`), `jitter_s` (0), `start` ("steady", or "waiting"), `departures_known` (false), `claims` ("truth", or "nothing", `{ permille = 970 }`, `{ fixed_s = 1 }`) |
//! | "browsers" | `browsers`, `gaps`: `{ pareto = { least_s, shape } }` or `{ log_normal = { median_s, sigma } }` |
//! | "flood" | `per_s`; `claims_s` (nothing), `visits` of each client (1), `every_s` between them |
//!
//! `runs` is how the lengths of runs vary around their mean, `running_s`: [`Runs`](rejoin_trace::Runs). With "habits" every
//! device has a mean of its own.
//!
//! Seconds may have a fraction, down to the millisecond.

mod file;
mod group;

use std::num::NonZeroU32;

use rejoin_trace::Mixture;

use crate::error::Error;
use crate::policy::UnknownPolicy;
use crate::server::{Balancer, KeyedBy, Server, SourceShares, Tls};
use crate::subject::Subject;
use file::{BalancerName, File, KeyName, TlsName};

/// A plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The title of the reports.
    pub title: String,
    /// The time that is played before requests are counted.
    pub warm_up_ms: u64,
    /// The end; `None`, which only a plan without groups may have, means the end of its trace.
    pub end_ms: Option<u64>,
    /// The servers.
    pub server: Server,
    /// True if the plan names the version of TLS.
    pub names_tls: bool,
    /// The clients; `None` if the plan has no group and needs a trace.
    pub mixture: Option<Mixture>,
    /// The groups' names.
    pub groups: Vec<String>,
    /// The capacities to try; may be empty.
    pub capacities: Vec<NonZeroU32>,
    /// The policies to try; may be empty.
    pub policies: Vec<Subject>,
    /// The number of seeds to try.
    pub seeds: Option<NonZeroU32>,
}

/// The most servers behind a balancer.
pub const MOST_SERVERS: u16 = 1_024;
/// The most tickets of one handshake.
pub const MOST_TICKETS: u8 = 16;
/// The most seeds.
pub const MOST_SEEDS: u32 = 10_000;
/// The longest grace: 49 days.
const LONGEST_GRACE_MS: u64 = u32::MAX as u64;

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Returns [`Error::BadPlan`], [`Error::BadValue`] or [`Error::BadGroup`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        File::parse(text)?.try_into()
    }
}

impl Default for Plan {
    /// Returns the empty plan, for a trace.
    fn default() -> Self {
        Self {
            title: "untitled".to_owned(),
            warm_up_ms: 0,
            end_ms: None,
            server: Server::default(),
            names_tls: false,
            mixture: None,
            groups: Vec::new(),
            capacities: Vec::new(),
            policies: Vec::new(),
            seeds: None,
        }
    }
}

impl TryFrom<File> for Plan {
    type Error = Error;

    fn try_from(file: File) -> Result<Self, Error> {
        let names_tls = file.tls.is_some();
        let mut server = server(&file)?;
        server.fairness = fairness(&file)?;
        let warm_up_ms = milliseconds("warm_up_s", file.warm_up_s.unwrap_or(0.0), 0)?;
        let end_ms = file.duration_s.map(|s| milliseconds("duration_s", s, 1)).transpose()?;
        if end_ms.is_some_and(|end_ms| warm_up_ms >= end_ms) {
            let what = "it is as long as duration_s: leave something to count";
            return bad("warm_up_s", what.to_owned());
        }
        if end_ms.is_none() && !file.groups.is_empty() {
            return bad("duration_s", "it is missing: give the seconds to be played".to_owned());
        }
        let (groups, mixture) = group::mixture(file.groups)?;
        let seeds = file.seeds.map(|seeds| within("seeds", seeds, 1, MOST_SEEDS)).transpose()?;
        let capacity = |sessions| within("capacities", sessions, 1, u32::MAX).map(not_zero);
        let policy = |name: String| {
            name.parse().map_err(|cause: UnknownPolicy| value("policies", cause.to_string()))
        };
        Ok(Self {
            title: file.title.unwrap_or_else(|| "untitled".to_owned()),
            warm_up_ms,
            end_ms,
            server,
            names_tls,
            mixture,
            groups,
            capacities: file.capacities.into_iter().map(capacity).collect::<Result<_, _>>()?,
            policies: file.policies.into_iter().map(policy).collect::<Result<_, _>>()?,
            seeds: seeds.map(not_zero),
        })
    }
}

fn server(file: &File) -> Result<Server, Error> {
    let tickets = |key, tickets: Option<i64>, least, default: i64| {
        within(key, tickets.unwrap_or(default), least, u32::from(MOST_TICKETS))
            .map(|tickets| tickets as u8)
    };
    let full = tickets("tickets_full", file.tickets_full, 1, 2)?;
    let resumed = tickets("tickets_resumed", file.tickets_resumed, 0, 1)?;
    let used_once = file.tickets_used_once.unwrap_or(false);
    let about_tickets = [
        ("tickets_full", file.tickets_full.is_some()),
        ("tickets_resumed", file.tickets_resumed.is_some()),
        ("tickets_used_once", file.tickets_used_once.is_some()),
    ];
    let tls = match (file.tls.unwrap_or_default(), about_tickets.iter().find(|key| key.1)) {
        (TlsName::V1_3, _) if used_once && resumed == 0 => {
            let what = "0 leaves a client without a ticket where each is used once: give 1 or more";
            return bad("tickets_resumed", what.to_owned());
        }
        (TlsName::V1_3, _) => Tls::V1_3 { full, resumed, used_once },
        (TlsName::V1_2, Some((key, _))) => {
            return bad(key, "TLS 1.2 has no such thing here: say tls = \"1.3\"".to_owned());
        }
        (TlsName::V1_2, None) => Tls::V1_2,
    };
    let servers = within("servers", file.servers.unwrap_or(1), 1, u32::from(MOST_SERVERS))?;
    let grace_ms = match file.grace_ms.unwrap_or(rejoin_cache::Settings::GRACE_MS as i64) {
        ms @ 0.. if ms as u64 <= LONGEST_GRACE_MS => ms as u64,
        ms => return bad("grace_ms", format!("{ms} is not from 0 to {LONGEST_GRACE_MS}")),
    };
    let percent = |percent| within("ghosts_percent", percent, 0, 1_000);
    let mut server = Server {
        tls,
        grace_ms,
        ghosts_percent: file.ghosts_percent.map(percent).transpose()?,
        history_carried: file.history_carried.unwrap_or(false),
        fairness: None,
        sessions_kept: file.sessions_kept.unwrap_or(true),
        lifetime_s: None,
        keyed_by: KeyedBy::Client,
        servers: servers as u16,
        balancer: match file.balancer.unwrap_or_default() {
            BalancerName::RoundRobin => Balancer::RoundRobin,
            BalancerName::Random => Balancer::Random,
            BalancerName::Client => Balancer::Client,
        },
    };
    server.keyed_by = match file.keyed_by {
        Some(KeyName::Client) if !server.can_key_by_client() => {
            let what = "a client has no one session over TLS 1.3, with several servers, \
                        or if sessions are not kept: say \"session\", or nothing";
            return bad("keyed_by", what.to_owned());
        }
        Some(KeyName::Session) => KeyedBy::Session,
        _ if server.can_key_by_client() => KeyedBy::Client,
        _ => KeyedBy::Session,
    };
    Ok(server)
}

fn fairness(file: &File) -> Result<Option<SourceShares>, Error> {
    let sources = |group: &file::Group| {
        group
            .sources
            .map(|sources| within("sources", sources, 1, u32::MAX).map(not_zero))
            .transpose()
    };
    let sources: Vec<Option<NonZeroU32>> =
        file.groups.iter().map(sources).collect::<Result<_, _>>()?;
    let Some(percent) = file.source_percent else {
        let without_effect = sources.iter().any(Option::is_some);
        let what = "it has no effect without source_percent: give the share of a source";
        return if without_effect { bad("sources", what.to_owned()) } else { Ok(None) };
    };
    let percent = within("source_percent", percent, 1, 100)?;
    Ok(Some(SourceShares { percent, sources }))
}

/// Converts seconds to milliseconds, which must be at least so many.
fn milliseconds(key: &str, seconds: f64, least_ms: u64) -> Result<u64, Error> {
    const LONGEST_S: f64 = 1e9;
    let ms = (seconds * 1_000.0).round();
    if ms >= least_ms as f64 && ms <= LONGEST_S * 1_000.0 && seconds >= 0.0 {
        return Ok(ms as u64);
    }
    let least_s = least_ms as f64 / 1_000.0;
    bad(key, format!("{seconds} is not a number of seconds from {least_s} to {LONGEST_S}"))
}

fn within(key: &str, number: i64, least: u32, most: u32) -> Result<u32, Error> {
    match u32::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => bad(key, format!("{number} is not from {least} to {most}")),
    }
}

fn not_zero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("checked to be at least 1")
}

fn value(key: &str, what: String) -> Error {
    Error::BadValue { key: key.to_owned(), what }
}

fn bad<T>(key: &str, what: String) -> Result<T, Error> {
    Err(value(key, what))
}
