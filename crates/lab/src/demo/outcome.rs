//! The figures of a demonstration.

use serde::Serialize;

use crate::fleet::{failed_percent, failure};
use crate::{Conditions, Ended, conditions};

/// The result of a demonstration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How the demonstration ended.
    pub ended: Ended,
    /// The servers' results, in the order in which they were measured.
    pub rows: Vec<Row>,
}

impl Outcome {
    /// Returns footnotes to the figures, and why some are missing.
    pub fn notes(&self) -> Vec<String> {
        let cut = self.ended.cut("interrupted").map(cut);
        cut.into_iter().chain(notes(&self.rows)).collect()
    }

    /// Returns what is wrong with the row in which most connections failed, if they are so many that its figures are wrong.
    pub fn failure(&self) -> Option<String> {
        let percent = |row: &&Row| failed_percent(row.failed, row.handshakes());
        let worst = self.rows.iter().max_by(|a, b| percent(a).total_cmp(&percent(b)))?;
        let why = worst.failed_mostly.as_deref();
        let why = failure(worst.failed, worst.handshakes(), why)?;
        Some(format!("TLS {} {}: {why}", worst.tls, worst.resumption))
    }
}

/// The mark of rows at half the speed.
const SLOWED: &str = " ½";

/// Returns a footnote that says why servers are missing.
pub(super) fn cut(why: &str) -> String {
    format!("incomplete: {why}")
}

/// Returns footnotes to rows.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let slowed = rows.iter().any(|row| row.slowed).then(|| {
        format!(
            "{} Measured at half the speed, because the machine did not keep up at first: half as many handshakes/s.",
            SLOWED.trim()
        )
    });
    let doubt = |row: &Row| row.conditions.doubt(format!("TLS {} {}", row.tls, row.resumption));
    let doubts: Vec<String> = rows.iter().filter_map(doubt).collect();
    let failed = |row: &Row| {
        let Row { tls, resumption, failed, failed_mostly, .. } = row;
        let why = failed_mostly.as_deref()?;
        Some(format!("TLS {tls} {resumption}: {failed} connections failed, most of them: {why}"))
    };
    let failed = rows.iter().filter_map(failed);
    slowed.into_iter().chain(failed).chain(conditions::notes(&doubts)).collect()
}

/// One server's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The version: `1.2` or `1.3`.
    pub tls: &'static str,
    /// How sessions were resumed, and by which servers where there were several.
    pub resumption: &'static str,
    /// Servers.
    pub servers: usize,
    /// The row in words.
    pub note: &'static str,
    /// Percent resumed, the first connection of each run left out, as the clients saw it.
    pub hit_after_first_of_run: f64,
    /// The same of devices that lie, if any do.
    pub liars_hit_after_first_of_run: Option<f64>,
    /// How much faster than real time the devices were.
    pub speed_up: f64,
    /// True if that is half of what was asked for, because the machine did not keep up at first.
    pub slowed: bool,
    /// Handshakes a second.
    pub handshakes_per_s: f64,
    /// CPU time of the server per connection, in microseconds.
    pub server_cpu_us: f64,
    /// Server memory per session, in bytes; zero where the server keeps none.
    pub cache_bytes_per_session: f64,
    /// Sessions the server could keep.
    pub capacity_sessions: u64,
    /// Handshakes of the whole run that the clients call resumed.
    pub client_resumed: u64,
    /// Handshakes of the whole run that the server calls resumed.
    pub server_resumed: u64,
    /// Handshakes of the whole run that the clients call full.
    pub client_full: u64,
    /// Handshakes of the whole run that the server calls full.
    pub server_full: u64,
    /// Median time of a handshake, in microseconds: resumed ones, or full ones if there are none.
    pub handshake_p50_us: u64,
    /// Connections that failed.
    pub failed: u64,
    /// The reason of most of them.
    pub failed_mostly: Option<String>,
    /// The conditions under which all this was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
}

impl Row {
    /// The names of [`Self::figures`].
    pub const HEAD: [&str; 7] = [
        "TLS",
        "resumption",
        "resumed %",
        "handshakes/s",
        "server CPU µs",
        "bytes/session",
        "note",
    ];
    /// The places of those that are text.
    pub const TEXT: [usize; 3] = [0, 1, 6];

    fn handshakes(&self) -> u64 {
        self.client_full + self.client_resumed
    }

    /// Returns its name with its marks, which [`notes`] explains.
    pub(super) fn marked(&self) -> String {
        let slow = if self.slowed { SLOWED } else { "" };
        self.conditions.marked(&format!("{}{slow}", self.resumption))
    }

    /// Returns the figures that tables show.
    pub fn figures(&self) -> Vec<String> {
        vec![
            self.tls.to_owned(),
            self.marked(),
            format!("{:.1}", self.hit_after_first_of_run),
            format!("{:.0}", self.handshakes_per_s),
            format!("{:.0}", self.server_cpu_us),
            format!("{:.0}", self.cache_bytes_per_session),
            self.note.to_owned(),
        ]
    }
}
