//! The outcome as a table for the terminal.

use rejoin_trace::grouped;

use super::outcome::{Outcome, Row, SideCost};
use crate::marked;

/// The table, and what is to be known of it.
pub fn text(outcome: &Outcome) -> String {
    let rows = outcome.rows.iter().map(|row| cells(outcome, row));
    let mut text = rejoin_report::table(&[0, 1, 2, 3, 4], head(outcome), rows);
    for note in notes(outcome) {
        text.push_str("\n\n");
        text.push_str(&note);
    }
    text
}

/// Returns the heads of the table's columns, without the two for instructions where these were not counted.
pub(super) fn head(outcome: &Outcome) -> Vec<&'static str> {
    let figures = ["server/s", "client/s", "server bytes", "client bytes"];
    let instructions = ["server instructions", "client instructions"];
    let mut head =
        vec!["stack", "TLS", "keys", "certificates", "handshake", "server µs", "client µs"];
    head.extend(figures);
    head.extend(instructions.into_iter().filter(|_| counts(outcome)));
    head
}

fn counts(outcome: &Outcome) -> bool {
    outcome.rows.iter().any(|row| row.server.user_instructions.is_some())
}

/// A row's.
pub(super) fn cells(outcome: &Outcome, row: &Row) -> Vec<String> {
    let us = |side: SideCost| {
        let SideCost { cpu_us, cpu_us_lowest, cpu_us_highest, .. } = side;
        format!("{cpu_us:.0} ({cpu_us_lowest:.0}–{cpu_us_highest:.0})")
    };
    let count = |number: f64| grouped(number.round() as u64);
    let mut cells = vec![
        row.stack.to_owned(),
        row.tls.to_owned(),
        row.key.to_owned(),
        if row.client_certificates { "both" } else { "server" }.to_owned(),
        marked(row.mode, row.kept_up),
        us(row.server),
        us(row.client),
        count(row.server.per_cpu_s),
        count(row.client.per_cpu_s),
        count(row.server.sent_bytes),
        count(row.client.sent_bytes),
    ];
    if counts(outcome) {
        let instructions = [row.server, row.client].map(|side| side.user_instructions);
        cells.extend(instructions.map(|of| of.map_or_else(|| "–".to_owned(), count)));
    }
    cells
}

/// Returns notes on the figures: the libraries, missing combinations, and whether the outcome is partial.
pub(super) fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    if !outcome.libraries.is_empty() {
        notes.push(format!(
            "µs of CPU time a handshake, the median of batches (lowest–highest), handshakes per \
             CPU-second, bytes sent: {}",
            outcome.libraries.join(", ")
        ));
    }
    if let Some(missing) = outcome.counters_missing {
        notes.push(format!("instructions: {}", missing.text()));
    }
    for missing in &outcome.missing {
        notes.push(format!("not available here: {}: {}", missing.what, missing.why));
    }
    let cut = outcome.ended.cut("interrupted before all batches were measured");
    notes.extend(cut.map(|why| format!("partial: {why}")));
    notes.extend(outcome.ended.notes());
    notes
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Missing;
    use super::super::outcome::tests::outcome;
    use super::*;

    #[test]
    fn every_row_and_note_is_shown() {
        let mut outcome = outcome();
        let whole = text(&outcome);
        assert!(whole.contains("300 (150–600)") && whole.contains("3,333"), "{whole}");
        assert!(whole.contains("instructions") && whole.contains("3,000,000"), "{whole}");
        assert!(!whole.contains("partial") && !whole.contains("full *"), "{whole}");
        outcome.rows[0].kept_up = false;
        assert!(text(&outcome).contains("  full *  "), "{}", text(&outcome));
        outcome.ended.complete = false;
        for row in &mut outcome.rows {
            (row.server.user_instructions, row.client.user_instructions) = (None, None);
        }
        outcome.missing.push(Missing { what: "x TLS 1.2".to_owned(), why: "old".to_owned() });
        let part = text(&outcome);
        assert!(!part.contains("instructions"), "{part}");
        assert!(part.contains("not available here: x TLS 1.2: old\n\npartial: "), "{part}");
    }
}
