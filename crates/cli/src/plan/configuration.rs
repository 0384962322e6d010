//! The configuration of servers for a cache of the recommended size.

use rejoin_cache::{Capacity, Settings};
use rejoin_sim::sizing::{HAPROXY, NGINX};
use rejoin_sim::{Server, Subject};
use rejoin_trace::grouped;
use serde::Serialize;

use super::costs::version;
use crate::units::percent;

/// The configuration of each server, ready to be copied.
#[derive(Debug, Serialize)]
pub(super) struct Configuration {
    pub(super) nginx: String,
    pub(super) haproxy: String,
    /// The command line of `rejoin serve`.
    pub(super) rejoin: String,
    /// The settings of `librejoin.so`.
    pub(super) library: String,
}

/// The settings that the servers need.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// The policy of Rejoin's cache.
    pub(super) policy: Subject,
    /// Sessions under that policy.
    pub(super) sessions: u32,
    /// The bytes that its cache must be given.
    pub(super) bytes: u64,
    /// Sessions in servers that evict first in, first out.
    pub(super) fifo_sessions: u32,
    /// The percentage of returning devices that those servers resume.
    pub(super) fifo_percent: Option<f64>,
    /// True if that percentage reaches the target.
    pub(super) fifo_is_enough: bool,
    pub(super) lifetime_s: u32,
    pub(super) session_bytes: u32,
    pub(super) server: &'a Server,
}

impl Configuration {
    /// Returns each with the name of what it configures.
    pub(super) fn each(&self) -> [(&'static str, &str); 4] {
        [
            ("nginx", &self.nginx),
            ("HAProxy", &self.haproxy),
            ("rejoin", &self.rejoin),
            ("librejoin.so", &self.library),
        ]
    }

    pub(super) fn of(wanted: &Wanted<'_>) -> Self {
        Self {
            nginx: nginx(wanted),
            haproxy: haproxy(wanted),
            rejoin: rejoin(wanted),
            library: library(wanted),
        }
    }
}

/// Returns a comment with the reason for the number of sessions.
fn reason(wanted: &Wanted<'_>) -> String {
    let sessions = grouped(wanted.fifo_sessions.into());
    let mut reason = format!("# {sessions} sessions, first in, first out");
    if let Some(resumed) = wanted.fifo_percent {
        reason += &format!(": {} % of returning devices resume", percent(resumed));
    }
    if !wanted.fifo_is_enough && wanted.fifo_percent.is_some() {
        reason += ", less than asked for";
    }
    reason
}

fn nginx(wanted: &Wanted<'_>) -> String {
    let mebibytes = NGINX.bytes(wanted.fifo_sessions).div_ceil(1 << 20);
    format!(
        "{}\n\
         ssl_session_cache shared:SSL:{mebibytes}m;\n\
         ssl_session_timeout {}s;\n\
         # With tickets, the default, clients keep their sessions themselves and this cache is\n\
         # used only by those without; then rotate the keys (ssl_session_ticket_key).\n\
         ssl_session_tickets off;",
        reason(wanted),
        wanted.lifetime_s,
    )
}

fn haproxy(wanted: &Wanted<'_>) -> String {
    format!(
        "global\n    \
         {}\n    \
         # a block of about {} bytes for each, two or more with a client's certificate\n    \
         tune.ssl.cachesize {}\n    \
         tune.ssl.lifetime {}\n    \
         # With tickets, the default, clients keep their sessions themselves.\n    \
         ssl-default-bind-options no-tls-tickets",
        reason(wanted),
        HAPROXY.session_bytes,
        wanted.fifo_sessions,
        wanted.lifetime_s,
    )
}

/// Returns the settings of `librejoin.so`, in whole kilobytes.
fn library(wanted: &Wanted<'_>) -> String {
    let policy = if wanted.policy == Subject::Lru { "policy = lru\n" } else { "" };
    format!("{policy}capacity = {}KB", wanted.bytes.div_ceil(1 << 10))
}

/// Returns the command line of `rejoin serve`.
fn rejoin(wanted: &Wanted<'_>) -> String {
    let policy = match wanted.policy {
        Subject::Lru => "--resumption lru".to_owned(),
        policy => {
            let prediction = match policy {
                Subject::Predictive => "hint",
                Subject::Learned => "learned",
                _ => "both",
            };
            let grace_ms = wanted.server.grace_ms;
            format!("--resumption predictive --prediction {prediction} --grace {grace_ms}ms")
        }
    };
    let block_bytes = Settings::new(Capacity::Sessions(1)).block_bytes;
    let blocks = wanted.session_bytes.div_ceil(block_bytes);
    let capacity = u64::from(wanted.sessions) * u64::from(blocks);
    let tls = version(wanted.server.tls);
    let mut text = format!("rejoin serve --tls {tls} {policy} --capacity-sessions {capacity}");
    if blocks > 1 {
        text = format!("# {blocks} blocks of {block_bytes} bytes for each session\n{text}");
    }
    text
}
