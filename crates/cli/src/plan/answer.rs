//! The complete answer of `rejoin plan`.

use rejoin_sim::report::thousands;
use rejoin_sim::sizing::{FIFO, HAPROXY, Lifetime, NGINX, Need, Peer, Survey};
use rejoin_sim::{Cell, HitRates, Subject};
use rejoin_trace::grouped;
use serde::Serialize;

use super::Arguments;
use super::advice::{Wish, is_shipped};
use super::configuration::{Configuration, Wanted};
use super::costs::{Costs, version};
use super::findings::{Finder, Findings, OVER_TLS_13, OtherReading, SameBytes};
use super::logged::{Checked, Logged};
use super::memory::Memory;
use super::trials::returning;
use super::unseen::{self, Unseen};
use crate::access_log::Logs;
use crate::arrivals::ToldBy;
use crate::units::{bytes, percent, time};

/// The default bytes of a session's block, which are the cache's default.
pub(super) const SESSION_BYTES: u32 = 192;

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a> {
    pub(super) title: &'a str,
    /// True unless the run was interrupted.
    pub(super) complete: bool,
    pub(super) seeds: u32,
    pub(super) tls: &'static str,
    pub(super) tls_told_by: ToldBy,
    pub(super) servers: u16,
    pub(super) clients: u64,
    pub(super) requests: f64,
    /// Those of them that are not the first of their device.
    pub(super) returning_requests: f64,
    pub(super) counted_s: f64,
    /// True if clients announce when they return.
    pub(super) hints: bool,
    /// True if the starts of runs are known; otherwise there is no rate after the first of each run.
    pub(super) runs: bool,
    /// The access logs that were read.
    pub(super) log: Option<Logged>,
    /// The answers if the log is read in other ways.
    pub(super) other_readings: Vec<OtherReading>,
    /// The counters that the log was compared with.
    pub(super) counters: Vec<Checked>,
    pub(super) unlimited: HitRates,
    pub(super) target_percent: f64,
    /// The resumptions to reach, in percent of returning devices.
    pub(super) goal_percent: f64,
    pub(super) costs: Costs,
    pub(super) session_bytes: u32,
    pub(super) peers: [PeerBytes; 2],
    pub(super) rows: Vec<Row<'a>>,
    pub(super) needs: &'a [Need],
    pub(super) recommendation: Option<Recommendation>,
    pub(super) line: String,
    /// The percentage of returning devices that stateless tickets resume: all that come back before their session's lifetime
    /// ends. Servers that share the keys of tickets resume each other's.
    pub(super) tickets_percent: f64,
    /// FIFO in other caches that have as many bytes as the recommended one.
    pub(super) same_bytes: &'a [SameBytes],
    /// The check on the half that sizes are not made from; none for arrivals that are drawn.
    pub(super) unseen: Option<&'a Unseen>,
    /// The reasons to doubt the answer.
    pub(super) warnings: Vec<String>,
    pub(super) lifetime: Lifetime,
    pub(super) lifetime_s: u32,
    pub(super) lifetime_source: String,
    pub(super) configuration: Option<Configuration>,
}

/// The cache of another server.
#[derive(Debug, Serialize)]
pub(super) struct PeerBytes {
    pub(super) name: &'static str,
    pub(super) session_bytes: f64,
    pub(super) source: &'static str,
}

/// A policy at a capacity.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    #[serde(flatten)]
    pub(super) cell: &'a Cell,
    pub(super) avoided_per_s: Option<f64>,
    pub(super) cores_saved: Option<f64>,
    pub(super) bytes: Memory,
}

/// The recommended cache.
#[derive(Debug, Serialize)]
pub(super) struct Recommendation {
    /// Where more buys little, or the target that it reaches.
    pub(super) wish: Wish,
    pub(super) policy: Subject,
    pub(super) sessions: u32,
    pub(super) bytes: u64,
    /// The largest size tried that does not reach the target.
    pub(super) fails_at: Option<u32>,
    pub(super) returning_percent: f64,
    pub(super) avoided_per_s: Option<f64>,
    pub(super) cores_saved: Option<f64>,
    /// Half and twice the size, compared with it.
    pub(super) half: Option<Beside>,
    pub(super) twice: Option<Beside>,
    /// The sessions that FIFO needs to reach the same.
    pub(super) fifo_sessions: Option<u32>,
    /// The bytes of those in OpenSSL's, nginx's and HAProxy's caches.
    pub(super) fifo_bytes: Option<Memory>,
}

/// Another size beside the recommended one: what it has more, or less.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Beside {
    pub(super) sessions: u32,
    pub(super) bytes: i64,
    pub(super) points: f64,
    pub(super) avoided_per_s: Option<f64>,
    pub(super) cores_saved: Option<f64>,
}

impl<'a> Answer<'a> {
    pub(super) fn of(
        arguments: &Arguments,
        finder: &Finder<'a>,
        findings: &'a Findings,
        checked: Result<Vec<Checked>, String>,
    ) -> anyhow::Result<Self> {
        let (sizing, found) = (finder.sizing, finder.found);
        let (simulation, survey) = (sizing.simulation, sizing.survey);
        let rows = findings.cells.iter().map(|cell| row(finder, survey, cell));
        let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
        let recommendation = recommend(finder, findings, &rows)?;
        let is_given = arguments.lifetime.is_some();
        let lifetime = survey.lifetime;
        let configuration = recommendation.as_ref();
        let configuration = configuration.map(|best| configured(arguments, finder, &rows, best));
        let configuration = configuration.transpose()?;
        let log = finder.logs.map(Logged::of);
        let mut warnings = warnings(log.as_ref(), survey.clients, &checked, findings);
        warnings.extend(few_return(survey));
        warnings.extend(too_old(survey, is_given));
        warnings.extend(another_tls(finder, findings));
        let peer = |Peer { name, session_bytes, source }| PeerBytes { name, session_bytes, source };
        Ok(Self {
            title: &simulation.title,
            complete: finder.is_complete(),
            seeds: simulation.seeds,
            tls: version(simulation.server.tls),
            tls_told_by: finder.tls_told_by,
            servers: simulation.server.servers,
            clients: survey.clients,
            requests: survey.requests,
            returning_requests: survey.returning,
            counted_s: survey.counted_s,
            hints: survey.hints,
            runs: survey.runs,
            warnings,
            log,
            other_readings: findings.others.clone(),
            counters: checked.unwrap_or_default(),
            unlimited: survey.unlimited,
            target_percent: sizing.target_percent,
            goal_percent: sizing.goal(),
            session_bytes: arguments.session_bytes,
            peers: [peer(NGINX), peer(HAPROXY)],
            rows,
            needs: &found.needs,
            line: line(recommendation.as_ref(), finder, findings),
            recommendation,
            tickets_percent: survey.tickets_percent(),
            same_bytes: &findings.same_bytes,
            unseen: findings.unseen.as_ref().and_then(|unseen| unseen.as_ref().ok()),
            lifetime,
            lifetime_s: lifetime.seconds,
            lifetime_source: lifetime_source(&lifetime, is_given, survey.counted_s),
            configuration,
            costs: finder.sizer.costs.clone(),
        })
    }
}

fn configured(
    arguments: &Arguments,
    finder: &Finder<'_>,
    rows: &[Row<'_>],
    best: &Recommendation,
) -> anyhow::Result<Configuration> {
    let fifo = best.fifo_sessions.unwrap_or(best.sessions);
    let mut cells = rows.iter().map(|row| row.cell);
    let fifo_cell = cells.find(|cell| (cell.policy, cell.capacity) == (FIFO, fifo));
    let given = finder.sizer.given(best.policy, best.sessions)?;
    Ok(Configuration::of(&Wanted {
        policy: best.policy,
        sessions: best.sessions,
        bytes: given.unwrap_or(best.bytes),
        fifo_sessions: fifo,
        fifo_percent: fifo_cell.map(returning),
        fifo_is_enough: best.fifo_sessions.is_some(),
        lifetime_s: finder.sizing.survey.lifetime.seconds,
        session_bytes: arguments.session_bytes,
        server: &finder.sizing.simulation.server,
    }))
}

fn row<'a>(finder: &Finder<'_>, survey: &Survey, cell: &'a Cell) -> anyhow::Result<Row<'a>> {
    let avoided_per_s = survey.avoided_per_s(cell);
    let cores_saved = avoided_per_s.and_then(|avoided| finder.sizer.costs.cores(avoided));
    let bytes = finder.sizer.memory(cell.policy, cell.capacity)?;
    Ok(Row { cell, avoided_per_s, cores_saved, bytes })
}

fn recommend(
    finder: &Finder<'_>,
    findings: &Findings,
    rows: &[Row<'_>],
) -> anyhow::Result<Option<Recommendation>> {
    let Some(chosen) = findings.chosen else { return Ok(None) };
    let of = |size: u32| {
        let mut rows = rows.iter();
        rows.find(|row| (row.cell.policy, row.cell.capacity) == (chosen.policy, size))
    };
    let Some(row) = of(chosen.sessions) else { return Ok(None) };
    let bytes = |row: &Row<'_>| row.bytes.rejoin.unwrap_or_default();
    let beside = |size: u32| {
        let other = of(size).filter(|_| size != chosen.sessions)?;
        let more = |of: fn(&Row<'_>) -> Option<f64>| Some(of(other)? - of(row)?);
        Some(Beside {
            sessions: size,
            bytes: bytes(other) as i64 - bytes(row) as i64,
            points: returning(other.cell) - returning(row.cell),
            avoided_per_s: more(|row| row.avoided_per_s),
            cores_saved: more(|row| row.cores_saved),
        })
    };
    let fifo_sessions = findings.fifo_sessions;
    let fifo_bytes = fifo_sessions.map(|sessions| finder.sizer.memory(FIFO, sessions));
    Ok(Some(Recommendation {
        wish: finder.wish,
        policy: chosen.policy,
        sessions: chosen.sessions,
        bytes: bytes(row),
        fails_at: chosen.fails_at,
        returning_percent: chosen.percent,
        avoided_per_s: row.avoided_per_s,
        cores_saved: row.cores_saved,
        half: beside((chosen.sessions / 2).max(1)),
        twice: beside(chosen.sessions.saturating_mul(2)),
        fifo_sessions,
        fifo_bytes: fifo_bytes.transpose()?,
    }))
}

/// Returns what speaks against the answer.
fn warnings(
    log: Option<&Logged>,
    clients: u64,
    checked: &Result<Vec<Checked>, String>,
    findings: &Findings,
) -> Vec<String> {
    let mut warnings = log.map(Logged::warnings).unwrap_or_default();
    warnings.extend(log.and_then(|log| log.few_clients(clients)));
    match checked {
        Ok(counters) => warnings.extend(counters.iter().filter_map(Checked::warning)),
        Err(why) => warnings.push(why.clone()),
    }
    let Some(chosen) = findings.chosen else { return warnings };
    match &findings.unseen {
        Some(Err(why)) => warnings.extend(why.warning(log.map(|log| log.requests))),
        Some(Ok(unseen)) if !unseen.holds => warnings.push(format!(
            "the second half is unlike the first, so the future may be unlike both: {}; record for longer, or plan for \
             the busiest time alone",
            unseen.text(chosen.sessions)
        )),
        _ => {}
    }
    warnings
}

/// Returns the warning of a version of TLS that is not known, or not that of most connections of the log.
fn another_tls(finder: &Finder<'_>, findings: &Findings) -> Option<String> {
    let version = version(finder.sizing.simulation.server.tls);
    let of_log = finder.logs.and_then(Logs::is_of_tls_13);
    match (finder.tls_told_by, of_log) {
        (ToldBy::Nobody, _) => {
            let more = if needs_more_over_tls_13(findings) { ", and more are needed" } else { "" };
            Some(format!(
                "nothing tells the version of TLS: {version} is assumed; over TLS 1.3 each handshake makes two sessions{more}: \
                 give --tls"
            ))
        }
        (ToldBy::Option | ToldBy::Plan, Some(is_13)) if is_13 != (version == "1.3") => {
            let of_log = if is_13 { "1.3" } else { "1.2" };
            Some(format!("most connections of the log are of TLS {of_log}, and not {version}"))
        }
        _ => None,
    }
}

/// Returns true if the answer for TLS 1.3 has more sessions than the one that is recommended.
fn needs_more_over_tls_13(findings: &Findings) -> bool {
    let over_13 = findings.others.iter().find(|other| other.reading == OVER_TLS_13);
    let sessions = over_13.and_then(|other| other.sessions);
    sessions > findings.chosen.map(|chosen| chosen.sessions)
}

/// Returns the recommendation in one line.
fn line(best: Option<&Recommendation>, finder: &Finder<'_>, findings: &Findings) -> String {
    let found = finder.found;
    let largest = found.largest().unwrap_or_default();
    let Some(best) = best else { return nothing_recommended(finder, findings, largest) };
    let percent = percent(best.returning_percent);
    if best.wish == Wish::Knee {
        let sessions = grouped(best.sessions.into());
        let mut text = format!(
            "{sessions} sessions, {}: {percent} % of returning devices resume",
            bytes(best.bytes)
        );
        if let Some(twice) = &best.twice {
            text += &format!("; twice as much buys {:.1} points", twice.points);
        }
        return text;
    }
    let ours = format!("{}: {percent} % of returning devices resume", bytes(best.bytes));
    let openssl = |sessions| bytes(finder.sizer.costs.openssl_bytes(sessions));
    match (best.fifo_sessions, found.need(FIFO)) {
        (_, None) => ours,
        (Some(sessions), _) => {
            format!("{ours}; OpenSSL's own cache would need {}", openssl(sessions))
        }
        (None, _) => {
            format!("{ours}; OpenSSL's own cache would not reach it below {}", openssl(largest))
        }
    }
}

fn nothing_recommended(finder: &Finder<'_>, findings: &Findings, largest: u32) -> String {
    if !finder.is_complete() {
        return "interrupted: nothing is recommended".to_owned();
    }
    let shipped = findings.cells.iter().filter(|cell| is_shipped(cell.policy));
    let best = shipped.max_by(|one, other| returning(one).total_cmp(&returning(other)));
    match best {
        None => "nothing is recommended: give --policies one of both, learned, lru, predictive"
            .to_owned(),
        Some(cell) => format!(
            "no size up to {} sessions is enough for {} % of returning devices: {} % resume with {}; \
             try larger --capacities or a smaller --target",
            grouped(largest.into()),
            percent(finder.sizing.goal()),
            percent(returning(cell)),
            cell.policy,
        ),
    }
}

/// Returns the warning of rates that rest on little.
fn few_return(survey: &Survey) -> Option<String> {
    (survey.returning < unseen::FEWEST).then(|| {
        format!(
            "returning devices made only {} of the {} connections: so few tell little about rates and sizes; record for longer",
            thousands(survey.returning),
            thousands(survey.requests)
        )
    })
}

/// Returns the warning of a lifetime that costs much, at any size of the cache.
fn too_old(survey: &Survey, is_given: bool) -> Option<String> {
    let lifetime = &survey.lifetime;
    (lifetime.lost_percent > Lifetime::MOST_LOST_PERCENT).then(|| {
        format!(
            "{} % of returning devices that have a session find it older than {}: at most {} % resume at any size; {}",
            percent(lifetime.lost_percent),
            time(lifetime.seconds.into()),
            percent(survey.returning_percent()),
            for_longer(lifetime, is_given)
        )
    })
}

/// Returns what would let sessions live for longer.
pub(super) fn for_longer(lifetime: &Lifetime, is_given: bool) -> &'static str {
    match (lifetime.renewed, is_given) {
        (false, true) => {
            "give a longer --lifetime, or use TLS 1.3, which renews sessions at each visit"
        }
        (false, false) => "TLS 1.3 renews sessions at each visit",
        (true, true) => "give a longer --lifetime",
        (true, false) => "TLS 1.3 allows no longer lifetime",
    }
}

/// Returns how the lifetime was found, and what it costs.
fn lifetime_source(found: &Lifetime, is_given: bool, counted_s: f64) -> String {
    let age = if found.renewed {
        "since the request before, as each makes new tickets"
    } else {
        "since its full handshake, as OpenSSL counts"
    };
    let which = if is_given {
        "as given".to_owned()
    } else if found.lost_percent > Lifetime::MOST_LOST_PERCENT {
        "the longest allowed".to_owned()
    } else if !Lifetime::is_told(found.seconds, counted_s) {
        format!(
            "the longest allowed, as arrivals of {} are too short to tell that less is enough",
            time((counted_s / 60.0).round() as u64 * 60)
        )
    } else {
        "the shortest round time that costs at most 1 % of resumptions".to_owned()
    };
    format!("{which}; {} % find their session too old, {age}", percent(found.lost_percent))
}

#[cfg(test)]
mod tests {
    use rejoin_cache::{Capacity, Settings};

    #[test]
    fn a_session_has_the_block_of_the_cache() {
        assert_eq!(super::SESSION_BYTES, Settings::new(Capacity::Sessions(1)).block_bytes);
    }
}
