//! The page: Fig. 2 twice, by the clock and by the server's CPU time, and the figures.

use std::fmt;

use rejoin_report::{CHART_STYLE, Escaped, Figures, Line, Lines, Page, distinct};
use rejoin_trace::grouped;

use super::outcome::{Outcome, Row};
use crate::Ended;

/// The outcome as an HTML page. It needs no other file and makes no request.
pub fn html(outcome: &Outcome) -> String {
    let title = "Transactions a second by the number of devices";
    Page { title, style: CHART_STYLE, script: "", body: Body(outcome) }.to_string()
}

const HEAD: &str = "devices|resumption|offered a second|transactions a second|\
                    transactions per CPU-second|CPU µs each|busy %|resumed %|\
                    after the first of a run %|left out|failed";

struct Body<'a>(&'a Outcome);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        let (heading, unit) = ("Transactions", "for each second");
        self.figure(f, heading, unit, |row| row.transactions_per_s)?;
        let unit = "for each second of the server’s CPU time";
        self.figure(f, heading, unit, |row| row.transactions_per_cpu_s)?;
        let about = "Hit rates in percent: of all, and without the first connection of each run. Busy: CPU \
                     time of one core, in percent.";
        let head: Vec<_> = HEAD.split('|').collect();
        let cells =
            |row: &Row| [row.figures(), vec![grouped(row.left_out), grouped(row.failed)]].concat();
        let rows: Vec<_> = self.0.medians().iter().map(cells).collect();
        Figures { heading: "Figures", about, text: &[1], head: &head, rows: &rows }.fmt(f)
    }
}

impl Body<'_> {
    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { versions, cache_sessions, .. } = self.0;
        let (tls, cache) = (versions.name(), grouped(u64::from(*cache_sessions)));
        write!(
            f,
            "<p>Real TLS {tls} connections over loopback, each with one request, to a server of one \
             thread. A cache may hold {cache} sessions. "
        )?;
        if let Some(((_, is_seen), devices)) = self.0.saturation().zip(self.0.shown_saturation()) {
            let keep = if is_seen { "keep" } else { "would keep" };
            write!(f, "With tickets {devices} devices {keep} the thread busy. ")?;
        }
        f.write_str(if self.0.forgets_between_runs {
            "Devices begin each run without a session.</p>\n"
        } else {
            "Devices keep their session from one run to the next.</p>\n"
        })?;
        let Ended { complete, done, wanted, .. } = self.0.ended;
        if !complete {
            writeln!(f, "<p class=\"incomplete\">Incomplete: {done} of {wanted} servers.</p>")?;
        }
        for note in self.0.failed_notes().into_iter().chain(self.0.ended.notes()) {
            writeln!(f, "<p class=\"incomplete\">{}</p>", Escaped(&note))?;
        }
        Ok(())
    }

    fn figure(
        &self,
        f: &mut fmt::Formatter<'_>,
        heading: &str,
        unit: &str,
        value: impl Fn(&Row) -> f64,
    ) -> fmt::Result {
        let medians = self.0.medians();
        let line = |name: &'static str| {
            let rows = medians.iter().filter(|row| row.resumption == name);
            let mut points: Vec<_> = rows.map(|row| (row.devices, value(row))).collect();
            points.sort_by_key(|(devices, _)| *devices);
            Line { name, points }
        };
        let names = distinct(self.0.rows.iter().map(|row| row.resumption));
        let lines: Vec<_> = names.into_iter().map(line).collect();
        let at = self.0.saturation().map(|(devices, is_seen)| {
            let name =
                if is_seen { "saturated with tickets" } else { "would be saturated with tickets" };
            (devices, name)
        });
        let picture = Lines { heading, unit, across: "devices", at, lines: &lines };
        f.write_str(&picture.figure())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, row};
    use super::*;

    #[test]
    fn the_page_is_whole_and_says_if_rows_are_missing() {
        let mut outcome = outcome(vec![row("predictive", 50, 200.0), row("openssl", 50, 250.0)]);
        let page = html(&outcome);
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        assert_eq!(page.matches("<polyline").count(), 4, "{page}");
        assert_eq!(
            page.matches("<tr><th scope=\"row\">50<td class=\"text\">").count(),
            2,
            "{page}"
        );
        assert!(!page.contains("Incomplete") && !page.contains("src="), "{page}");
        outcome.ended.doubts = vec!["tickets 50: 9 % of the connections began late".to_owned()];
        assert!(html(&outcome).contains("incomplete\">* tickets 50: 9 % of"), "the doubt");
        outcome.ended.complete = false;
        outcome.ended.wanted = 3;
        assert!(html(&outcome).contains("Incomplete: 2 of 3 servers."));
    }
}
