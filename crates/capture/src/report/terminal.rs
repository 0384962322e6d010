//! The report for a terminal.

use rejoin_report::printable;
use rejoin_trace::grouped;

use super::{
    Average, Captured, NOT_MEASURED, Report, STEPS, UNKNOWN, WITHOUT_BYTES, WITHOUT_TIME, figure,
    percent_full, saved,
};
use crate::model::Model;
use crate::sharing::{
    Bytes, Cause, CauseCount, Findings, Measured, NotResumed, Party, PassedOver, Resumed, Times,
    Wire,
};

/// The longest service name shown, in characters.
const NAME_CHARS: usize = 44;

/// The report as text: what was read, Table I of paper 004, and the services used most.
pub fn table(report: &Report) -> String {
    let Report { captured, findings, .. } = report;
    let mut parts = vec![head(captured, findings)];
    if findings.ideal.handshakes == 0 {
        parts.push("no handshake counts: nothing to compare".to_owned());
        return parts.join("\n");
    }
    parts.push(steps(report));
    parts.push(notes(report));
    parts.push(measured(&report.findings.measured));
    if !report.findings.not_resumed.causes.is_empty() {
        parts.push(causes(&report.findings.not_resumed));
    }
    for (what, parties) in [
        ("server", &report.findings.not_resumed.by_server),
        ("client", &report.findings.not_resumed.by_client),
    ] {
        if !parties.is_empty() {
            parts.push(by_party(what, parties));
        }
    }
    if !findings.top_services.is_empty() {
        parts.push(services(report));
    }
    parts.join("\n\n")
}

fn head(captured: &Captured, findings: &Findings) -> String {
    let Captured { captures, bytes, frames, handshakes_seen, left_out, interrupted, .. } = captured;
    let mut text = format!(
        "{}, {:.1} MB, {}: {}, of which {} count",
        of(*captures, "capture"),
        *bytes as f64 / 1e6,
        of(*frames, "frame"),
        of(*handshakes_seen, "handshake"),
        grouped(findings.ideal.handshakes),
    );
    let PassedOver { duplicate, copy, unclassified, indirect, client_certificate } =
        findings.passed_over;
    let reasons = [
        (unclassified, "do not show whether they were resumed"),
        (duplicate, "stand in an earlier capture, or began on another path"),
        (copy, "are copies within a capture, by NAT, a proxy or another interface"),
        (indirect, "behind STARTTLS, a proxy or in a tunnel"),
        (client_certificate, "with a client certificate, or of sessions made with one"),
    ];
    for (count, reason) in reasons.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("\n  not counted: {} {reason}", grouped(*count)));
    }
    if findings.without_time > 0 {
        text.push_str(&format!("\n  of {} {WITHOUT_TIME}", grouped(findings.without_time)));
    }
    if !left_out.is_empty() {
        let left_out = of(left_out.len() as u64, "capture");
        text.push_str(&format!("\n  {left_out} not read, or not to the end"));
    }
    if *interrupted {
        text.push_str("\n  interrupted: what was read by then");
    }
    text + &format!(
        "\n{}, {}, {}; {}",
        of(findings.applications, "application"),
        of(findings.services, "service"),
        of(findings.hosts, "host"),
        resumed(&findings.resumed_by),
    )
}

/// `1 capture`, `2 captures`
fn of(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn resumed(by: &Resumed) -> String {
    let parts = [
        (by.ticket, "by ticket"),
        (by.id, "by session id"),
        (by.psk, "by pre-shared key"),
        (by.unknown, "by ticket or id"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, how)| format!("{} {how}", grouped(*count)))
        .collect();
    if parts.is_empty() {
        "none resumed".to_owned()
    } else {
        format!("resumed {}", parts.join(", "))
    }
}

fn steps(report: &Report) -> String {
    let head = ["", "full", "resumed", "full %", "latency ms", "energy µAh", "full, truly"];
    let steps = report.average.iter().zip(STEPS).enumerate();
    let rows =
        steps.filter(|(step, _)| report.is_measured(*step)).map(|(_, (average, (_, name)))| {
            let mut row = vec![name.to_owned()];
            row.extend(figures(average));
            row.push(average.realistic_full.map_or_else(|| UNKNOWN.to_owned(), grouped));
            row
        });
    let table = rejoin_report::table(&[0], head, rows);
    match report.findings.networks_given {
        true => table,
        false => format!("{table}\n name, AS (servers that share): {NOT_MEASURED}"),
    }
}

fn figures(average: &Average) -> [String; 5] {
    let Average { full, resumed, cost, .. } = average;
    [
        grouped(*full),
        grouped(*resumed),
        figure(percent_full(*full, *resumed), 1),
        figure(cost.latency_ms, 2),
        figure(cost.energy_uah, 2),
    ]
}

fn notes(report: &Report) -> String {
    let Report { findings, model, .. } = report;
    let [client, server] = findings.ideal.only_through_others();
    let through_others = match (findings.applications, findings.networks_given) {
        (..2, _) => {
            "Through another application's session: not measured, there is one application \
                     (--app-map, --apps-by)."
                .to_owned()
        }
        (_, false) => {
            format!("Avoidable only through another application's session: {}.", grouped(client))
        }
        (_, true) => format!(
            "Avoidable only through another application's session: {}; if servers share, {}.",
            grouped(client),
            grouped(server)
        ),
    };
    let mut lines = vec![
        through_others,
        "\"truly\": by the clock, within the lifetimes of sessions, each TLS 1.3 ticket once."
            .to_owned(),
        format!(
            "Average latency and energy of a handshake by the model \"{}\".",
            printable(&model.name)
        ),
    ];
    if report.lacks_bytes() {
        lines.push(format!("\"{UNKNOWN}\": {WITHOUT_BYTES}."));
    }
    lines.push(on_the_wire(&findings.wire));
    lines.join("\n")
}

fn on_the_wire(wire: &Wire) -> String {
    let takes = |bytes: Bytes| {
        format!("takes {:.0} bytes ({:.0} of the server)", bytes.sum(), bytes.from_server)
    };
    match (wire.full, wire.resumed) {
        (Some(full), Some(resumed)) => format!(
            "On the wire a full handshake {}, a resumed one {:.0} ({:.0}).",
            takes(full),
            resumed.sum(),
            resumed.from_server
        ),
        (Some(full), None) => {
            format!("On the wire a full handshake {}, a resumed one is not measured.", takes(full))
        }
        (None, Some(resumed)) => {
            format!(
                "On the wire a resumed handshake {}, a full one is not measured.",
                takes(resumed)
            )
        }
        (None, None) => "On the wire no whole handshake is measured.".to_owned(),
    }
}

/// The capture's own times, which the model's stand beside.
fn measured(measured: &[Measured]) -> String {
    let head = ["measured here", "full", "median ms", "bytes", "resumed", "median ms", "bytes"];
    let rows = measured.iter().map(|Measured { protocol, full, resumed, .. }| {
        let mut row = vec![(*protocol).to_owned()];
        for Times { handshakes, median_ms, bytes, .. } in [full, resumed] {
            row.extend([grouped(*handshakes), figure(*median_ms, 1), figure(*bytes, 0)]);
        }
        row
    });
    rejoin_report::table(&[0], head, rows)
}

fn causes(not_resumed: &NotResumed) -> String {
    let head = ["why full", "handshakes", "servers", "clients", "what helps"];
    let rows = not_resumed.causes.iter().map(|count| {
        let CauseCount { cause, handshakes, servers, clients, .. } = count;
        let mut row = vec![cause.name().to_owned()];
        row.extend([handshakes, servers, clients].map(|count| grouped(*count)));
        row.push(cause.mend().to_owned());
        row
    });
    rejoin_report::table(&[0, 4], head, rows)
}

fn by_party(what: &str, parties: &[Party]) -> String {
    let head = [what, "resumed", "could have been", "most of them"];
    let rows = parties.iter().map(|party| {
        let cause = party.main_cause().map_or("", Cause::name);
        let counts = [party.resumed, party.full].map(grouped);
        let mut row = vec![printable(&party.address)];
        row.extend(counts);
        row.push(cause.to_owned());
        row
    });
    rejoin_report::table(&[0, 3], head, rows)
}

fn services(report: &Report) -> String {
    let head = [
        "service",
        "appli-\ncations",
        "hosts",
        "hand-\nshakes",
        "full",
        "shared on\nthe client",
        "and between\nservers",
        "latency saved ms,\non the client",
        "and between\nservers",
    ];
    let rows = report.findings.top_services.iter().map(|service| {
        let [now, client, server] = report.average_of(service).map(|cost| cost.latency_ms);
        let counts = [
            service.applications,
            service.hosts.len() as u64,
            service.handshakes,
            service.full_observed,
            service.full_shared_client,
            service.full_shared_server,
        ];
        let mut row = vec![printable(&shortened(&service.name))];
        row.extend(counts.map(grouped));
        row.extend([client, server].map(|shared| figure(saved(now, shared), 0)));
        if !report.findings.networks_given {
            // Between servers.
            [6, 8].into_iter().for_each(|place| UNKNOWN.clone_into(&mut row[place]));
        }
        row
    });
    rejoin_report::table(&[0], head, rows)
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME_CHARS - 1).collect();
    kept + "…"
}

/// Table I for given counts of full and resumed handshakes, step by step.
pub fn counts_table(counts: &[(u64, u64)], model: &Model) -> String {
    let head = ["", "full", "resumed", "full %", "latency ms", "energy µAh"];
    let rows = counts.iter().enumerate().map(|(at, (full, resumed))| {
        // Counts alone say nothing of bytes.
        let cost = model.average(*full as f64, *resumed as f64, None);
        let average =
            Average { step: "", full: *full, resumed: *resumed, realistic_full: None, cost };
        let mut row = vec![(at + 1).to_string()];
        row.extend(figures(&average));
        row
    });
    let table = rejoin_report::table(&[0], head, rows);
    match model.counts_bytes() {
        true => format!("{table}\n\"{UNKNOWN}\": {WITHOUT_BYTES}."),
        false => table,
    }
}
