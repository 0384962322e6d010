//! The outcome as a page in one file: bars of both sides' CPU time, and the figures.

use std::fmt;

use rejoin_report::{BAR_STYLE, Bar, Bars, Escaped, Figures, Page, Part, distinct};

use super::outcome::{Outcome, Row};
use super::text::{cells, head, notes};

/// Returns the outcome as an HTML page. It needs no other file and makes no request.
pub fn html(outcome: &Outcome) -> String {
    let title = "What handshakes cost, full and resumed";
    Page { title, style: BAR_STYLE, script: "", body: Body(outcome) }.to_string()
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
        for kind in distinct(self.0.rows.iter().map(kind)) {
            self.bars(f, kind)?;
        }
        f.write_str("</div>\n")?;
        let rows: Vec<_> = self.0.rows.iter().map(|row| cells(self.0, row)).collect();
        let text = [1, 2, 3, 4];
        Figures { heading: "Figures", about: "", text: &text, head: &head(self.0), rows: &rows }
            .fmt(f)
    }
}

/// Version, key, and whether the client has certificates: what libraries are compared by.
type Kind = (&'static str, &'static str, bool);

fn kind(row: &Row) -> Kind {
    (row.tls, row.key, row.client_certificates)
}

impl Body<'_> {
    fn bars(&self, f: &mut fmt::Formatter<'_>, of: Kind) -> fmt::Result {
        let total = |row: &Row| row.server.cpu_us + row.client.cpu_us;
        let most = self.0.rows.iter().map(total).fold(1.0, f64::max);
        let bar = |row: &Row| {
            let name = format!("{} {}", row.stack, row.mode);
            let part = |colour, side, cpu_us| Part {
                colour,
                length: cpu_us,
                title: format!("{name}: {side} {cpu_us:.0} µs"),
                shown: String::new(),
            };
            let parts =
                vec![part(0, "server", row.server.cpu_us), part(1, "client", row.client.cpu_us)];
            Bar { name, parts, figure: format!("{:.0}", total(row)) }
        };
        let bars = self.0.rows.iter().filter(|row| kind(row) == of).map(bar).collect();
        let (tls, key, with) = of;
        let with = if with { ", client certificates" } else { "" };
        let heading = format!("TLS {tls} {key}{with}");
        let bars = Bars { subject: "CPU time", heading: &heading, most, groups: &[bars] };
        write!(f, "{bars}")
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
        outcome.ended.complete = false;
        outcome.rows.clear();
        let page = html(&outcome);
        assert!(page.contains("partial: interrupted") && !page.contains("<svg"), "{page}");
    }
}
