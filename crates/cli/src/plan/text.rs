//! The answer as text.

use rejoin_report::{printable, trimmed};
use rejoin_sim::Rate;
use rejoin_sim::report;
use rejoin_sim::sizing::FIFO;
use rejoin_trace::grouped;

use super::advice::Wish;
use super::answer::{Answer, Beside, Recommendation, Row};
use super::findings::{OtherReading, SameBytes};
use super::logged::Logged;
use crate::arrivals::ToldBy;
use crate::units::{bytes, figure, percent, time};

/// Returns the whole answer, the table first. `sizes` are those to show.
pub(super) fn of(answer: &Answer<'_>, sizes: &[u32]) -> String {
    let mut text = vec![head(answer)];
    text.extend(answer.log.iter().flat_map(Logged::text));
    text.extend([table(answer, sizes).text_only(), notes(answer), String::new()]);
    text.push(answer.line.clone());
    text.extend(beside(answer));
    text.extend(answer.warnings.iter().map(|warning| format!("warning: {warning}")));
    if let Some(configuration) = &answer.configuration {
        for (name, lines) in configuration.each() {
            text.push(format!("\n{name}:"));
            text.extend(lines.lines().map(|line| format!("  {line}")));
        }
        text.push(format!("\n{}", lifetime(answer)));
    }
    trimmed(&text.join("\n"))
}

/// Returns how long sessions live, and why.
pub(super) fn lifetime(answer: &Answer<'_>) -> String {
    format!("sessions live {}: {}", time(answer.lifetime_s.into()), answer.lifetime_source)
}

pub(super) fn head(answer: &Answer<'_>) -> String {
    let title = printable(answer.title);
    let servers = match answer.servers {
        1 => String::new(),
        servers => format!(", {servers} servers (sizes are of each)"),
    };
    let (clients, per_s) =
        (answer.clients, answer.requests / answer.counted_s.max(f64::MIN_POSITIVE));
    let rate = if answer.counted_s > 0.0 {
        format!(", {} a second", figure(per_s))
    } else {
        String::new()
    };
    let arrivals = if answer.log.is_some() { "connections" } else { "requests" };
    let assumed = if answer.tls_told_by == ToldBy::Nobody { " (assumed)" } else { "" };
    format!(
        "{title}: {} clients, {} {arrivals}{rate}, {} of them of returning devices, TLS {}{assumed}{servers}",
        grouped(clients),
        report::thousands(answer.requests),
        report::thousands(answer.returning_requests),
        answer.tls
    )
}

/// The figures of every policy at each size to show.
pub(super) struct Figures {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Figures {
    fn text_only(self) -> String {
        rejoin_report::table(&[1], self.head, self.rows)
    }
}

pub(super) fn table(answer: &Answer<'_>, sizes: &[u32]) -> Figures {
    let with_cores = answer.costs.handshake.is_some();
    let mut head = vec!["sessions", "policy", "memory", "returning\ndevices %"];
    head.extend(answer.runs.then_some("after the first\nof each run %"));
    head.push("full handshakes\navoided /s");
    head.extend(with_cores.then_some("cores\nsaved"));
    let mut rows = Vec::new();
    let recommended = answer.recommendation.as_ref();
    let fifo = recommended.and_then(|best| best.fifo_sessions);
    let mut before = None;
    for row in &answer.rows {
        let cell = row.cell;
        let needed = cell.policy == FIFO && fifo == Some(cell.capacity);
        if !needed && !sizes.contains(&cell.capacity) {
            continue;
        }
        let first = before.replace(cell.capacity) != Some(cell.capacity);
        let best = recommended
            .is_some_and(|best| (best.policy, best.sessions) == (cell.policy, cell.capacity));
        let mut figures = vec![
            if first { grouped(cell.capacity.into()) } else { String::new() },
            format!("{}{}", cell.policy, if best { " ◀" } else { "" }),
            memory(row),
            rate(cell.rates.hit_after_first_of_device, answer.seeds),
        ];
        figures.extend(answer.runs.then(|| rate(cell.rates.hit_after_first_of_run, answer.seeds)));
        figures.push(row.avoided_per_s.map_or_else(nothing, figure));
        figures.extend(with_cores.then(|| row.cores_saved.map_or_else(nothing, figure)));
        rows.push(figures);
    }
    Figures { head, rows }
}

fn nothing() -> String {
    "–".to_owned()
}

fn memory(row: &Row<'_>) -> String {
    row.bytes.rejoin.or(row.bytes.openssl).map_or_else(nothing, bytes)
}

/// Returns the notes on the columns and their sources.
pub(super) fn notes(answer: &Answer<'_>) -> String {
    let costs = &answer.costs;
    let [nginx, haproxy] = &answer.peers;
    let mut notes = vec![format!(
        "memory: of rejoin's cache, all that its file takes; for fifo of OpenSSL's own, {} bytes a session, {} (nginx: {}, HAProxy: {})",
        report::thousands(costs.openssl_session_bytes),
        costs.openssl_session_bytes_source,
        report::thousands(nginx.session_bytes),
        report::thousands(haproxy.session_bytes),
    )];
    notes.push(match (&costs.handshake, &costs.source) {
        (Some(cost), Some(source)) => format!(
            "cores: {} µs for a full handshake, {} µs for a resumed one over TLS {}, {source}",
            figure(cost.full_us),
            figure(cost.resumed_us),
            cost.tls
        ),
        _ => "cores saved: give --full-us and --resumed-us, or --measure".to_owned(),
    });
    notes.join("\n")
}

fn details(answer: &Answer<'_>, best: &Recommendation) -> String {
    let mut text = format!("{} sessions, policy {}", grouped(best.sessions.into()), best.policy);
    if let Some(fails) = best.fails_at {
        text += &format!(" ({} are too few)", grouped(fails.into()));
    }
    let all = answer.unlimited.hit_after_first_of_device.map_or(0.0, |rate| rate.mean);
    text += &match best.wish {
        Wish::Knee => format!("; an unlimited cache resumes {} %", percent(all)),
        Wish::Target(target) => format!(
            "; asked for: {} % of the {} % that an unlimited cache resumes",
            percent(target),
            percent(all)
        ),
    };
    if let Some(avoided) = best.avoided_per_s {
        text += &format!("; {} full handshakes a second avoided", figure(avoided));
    }
    if let Some(cores) = best.cores_saved {
        text += &format!(", {} cores saved", figure(cores));
    }
    text
}

/// Returns what is told beside the line of the answer: the recommendation in detail, other sizes and caches, tickets, the
/// other half, other readings, counters. Tickets and counters are told if nothing is recommended, too.
pub(super) fn beside(answer: &Answer<'_>) -> Vec<String> {
    let best = answer.recommendation.as_ref();
    let mut lines = best.map(|best| recommended(answer, best)).unwrap_or_default();
    lines.push(format!(
        "tickets would resume {} % without memory, if all servers share their keys and keep them for {}",
        percent(answer.tickets_percent),
        time(answer.lifetime_s.into())
    ));
    let unseen = best.zip(answer.unseen.filter(|unseen| unseen.holds));
    lines.extend(unseen.map(|(best, unseen)| format!("checked: {}", unseen.text(best.sessions))));
    lines.extend(answer.other_readings.iter().map(other_reading));
    lines.extend(answer.counters.iter().map(|checked| format!("counter: {}", checked.text())));
    lines
}

fn recommended(answer: &Answer<'_>, best: &Recommendation) -> Vec<String> {
    let mut lines = vec![details(answer, best)];
    let around = [("half as much", &best.half), ("twice as much", &best.twice)];
    lines.extend(around.into_iter().filter_map(|(name, other)| Some(step(name, other.as_ref()?))));
    if best.wish == Wish::Knee
        && let Some(fifo) = best.fifo_sessions
    {
        let openssl = best.fifo_bytes.and_then(|of| of.openssl).map_or_else(nothing, bytes);
        lines.push(format!(
            "first in, first out needs {} sessions for as much: {openssl} in OpenSSL's own cache",
            grouped(fifo.into())
        ));
    }
    if !answer.same_bytes.is_empty() {
        let of = |other: &SameBytes| {
            let percent = percent(other.returning_percent);
            format!("{} {percent} % ({} sessions)", other.name, grouped(other.sessions.into()))
        };
        let others: Vec<String> = answer.same_bytes.iter().map(of).collect();
        lines.push(format!("other caches in {}: {}", bytes(best.bytes), others.join(", ")));
    }
    lines
}

fn step(name: &str, other: &Beside) -> String {
    let signed = |number: f64| {
        let sign = if number < 0.0 { "−" } else { "+" };
        format!("{sign}{}", figure(number.abs()))
    };
    let sign = if other.bytes < 0 { "−" } else { "+" };
    let mut text = format!(
        "{name} ({} sessions): {} points, {sign}{}",
        grouped(other.sessions.into()),
        signed(other.points),
        bytes(other.bytes.unsigned_abs())
    );
    if let Some(avoided) = other.avoided_per_s {
        text += &format!(", {} full handshakes avoided a second", signed(avoided));
    }
    if let Some(cores) = other.cores_saved {
        text += &format!(", {} cores saved", signed(cores));
    }
    text
}

fn other_reading(other: &OtherReading) -> String {
    let OtherReading { reading, connections, clients, differs, sessions, returning_percent } =
        other;
    let seen = format!("{} clients, {} connections", grouped(*clients), grouped(*connections));
    let answer = match (differs, sessions.zip(*returning_percent)) {
        (false, _) => "the same answer".to_owned(),
        (true, Some((sessions, resumed))) => {
            format!("{} sessions, {} %", grouped(sessions.into()), percent(resumed))
        }
        (true, None) => "nothing to recommend".to_owned(),
    };
    format!("if {reading}: {answer} ({seen})")
}

fn rate(rate: Option<Rate>, seeds: u32) -> String {
    match rate {
        None => nothing(),
        Some(Rate { mean, .. }) if seeds == 1 => format!("{mean:.1}"),
        Some(Rate { mean, sd }) => format!("{mean:.1} ± {sd:.1}"),
    }
}
