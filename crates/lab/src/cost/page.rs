//! The outcome as a page in one file: throughput by size and mode, where the time goes, and the
//! tables.

use std::fmt;

use rejoin_report::{BAR_STYLE, Bar, Bars, CHART_STYLE, Escaped, Line, Lines, Page, Part};

use super::model::{Parts, percent_cut};
use super::tables::{kinds, missing_model, names, notes, sizes, tables};
use super::{Outcome, Row, Shares, SuiteModel};

const STYLE: &str = include_str!("page.css");
/// The modes of lines and legend, in the order of their colours.
const MODES: [(&str, &str); 4] = [
    ("plain", "no TLS"),
    ("once", "TLS, one handshake for many"),
    ("resumed", "TLS, resumed each time"),
    ("full", "TLS, full handshake each time"),
];

/// Returns the outcome as an HTML page. It needs no other file and makes no request.
pub fn html(outcome: &Outcome) -> String {
    let page = Page {
        title: "What TLS costs, and what resumption is worth",
        style: &[BAR_STYLE, STYLE, CHART_STYLE].concat(),
        script: "",
        body: Body(outcome),
    };
    page.to_string()
}

struct Body<'a>(&'a Outcome);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outcome) = *self;
        let Outcome { rounds, round_s, clients, resumption, .. } = outcome;
        writeln!(
            f,
            "<p>The reference server on cores of its own, for each {clients} clients in a closed loop over \
             loopback, medians over {rounds} rounds of {round_s} s in turns, sessions kept by \
             {resumption}. The paper: Kant, Iyer and Mohapatra, Architectural Impact of Secure Socket \
             Layer on Internet Servers, 2000.</p>"
        )?;
        for note in notes(outcome) {
            writeln!(f, "<p class=\"incomplete\">{}</p>", Escaped(&note))?;
        }
        f.write_str(
            "<h2>Transactions a second, by size of the response</h2>\n<p>Scaled to full utilisation of \
             the server's cores. The scale is logarithmic.</p>\n<p class=\"key\">",
        )?;
        for (at, (_, name)) in MODES.iter().enumerate() {
            write!(f, "<span><i class=\"m{at}\"></i>{name}</span> ")?;
        }
        f.write_str("</p>\n<div class=\"small\">\n")?;
        for kind in kinds(outcome) {
            Throughput { outcome, kind }.fmt(f)?;
        }
        f.write_str("</div>\n")?;
        by_cores(f, outcome)?;
        f.write_str("<h2>Where the server's time goes</h2>\n")?;
        if outcome.models.is_empty() {
            writeln!(f, "<p>There is {}.</p>", Escaped(&missing_model(outcome)))?;
        } else {
            f.write_str(
                "<p>By the paper's linear model, in percent of a transaction with a full handshake: \
                 what a resumed one is shorter by is what resumption saves.</p>\n<p class=\"key\">\
                 <span><i class=\"p0\"></i>Th, handshake</span> <span><i class=\"p1\"></i>Te, \
                 cipher</span> <span><i class=\"p2\"></i>Tn, the rest</span></p>\n<div class=\"small\">\n",
            )?;
            outcome.models.iter().try_for_each(|model| Stacks(model).fmt(f))?;
            f.write_str("</div>\n")?;
        }
        tables(outcome).iter().try_for_each(|table| table.fmt(f))
    }
}

/// Throughput, and cycles per instruction where they were counted, by the number of cores, for a size in the
/// middle. Nothing where there was one number of cores.
fn by_cores(f: &mut fmt::Formatter<'_>, outcome: &Outcome) -> fmt::Result {
    if outcome.cores.len() < 2 {
        return Ok(());
    }
    let sizes = sizes(outcome);
    let Some(size) = sizes.get(sizes.len() / 2) else { return Ok(()) };
    writeln!(f, "<h2>By the server's cores, {size}</h2>")?;
    for kind in kinds(outcome) {
        let throughput = Throughput { outcome, kind };
        let mut figure = |heading: &str, unit: &str, value: &dyn Fn(&Row) -> Option<f64>| {
            let line = |(mode, name): &(&'static str, &'static str)| {
                let rows = throughput.rows(mode).filter(|row| row.size_bytes == *size);
                let point = |row: &Row| Some((u32::try_from(row.cores).ok()?, value(row)?));
                let mut points: Vec<_> = rows.filter_map(point).collect();
                points.sort_by_key(|(cores, _)| *cores);
                Line { name, points }
            };
            let lines: Vec<_> =
                MODES.iter().map(line).filter(|line| !line.points.is_empty()).collect();
            if lines.is_empty() {
                return Ok(());
            }
            let picture = Lines { heading, unit, across: "cores", at: None, lines: &lines };
            f.write_str(&picture.figure())
        };
        let [tls, key, cipher] = kind;
        let heading = format!("TLS {tls} {key} {cipher}");
        figure(&heading, "transactions a second, scaled", &|row| Some(row.scaled_per_s))?;
        // Pictures are drawn in whole numbers, which would all be one or two.
        figure(&heading, "cycles per 100 instructions", &|row| {
            row.server.counters.cycles_per_instruction().map(|cycles| cycles * 100.0)
        })?;
    }
    Ok(())
}

type Kind = [&'static str; 3];

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 34.0;
const FLOOR: f64 = HEIGHT - 30.0;

/// Lines over sizes, one for each mode, of a kind of TLS.
struct Throughput<'a> {
    outcome: &'a Outcome,
    kind: Kind,
}

impl fmt::Display for Throughput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outcome, kind: [tls, key, cipher] } = self;
        let heading = format!("TLS {tls} {key} {cipher}");
        let heading = Escaped(&heading);
        writeln!(
            f,
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Transactions a second, {heading}"><text class="heading" x="0" y="16">{heading}</text>"#
        )?;
        // All pictures have one scale, to be compared.
        let rates = outcome.cells.iter().map(|row| row.scaled_per_s.max(1.0).log10());
        let (least, most) =
            rates.fold((f64::INFINITY, 0.0_f64), |(low, high), log| (low.min(log), high.max(log)));
        let (least, most) = (least.floor().min(most), most.ceil().max(least + 1.0));
        let y =
            |rate: f64| FLOOR - (rate.max(1.0).log10() - least) / (most - least) * (FLOOR - TOP);
        for power in least as i32..=most as i32 {
            let rate = 10_f64.powi(power);
            let (at, text) = (y(rate), y(rate) + 4.0);
            writeln!(
                f,
                r#"<path class="rule" d="M{LEFT} {at:.1}H{RIGHT}"/><text class="quiet" x="{x}" y="{text:.1}" text-anchor="end">{rate}</text>"#,
                x = LEFT - 8.0
            )?;
        }
        let sizes = sizes(outcome);
        let cores = outcome.cells.iter().map(|row| row.cores).min().unwrap_or(1);
        let step = (RIGHT - LEFT) / sizes.len().max(1) as f64;
        let x = |at: usize| LEFT + step * (at as f64 + 0.5);
        for (at, size) in sizes.iter().enumerate() {
            let (x, y) = (x(at), FLOOR + 20.0);
            writeln!(
                f,
                r#"<text class="quiet" x="{x:.1}" y="{y}" text-anchor="middle">{size}</text>"#
            )?;
        }
        for (colour, (mode, name)) in MODES.iter().enumerate() {
            let points = sizes.iter().enumerate().filter_map(|(at, size)| {
                let row =
                    self.rows(mode).find(|row| row.size_bytes == *size && row.cores == cores)?;
                Some((x(at), row.scaled_per_s, *size))
            });
            let points: Vec<_> = points.collect();
            let line = points.iter().map(|(x, rate, _)| format!("{x:.1},{:.1}", y(*rate)));
            let line = line.collect::<Vec<_>>().join(" ");
            writeln!(f, r#"<polyline class="m{colour} line" points="{line}"/>"#)?;
            for (x, rate, size) in points {
                writeln!(
                    f,
                    r#"<circle class="m{colour}" cx="{x:.1}" cy="{:.1}" r="4"><title>{name}, {size}: {rate:.0} a second</title></circle>"#,
                    y(rate)
                )?;
            }
        }
        f.write_str("</svg>\n")
    }
}

impl<'a> Throughput<'a> {
    fn rows(&self, mode: &'a str) -> impl Iterator<Item = &'a Row> {
        let (kind, mode) = (self.kind, mode);
        let cells = self.outcome.cells.iter();
        cells.filter(move |row| row.mode == mode && (row.tls.is_none() || names(row) == kind))
    }
}

/// Bars of handshake, cipher and remainder for each size: full, resumed, the paper's.
struct Stacks<'a>(&'a SuiteModel);

impl fmt::Display for Stacks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(SuiteModel { tls, key, cipher, sizes, .. }) = self;
        let group = |shares: &Shares| {
            let full = bar(&format!("{}, full", shares.size_bytes), shares.full_percent, 1.0);
            let resumed = resumed(shares).map(|(percent, length)| bar("resumed", percent, length));
            let papers = bar("the paper's", shares.paper_percent, 1.0);
            [Some(full), resumed, Some(papers)].into_iter().flatten().collect()
        };
        let groups: Vec<Vec<Bar>> = sizes.iter().map(group).collect();
        let heading = format!("TLS {tls} {key} {cipher}");
        let subject = "Shares of the server's time";
        Bars { subject, heading: &heading, most: 100.0, groups: &groups }.fmt(f)
    }
}

/// Its shares, and how long it is where one with a full handshake is 1.
fn resumed(shares: &Shares) -> Option<(Parts, f64)> {
    Some((shares.resumed_percent?, 1.0 - shares.saved_percent? / 100.0))
}

fn bar(name: &str, percent: Parts, length: f64) -> Bar {
    let parts = [percent.handshake, percent.cipher, percent.remainder];
    let part = |(colour, (name, percent)): (usize, (&str, f64))| {
        let shown = percent_cut(percent);
        Part { colour, length: percent * length, title: format!("{name} {shown}"), shown }
    };
    let parts = ["Th", "Te", "Tn"].into_iter().zip(parts).enumerate().map(part).collect();
    Bar { name: name.to_owned(), parts, figure: String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::Cores;
    use super::super::outcome::tests::papers;
    use super::*;

    #[test]
    fn a_page_has_its_charts_and_asks_nobody() {
        let mut outcome = papers();
        let page = html(&outcome);
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        assert_eq!(page.matches("<polyline").count(), MODES.len());
        assert_eq!(page.matches("<circle").count(), 16);
        // Full, resumed and the paper's, of three parts each, for four sizes.
        assert_eq!(page.matches("<rect").count(), 36);
        assert!(page.contains("<title>Th 43.0 %</title>"), "{page}");
        for outside in ["src=", "href=\"http", "@import", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        outcome.cores.push(Cores { server: vec![1, 2], clients: vec![0] });
        let mut on_two = outcome.cells.clone();
        for row in &mut on_two {
            row.cores = 2;
            row.server.counters.cycles = row.server.counters.instructions.map(|count| count * 1.39);
        }
        outcome.cells.extend(on_two);
        let page = html(&outcome);
        assert_eq!(page.matches("<svg").count(), 4, "throughput and cycles by cores: {page}");
        assert!(page.contains("no TLS, 1: 300</title>"), "{page}");
        assert!(page.contains("no TLS, 2: 139</title>"), "{page}");
    }

    #[test]
    fn little_is_a_page_too() {
        let mut outcome = papers();
        outcome.ended.complete = false;
        outcome.models.clear();
        outcome.cells.truncate(1);
        let page = html(&outcome);
        assert!(page.contains("partial: interrupted"), "{page}");
        assert_eq!(page.matches("<svg").count(), 1);
        outcome.cells.clear();
        assert!(!html(&outcome).contains("NaN"));
    }
}
