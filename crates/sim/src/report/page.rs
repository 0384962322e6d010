//! The page: curves that can be read, chosen and saved, and the figures below them.
//!
//! It is one file that makes no request. The pictures are complete without the script, which shows
//! another of them, hides lines, reads points and saves files.

use std::fmt;

use rejoin_report::{CHART_STYLE, Escaped, Page};

use super::chart::{Chart, Format, Legend, View, groups};
use super::{Counted, Curve, Error, incomplete, percent, seeds_differ, thousands};
use crate::{HitRates, Outcome};

const STYLE: &str = include_str!("chart.css");
const SCRIPT: &str = include_str!("chart.js");

/// The outcome as an HTML page: hit rate by cache size with one line for each policy (Fig. 1 of
/// paper 000), and the figures in a table. It needs no other file and makes no request.
///
/// # Errors
///
/// [`Error::Empty`] if nothing was counted; [`Error::NotAPercentage`] for a rate outside 0–100.
pub fn html(outcome: &Outcome) -> Result<String, Error> {
    check(outcome)?;
    let groups = groups(outcome);
    // The rates that mean most come first.
    let counted: Vec<Counted> = Counted::EVERY.into_iter().rev().collect();
    let counted: Vec<Counted> = counted.into_iter().filter(|c| is_counted(outcome, *c)).collect();
    if counted.is_empty() {
        return Err(Error::Empty);
    }
    let everyone = std::iter::once(None);
    let whom = everyone.chain(groups.iter().copied().enumerate().map(Some));
    let views: Vec<View<'_>> = whom
        .flat_map(|group| counted.iter().map(move |counted| View { counted: *counted, group }))
        .collect();
    let curves = Curve::all(outcome);
    let body = Body { outcome, counted, groups, views, curves };
    let style = [STYLE, CHART_STYLE].concat();
    let page = Page { title: &outcome.title, style: &style, script: SCRIPT, body };
    Ok(page.to_string())
}

fn is_counted(outcome: &Outcome, counted: Counted) -> bool {
    outcome.cells.iter().any(|cell| counted.of(&cell.rates).is_some())
}

fn check(outcome: &Outcome) -> Result<(), Error> {
    for cell in &outcome.cells {
        let groups = cell.groups.iter().map(|group| &group.rates);
        for rates in std::iter::once(&cell.rates).chain(groups) {
            for rate in Counted::EVERY.iter().filter_map(|counted| counted.of(rates)) {
                let drawable =
                    (0.0..=100.0).contains(&rate.mean) && (0.0..=100.0).contains(&rate.sd);
                if !drawable {
                    let rate = format!("{} ± {}", rate.mean, rate.sd);
                    let (policy, capacity) = (cell.policy, cell.capacity);
                    return Err(Error::NotAPercentage { policy, capacity, rate });
                }
            }
        }
    }
    Ok(())
}

struct Body<'a> {
    outcome: &'a Outcome,
    /// The rates that were counted.
    counted: Vec<Counted>,
    groups: Vec<&'a str>,
    /// The first is displayed.
    views: Vec<View<'a>>,
    curves: Vec<Curve<'a>>,
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        self.choices(f)?;
        self.figure(f)?;
        self.table(f)
    }
}

impl Body<'_> {
    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<p>Share of requests that resume a TLS session, by the size of the server’s session cache. ")?;
        match self.outcome.seeds {
            1 => writeln!(f, "One seed.</p>")?,
            seeds => writeln!(
                f,
                "Means of {seeds} seeds; shaded is one standard deviation to either side.</p>"
            )?,
        }
        if let Some(line) = incomplete(self.outcome) {
            let (first, rest) = line.split_at(1);
            writeln!(f, "<p class=\"incomplete\">{}{rest}.</p>", first.to_uppercase())?;
        }
        Ok(())
    }

    /// Writes the choice of the rate and the group. Only the script can choose; without it the entries
    /// are explanations.
    fn choices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<fieldset class=\"rates\" disabled>\n<legend>Requests that count</legend>\n")?;
        for (at, counted) in self.counted.iter().enumerate() {
            let (key, name, meaning) = (counted.key(), counted.name(), counted.meaning());
            let (first, rest) = name.split_at(1);
            let (first, checked) = (first.to_uppercase(), checked(at == 0));
            writeln!(
                f,
                r#"<label><input type="radio" name="rate" value="{key}" autocomplete="off"{checked}><b>{first}{rest}</b><span>{meaning}</span></label>"#
            )?;
        }
        f.write_str("</fieldset>\n")?;
        if self.groups.is_empty() {
            return Ok(());
        }
        f.write_str(
            "<fieldset class=\"groups\" disabled hidden>\n<legend>Of which clients</legend>\n",
        )?;
        for (at, name) in
            std::iter::once("all clients").chain(self.groups.iter().copied()).enumerate()
        {
            let (name, checked) = (Escaped(name), checked(at == 0));
            writeln!(
                f,
                r#"<label><input type="radio" name="group" value="{at}" autocomplete="off"{checked}>{name}</label>"#
            )?;
        }
        f.write_str("</fieldset>\n")
    }

    fn figure(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.outcome.seeds;
        writeln!(f, r#"<figure data-file="{}">"#, file_name(&self.outcome.title))?;
        f.write_str("<div class=\"stage\">\n")?;
        for format in [Format::Wide, Format::Narrow] {
            write!(f, "{}", Chart::new(format, &self.curves, &self.views, 0, seeds))?;
        }
        f.write_str("<div class=\"tip\" role=\"status\" hidden></div>\n</div>\n")?;
        write!(f, "{}", Legend(&self.curves))?;
        f.write_str(
            r#"<div class="actions" hidden>
<p>Point at the picture, or move through it with the arrow keys, to read it. A policy’s name hides its line.</p>
<button type="button" data-save="svg">Save as SVG</button>
<button type="button" data-save="png">Save as PNG</button>
</div>
</figure>
"#,
        )
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds_differ = seeds_differ(self.outcome);
        f.write_str(
            r#"<h2>Figures</h2>
<p>Hit rates in percent, ± one standard deviation over seeds; requests and full handshakes are means.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Figures">
<table>
<thead><tr><th scope="col">policy<th scope="col">sessions"#,
        )?;
        if seeds_differ {
            f.write_str("<th scope=\"col\">seeds")?;
        }
        for counted in &self.counted {
            write!(f, "<th scope=\"col\">{}", counted.name())?;
        }
        f.write_str("<th scope=\"col\">requests<th scope=\"col\">full handshakes</thead>\n")?;
        for curve in &self.curves {
            f.write_str("<tbody>\n")?;
            for cell in &curve.cells {
                let capacity = thousands(cell.capacity.into());
                write!(f, "<tr><th scope=\"row\">{}<td>{capacity}", cell.policy)?;
                if seeds_differ {
                    write!(f, "<td>{}", cell.seeds)?;
                }
                self.rates(f, &cell.rates, cell.seeds)?;
                let (requests, full) = (thousands(cell.requests), thousands(cell.full_handshakes));
                writeln!(f, "<td>{requests}<td>{full}")?;
                let several = !self.groups.is_empty();
                for group in cell.groups.iter().filter(|_| several) {
                    write!(
                        f,
                        "<tr class=\"group\"><th scope=\"row\">{}<td>",
                        Escaped(&group.name)
                    )?;
                    if seeds_differ {
                        f.write_str("<td>")?;
                    }
                    self.rates(f, &group.rates, cell.seeds)?;
                    writeln!(f, "<td>{}<td>", thousands(group.requests))?;
                }
            }
            f.write_str("</tbody>\n")?;
        }
        f.write_str("</table>\n</div>\n")
    }

    fn rates(&self, f: &mut fmt::Formatter<'_>, rates: &HitRates, seeds: u32) -> fmt::Result {
        for counted in &self.counted {
            write!(f, "<td>{}", percent(counted.of(rates), seeds))?;
        }
        Ok(())
    }
}

const fn checked(is_checked: bool) -> &'static str {
    if is_checked { " checked" } else { "" }
}

/// Turns a title into a name for files: letters, digits and single hyphens.
fn file_name(title: &str) -> String {
    let mut name = String::new();
    for c in title.chars().take(80) {
        if c.is_alphanumeric() {
            name.extend(c.to_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "hit-rate".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        let names = ["Paper 000, c = 20,000", "../../etc/passwd", "«Zürich»", "?!"].map(file_name);
        assert_eq!(names, ["paper-000-c-20-000", "etc-passwd", "zürich", "hit-rate"]);
    }
}
