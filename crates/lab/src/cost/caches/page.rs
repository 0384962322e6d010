//! The outcome as a page in one file: misses by the size of each cache, and the tables.

use std::fmt;

use rejoin_report::{CHART_STYLE, Escaped, Line, Lines, Page, distinct};

use super::tables::{Place, about, behind_first, columns, compared, kinds, name, notes, tables};
use super::{Outcome, Row, Size};

const MODES: [&str; 3] = ["full", "resumed", "no TLS"];
const UNIT: &str = "misses in 10,000 accesses";
/// L2 caches of a trace in a picture, each of which has two lines: there are eight colours.
const MOST_SHOWN: usize = 4;
/// A percent.
const HUNDREDTHS: f64 = 100.0;

/// Returns the outcome as an HTML page. It needs no other file and makes no request.
pub fn html(outcome: &Outcome) -> String {
    let title = "What caches do for TLS";
    Page { title, style: CHART_STYLE, script: "", body: Body(outcome) }.to_string()
}

struct Body<'a>(&'a Outcome);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outcome) = *self;
        writeln!(
            f,
            "<p>One transaction after the other with the reference server under {}: its program and \
             libraries, without the kernel. The paper: Kant, Iyer and Mohapatra, Architectural Impact of \
             Secure Socket Layer on Internet Servers, 2000.</p>",
            Escaped(&outcome.valgrind)
        )?;
        for note in notes(outcome) {
            writeln!(f, "<p class=\"incomplete\">{}</p>", Escaped(&note))?;
        }
        let Outcome { l1_bytes, l2_bytes, .. } = outcome;
        let (behind, compared) = (behind_first(outcome), compared(outcome));
        let mut of_both = behind.clone();
        of_both.retain(|place| compared.contains(place));
        by_response(f, outcome, &of_both)?;
        writeln!(
            f,
            "<h2>L2 miss ratio by its size, behind L1 of {l1_bytes} (Figures 6 and 7)</h2>"
        )?;
        by_size(f, outcome, &behind, "KB of L2", |(_, l2)| l2, |row| row.l2_percent)?;
        writeln!(
            f,
            "<h2>L1 miss ratios by its size, before L2 of {l2_bytes}: instructions, then data</h2>"
        )?;
        by_size(f, outcome, &compared, "KB of L1", |(l1, _)| l1, |row| row.l1i_percent)?;
        by_size(f, outcome, &compared, "KB of L1", |(l1, _)| l1, |row| row.l1d_percent)?;
        writeln!(
            f,
            "<h2>L2 with an auxiliary cache (§5), and larger by as much, behind L1 of {l1_bytes}</h2>"
        )?;
        auxiliary(f, outcome)?;
        writeln!(f, "<h2>Tables</h2>\n<p>{}</p>", Escaped(&about(outcome)))?;
        tables(outcome).iter().try_for_each(|table| table.fmt(f))
    }
}

/// A picture for each size of response, a line for each kind of transaction.
fn by_size(
    f: &mut fmt::Formatter<'_>,
    outcome: &Outcome,
    places: &[Place],
    across: &str,
    at: impl Fn((Size, Size)) -> Size,
    percent: impl Fn(&Row) -> f64,
) -> fmt::Result {
    for size in distinct(places.iter().map(|(size, _)| *size)) {
        let places: Vec<Place> = places.iter().copied().filter(|(of, _)| *of == size).collect();
        let lines = lines(outcome, &places, &|(_, caches)| at(caches), &percent);
        picture(f, &size.to_string(), across, &lines)?;
    }
    Ok(())
}

/// One picture over sizes of responses, where there are several.
fn by_response(f: &mut fmt::Formatter<'_>, outcome: &Outcome, places: &[Place]) -> fmt::Result {
    let Some((_, (l1, l2))) = places.first().filter(|_| places.len() > 1) else { return Ok(()) };
    f.write_str("<h2>L2 miss ratio by the response's size (Figure 5)</h2>\n")?;
    let lines = lines(outcome, places, &|(size, _)| size, &|row| row.l2_percent);
    picture(f, &format!("L1 {l1}, L2 {l2}"), "KB of response", &lines)
}

/// A line for each kind of transaction that there is: over KB, misses in a unit of [`UNIT`].
fn lines(
    outcome: &Outcome,
    places: &[Place],
    at: &dyn Fn(Place) -> Size,
    percent: &dyn Fn(&Row) -> f64,
) -> Vec<(String, Vec<(u32, f64)>)> {
    let mut lines: Vec<(String, Vec<(u32, f64)>)> = Vec::new();
    for kind in kinds(outcome) {
        for (column, mode) in MODES.iter().enumerate() {
            let points = places.iter().filter_map(|place| {
                let row = columns(outcome, kind, *place)[column]?;
                Some((at(*place).bytes() >> 10, percent(row) * HUNDREDTHS))
            });
            let points: Vec<_> = points.collect();
            let plain = column + 1 == MODES.len();
            let name = if plain { (*mode).to_owned() } else { format!("{} {mode}", name(kind)) };
            // Plain HTTP is of no kind: once is enough.
            if !points.is_empty() && !lines.iter().any(|(known, _)| *known == name) {
                lines.push((name, points));
            }
        }
    }
    lines
}

/// For the first L2 caches and each full handshake: over the bytes that it is given more.
fn auxiliary(f: &mut fmt::Formatter<'_>, outcome: &Outcome) -> fmt::Result {
    for traced in outcome.traces.iter().filter(|traced| traced.kind.mode == "full") {
        let mut lines = Vec::new();
        for l2 in traced.l2.iter().take(MOST_SHOWN) {
            let line = |percents: &dyn Fn(usize) -> f64| {
                let mut points = vec![(0, l2.percent * HUNDREDTHS)];
                let parts = l2.auxiliary.iter().enumerate();
                points.extend(parts.map(|(at, one)| {
                    let share = one.bytes * 100 / l2.bytes.bytes();
                    (share, percents(at) * HUNDREDTHS)
                }));
                points
            };
            lines.push((format!("{} + L2′", l2.bytes), line(&|at| l2.auxiliary[at].percent)));
            let larger = line(&|at| l2.auxiliary[at].larger_percent);
            lines.push((format!("{} larger", l2.bytes), larger));
        }
        let kind = name([traced.kind.tls, traced.kind.key]);
        let heading = format!("{}, {kind} full", traced.kind.size_bytes);
        picture(f, &heading, "percent of L2 that is added", &lines)?;
    }
    Ok(())
}

fn picture(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    across: &str,
    lines: &[(String, Vec<(u32, f64)>)],
) -> fmt::Result {
    let lines: Vec<Line<'_>> =
        lines.iter().map(|(name, points)| Line { name, points: points.clone() }).collect();
    f.write_str(&Lines { heading, unit: UNIT, across, at: None, lines: &lines }.figure())
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::tables::tests::made;
    use super::*;

    #[test]
    fn a_page_has_its_charts_and_asks_nobody() {
        let page = html(&made());
        // L2, L1 for instructions and for data, and L2′.
        assert_eq!(page.matches("<svg").count(), 4, "{page}");
        // Three kinds in three of them; two caches in two ways.
        assert_eq!(page.matches("<polyline").count(), 3 * 3 + 2 * 2, "{page}");
        assert!(!page.contains("Figure 5"), "there is one size");
        assert!(page.contains("no TLS, 2048: ") && page.contains("512 KB + L2′"), "{page}");
        for outside in ["src=", "href=\"http", "@import", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
    }

    #[test]
    fn several_sizes_are_shown_side_by_side() {
        let mut outcome = made();
        let size_bytes = "36KB".parse().expect("a size");
        let larger = outcome
            .cells
            .iter()
            .map(|row| Row { kind: Kind { size_bytes, ..row.kind }, ..row.clone() });
        outcome.cells.extend(larger.collect::<Vec<_>>());
        let page = html(&outcome);
        // One more, and twice the three that are of one size each.
        assert_eq!(page.matches("<svg").count(), 1 + 2 * 3 + 1, "{page}");
        assert!(page.contains("Figure 5") && page.contains("L1 16 KB, L2 2 MB"), "{page}");
    }

    #[test]
    fn little_is_a_page_too() {
        let mut outcome = made();
        outcome.ended.complete = false;
        outcome.cells.clear();
        outcome.traces.clear();
        let page = html(&outcome);
        assert!(page.contains("partial") && !page.contains("<svg") && !page.contains("NaN"));
    }
}
