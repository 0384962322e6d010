//! The outcome as a page in one file: bars of both sides' CPU time, and the figures.

use std::fmt;

use rejoin_report::{Escaped, Page};

use super::outcome::{Outcome, Row};
use super::text::{cells, head, notes};

const STYLE: &str = include_str!("../cost/page.css");

/// A page that asks nobody for anything.
pub fn html(outcome: &Outcome) -> String {
    let title = "What handshakes cost, full and resumed";
    Page { title, style: STYLE, script: "", body: Body(outcome) }.to_string()
}

struct Body<'a>(&'a Outcome);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "<p>Real handshakes in memory, client and server of one library in one thread. Resumed: \
             out of the server’s session cache. Ticket: by a stateless one.</p>\n",
        )?;
        for note in notes(self.0) {
            writeln!(f, "<p class=\"incomplete\">{}</p>", Escaped(&note))?;
        }
        f.write_str(
            "<h2>CPU time of a handshake</h2>\n<p>In microseconds. All pictures have one scale.</p>\n\
             <p class=\"key\"><span><i class=\"p0\"></i>server</span> <span><i \
             class=\"p1\"></i>client</span></p>\n<div class=\"small\">\n",
        )?;
        for kind in kinds(self.0) {
            self.bars(f, kind)?;
        }
        f.write_str("</div>\n")?;
        self.table(f)
    }
}

/// Version, key, and whether the client has certificates: what libraries are compared by.
type Kind = (&'static str, &'static str, bool);

fn kind(row: &Row) -> Kind {
    (row.tls, row.key, row.client_certificates)
}

fn kinds(outcome: &Outcome) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for row in &outcome.rows {
        if !kinds.contains(&kind(row)) {
            kinds.push(kind(row));
        }
    }
    kinds
}

const WIDTH: f64 = 440.0;
const NAMES: f64 = 118.0;
/// Beside a bar, for its figure.
const FIGURE: f64 = 48.0;
const TOP: f64 = 34.0;
const BAR: f64 = 15.0;
const STEP: f64 = BAR + 4.0;

impl Body<'_> {
    fn bars(&self, f: &mut fmt::Formatter<'_>, of: Kind) -> fmt::Result {
        let total = |row: &Row| row.server.cpu_us + row.client.cpu_us;
        let most = self.0.rows.iter().map(total).fold(1.0, f64::max);
        let scale = (WIDTH - NAMES - FIGURE) / most;
        let rows: Vec<&Row> = self.0.rows.iter().filter(|row| kind(row) == of).collect();
        let height = TOP + rows.len() as f64 * STEP + 4.0;
        let (tls, key, with) = of;
        let with = if with { ", client certificates" } else { "" };
        writeln!(
            f,
            r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="CPU time, TLS {tls} {key}{with}"><text class="heading" x="0" y="16">TLS {tls} {key}{with}</text>"#
        )?;
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + at as f64 * STEP;
            let (names, baseline) = (NAMES - 8.0, y + BAR - 3.5);
            let (stack, mode) = (row.stack, row.mode);
            let (server, client) = (row.server.cpu_us, row.client.cpu_us);
            let middle = NAMES + server * scale;
            let end = middle + client * scale + 6.0;
            writeln!(
                f,
                r#"<text class="quiet" x="{names}" y="{baseline:.1}" text-anchor="end">{stack} {mode}</text>
<rect class="p0" x="{NAMES}" y="{y:.1}" width="{:.1}" height="{BAR}"><title>{stack} {mode}: server {server:.0} µs</title></rect>
<rect class="p1" x="{middle:.1}" y="{y:.1}" width="{:.1}" height="{BAR}"><title>{stack} {mode}: client {client:.0} µs</title></rect>
<text class="quiet" x="{end:.1}" y="{baseline:.1}">{:.0}</text>"#,
                server * scale,
                client * scale,
                total(row)
            )?;
        }
        f.write_str("</svg>\n")
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "<h2>Figures</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Figures\">\n<table>\n<thead><tr>",
        )?;
        head(self.0).iter().try_for_each(|head| write!(f, "<th scope=\"col\">{head}"))?;
        f.write_str("</thead>\n<tbody>\n")?;
        for row in &self.0.rows {
            f.write_str("<tr>")?;
            cells(self.0, row).iter().try_for_each(|cell| write!(f, "<td>{}", Escaped(cell)))?;
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;

    #[test]
    fn a_page_has_its_bars_and_asks_nobody() {
        let mut outcome = outcome();
        let page = html(&outcome);
        assert_eq!(page.matches("<svg").count(), 1, "{page}");
        assert_eq!(page.matches("<rect").count(), 6, "a server's and a client's for each row");
        assert!(page.contains("openssl full: client 600 µs</title>"), "{page}");
        for outside in ["src=", "href=\"http", "@import", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        outcome.complete = false;
        outcome.rows.clear();
        let page = html(&outcome);
        assert!(page.contains("partial: interrupted") && !page.contains("<svg"), "{page}");
    }
}
