//! The demonstration's page: two charts and the figures, in one file without outside requests.

use std::fmt;
use std::io::Write;
use std::path::Path;

use rejoin_report::{BAR_STYLE, Bar, Bars, Escaped, Figures, Page, Part, distinct};
use rejoin_store::NewFile;

use super::outcome::{Row, cut, notes};
use crate::Error;

/// The figures that a page shows, and the population that they are of.
pub(super) struct Shown<'a> {
    pub(super) devices: u64,
    pub(super) capacity_share: f64,
    pub(super) rows: &'a [Row],
    /// Why servers are missing, if any are.
    pub(super) incomplete: Option<String>,
}

/// Writes the page.
pub(super) fn write(path: &Path, shown: &Shown<'_>) -> Result<(), Error> {
    // Written beside and renamed: a reader sees a whole page at any time.
    let written = NewFile::beside(path, 0o666).and_then(|new| {
        new.file().write_all(html(shown).as_bytes())?;
        new.finish()
    });
    written.map_err(|source| Error::file(path.to_owned(), source))
}

fn html(shown: &Shown<'_>) -> String {
    let title = "Who resumes, and what it costs";
    Page { title, style: BAR_STYLE, script: "", body: shown }.to_string()
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { devices, capacity_share, rows, incomplete } = self;
        let capacity = rows.first().map_or(0, |row| row.capacity_sessions);
        write!(
            f,
            "<p>{devices} devices, each coming back every 15, 30 or 60 seconds while it runs, against one \
             TLS server that may keep {capacity} sessions: {capacity_share} of the devices running at a \
             time; or against three servers behind a balancer, or a server that another replaces halfway. The same recorded arrivals for every row; real handshakes on loopback. Of connections \
             resumed, the first of each run is left out.</p>\n\
             <p class=\"key\">"
        )?;
        for (colour, tls) in distinct(rows.iter().map(|row| row.tls)).iter().enumerate() {
            write!(f, "<span><i class=\"p{colour}\"></i>TLS {tls}</span> ")?;
        }
        f.write_str("</p>\n<div class=\"small\">\n")?;
        self.bars(f, "Connections resumed, in percent", "%", |row| row.hit_after_first_of_run)?;
        self.bars(f, "Server CPU per connection, in µs", "µs", |row| row.server_cpu_us)?;
        f.write_str("</div>\n")?;
        for note in incomplete.iter().map(|why| cut(why)).chain(notes(rows)) {
            writeln!(f, "<p class=\"incomplete\">{}</p>", Escaped(&note))?;
        }
        let rows: Vec<_> = rows.iter().map(Row::figures).collect();
        Figures { heading: "Figures", about: "", text: &Row::TEXT, head: &Row::HEAD, rows: &rows }
            .fmt(f)
    }
}

impl Shown<'_> {
    /// Draws a group for each way of resuming, with a bar for each version.
    fn bars(
        &self,
        f: &mut fmt::Formatter<'_>,
        heading: &str,
        unit: &str,
        value: impl Fn(&Row) -> f64,
    ) -> fmt::Result {
        let versions = distinct(self.rows.iter().map(|row| row.tls));
        let most = self.rows.iter().map(&value).fold(1.0, f64::max);
        let group = |name: &&'static str| {
            let rows = self.rows.iter().filter(|row| row.resumption == *name);
            let bar = |(at, row): (usize, &Row)| {
                let part = Part {
                    colour: versions.iter().position(|tls| *tls == row.tls).unwrap_or(0),
                    length: value(row),
                    title: format!("TLS {} {name}: {:.1} {unit}", row.tls, value(row)),
                    shown: String::new(),
                };
                let name = if at == 0 { *name } else { "" };
                let figure = row.conditions.marked(&format!("{:.0}", value(row)));
                Bar { name: name.to_owned(), parts: vec![part], figure }
            };
            rows.enumerate().map(bar).collect()
        };
        let names = distinct(self.rows.iter().map(|row| row.resumption));
        let groups: Vec<Vec<Bar>> = names.iter().map(group).collect();
        let bars = Bars { subject: "By way of resuming", heading, most, groups: &groups };
        writeln!(f, "<figure>\n{bars}</figure>")
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Outcome;
    use crate::{Conditions, Ended};

    fn row(tls: &'static str, resumption: &'static str, hit: f64, cpu_us: f64) -> Row {
        Row {
            tls,
            resumption,
            servers: 1,
            note: "in words",
            hit_after_first_of_run: hit,
            liars_hit_after_first_of_run: None,
            handshakes_per_s: 412.0,
            server_cpu_us: cpu_us,
            cache_bytes_per_session: 731.0,
            capacity_sessions: 1_200,
            client_resumed: 0,
            server_resumed: 0,
            client_full: 0,
            server_full: 0,
            handshake_p50_us: 0,
            failed: 0,
            failed_mostly: None,
            speed_up: 75.0,
            slowed: false,
            conditions: Conditions::default(),
        }
    }

    #[test]
    fn figures_that_are_wrong_are_marked() {
        let mut rows = [row("1.3", "lru", 13.2, 261.0), row("1.3", "predictive", 48.3, 356.0)];
        rows[0].slowed = true;
        rows[1].conditions.late_percent = 31.0;
        let page =
            html(&Shown { devices: 8_000, capacity_share: 0.6, rows: &rows, incomplete: None });
        assert!(
            page.contains("<td class=\"text\">lru ½<td>13.2")
                && page.contains("<td class=\"text\">predictive *<td>48.3")
        );
        assert!(page.contains(">48 *</text>") && page.contains(">13</text>"), "{page}");
        let notes = "incomplete\">* TLS 1.3 predictive: 31 % of the connections began late</p>";
        assert!(page.contains(notes) && page.contains("½ Measured at half the speed"), "{page}");
    }

    #[test]
    fn a_part_says_that_it_is_one() {
        let rows = [row("1.3", "lru", 13.2, 261.0)];
        let ended = |failure: Option<&str>| Ended {
            complete: false,
            wanted: 2,
            failure: failure.map(ToOwned::to_owned),
            ..Ended::complete(1)
        };
        for (failure, told) in [(None, "interrupted"), (Some("reset"), "reset")] {
            let outcome = Outcome { ended: ended(failure), rows: rows.to_vec() };
            let note = format!("incomplete: {told}");
            assert_eq!(outcome.notes(), [note.as_str()]);
            let incomplete = outcome.ended.cut("interrupted").map(ToOwned::to_owned);
            let page =
                html(&Shown { devices: 8_000, capacity_share: 0.6, rows: &rows, incomplete });
            assert!(page.contains(&format!("incomplete\">{note}</p>")), "{page}");
        }
    }

    #[test]
    fn connections_that_failed_are_told() {
        let mut rows = [row("1.3", "lru", 13.2, 261.0), row("1.3", "tickets", 99.0, 256.0)];
        rows[1].client_resumed = 980;
        (rows[1].failed, rows[1].failed_mostly) = (20, Some("timed out".to_owned()));
        let page =
            html(&Shown { devices: 8_000, capacity_share: 0.6, rows: &rows, incomplete: None });
        let note = "TLS 1.3 tickets: 20 connections failed, most of them: timed out";
        assert!(page.contains(&format!("incomplete\">{note}</p>")), "{page}");
        let outcome =
            |rows: &[Row]| Outcome { ended: Ended::complete(rows.len()), rows: rows.to_vec() };
        assert_eq!(outcome(&rows).notes(), [note]);
        assert_eq!(outcome(&rows).failure(), None);
        rows[1].failed = 40;
        let why = "TLS 1.3 tickets: 4 % of the connections failed, most of them: timed out";
        assert_eq!(outcome(&rows).failure().as_deref(), Some(why));
        assert_eq!(outcome(&[]).failure(), None);
    }

    #[test]
    fn every_server_has_a_bar_in_both_charts_and_a_line() {
        let rows = [
            row("1.2", "none", 0.0, 702.0),
            row("1.2", "predictive", 71.6, 261.0),
            row("1.3", "none", 0.0, 801.0),
            row("1.3", "predictive", 70.2, 356.0),
        ];
        let page =
            html(&Shown { devices: 8_000, capacity_share: 0.6, rows: &rows, incomplete: None });
        assert_eq!((page.matches("<svg").count(), page.matches("<rect").count()), (2, 8), "{page}");
        assert!(page.contains("<title>TLS 1.3 predictive: 70.2 %</title>"), "{page}");
        assert!(page.contains("<title>TLS 1.2 none: 702.0 µs</title>"), "{page}");
        assert!(page.contains(
            "<tr><th scope=\"row\">1.2<td class=\"text\">predictive<td>71.6<td>412<td>261<td>731"
        ));
        assert!(!page.contains("src=") && !page.contains("NaN"), "{page}");
        assert!(!page.contains("incomplete\">"), "{page}");
        let empty =
            html(&Shown { devices: 8_000, capacity_share: 0.6, rows: &[], incomplete: None });
        assert!(!empty.contains("NaN"), "{empty}");
    }
}
