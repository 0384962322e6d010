//! The answer as text.

use rejoin_report::{printable, trimmed};
use rejoin_sim::Rate;
use rejoin_sim::report;
use rejoin_sim::sizing::{FIFO, Found};
use rejoin_trace::grouped;

use super::answer::{Answer, Recommendation, Row};
use crate::units::{bytes, figure, percent, time};

/// Returns the whole answer, the table first.
pub(super) fn of(answer: &Answer<'_>, found: &Found) -> String {
    let mut text = vec![head(answer), table(answer, found), notes(answer), String::new()];
    text.push(answer.line.clone());
    if let Some(best) = &answer.recommendation {
        text.push(details(answer, best));
    }
    if let Some(configuration) = &answer.configuration {
        for (name, lines) in [
            ("nginx", &configuration.nginx),
            ("HAProxy", &configuration.haproxy),
            ("rejoin", &configuration.rejoin),
        ] {
            text.push(format!("\n{name}:"));
            text.extend(lines.lines().map(|line| format!("  {line}")));
        }
        text.push(format!(
            "\nsessions live {}: {}",
            time(answer.lifetime_s.into()),
            answer.lifetime_source
        ));
    }
    trimmed(&text.join("\n"))
}

fn head(answer: &Answer<'_>) -> String {
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
    format!(
        "{title}: {} clients, {} requests{rate}, TLS {}{servers}",
        grouped(clients),
        report::thousands(answer.requests),
        answer.tls
    )
}

fn table(answer: &Answer<'_>, found: &Found) -> String {
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
        if !needed && !found.sizes.contains(&cell.capacity) {
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
    rejoin_report::table(&[1], head, rows)
}

fn nothing() -> String {
    "–".to_owned()
}

fn memory(row: &Row<'_>) -> String {
    row.bytes.rejoin.or(row.bytes.openssl).map_or_else(nothing, bytes)
}

/// Returns the notes on the columns and their sources.
fn notes(answer: &Answer<'_>) -> String {
    let costs = &answer.costs;
    let [nginx, haproxy] = &answer.peers;
    let mut notes = vec![format!(
        "memory: of rejoin's cache; for fifo of OpenSSL's own, {} bytes a session, {} (nginx: {}, HAProxy: {})",
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
    text += &format!(
        "; asked for: {} % of the {} % that an unlimited cache resumes",
        percent(answer.target_percent),
        percent(answer.unlimited.hit_after_first_of_device.map_or(0.0, |rate| rate.mean))
    );
    if let Some(avoided) = best.avoided_per_s {
        text += &format!("; {} full handshakes a second avoided", figure(avoided));
    }
    if let Some(cores) = best.cores_saved {
        text += &format!(", {} cores saved", figure(cores));
    }
    text
}

fn rate(rate: Option<Rate>, seeds: u32) -> String {
    match rate {
        None => nothing(),
        Some(Rate { mean, .. }) if seeds == 1 => format!("{mean:.1}"),
        Some(Rate { mean, sd }) => format!("{mean:.1} ± {sd:.1}"),
    }
}
