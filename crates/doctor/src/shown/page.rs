//! The report as a page.

use std::fmt::{self, Display};

use rejoin_report::{Escaped, Figures, Page};

use super::Report;
use super::cells::{HEAD, crossings, heading, letter, lost, remarks, rows};
use crate::findings::Finding;

const STYLE: &str = include_str!("page.css");

pub(super) fn html(report: &Report) -> String {
    let title = format!("Resumption at {}", report.facts.target);
    Page { title: &title, style: STYLE, script: "", body: Body(report) }.to_string()
}

struct Body<'a>(&'a Report);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, facts) = (self.0, &self.0.facts);
        writeln!(f, "<p>{}; {} connections.</p>", Escaped(&report.verdict()), facts.connections)?;
        let addresses = facts.addresses.iter();
        let about = addresses.map(|at| format!("{} is {}.", letter(facts, at.address), at.address));
        let about = about.collect::<Vec<_>>().join(" ");
        let (heading, text) = ("What resumes", &[0, 1, 2]);
        Figures { heading, about: &about, text, head: &HEAD, rows: &rows(facts) }.fmt(f)?;
        f.write_str("<ul class=\"remarks\">\n")?;
        for line in crossings(facts).iter().chain(&remarks(facts)) {
            writeln!(f, "<li>{}", Escaped(line))?;
        }
        f.write_str("</ul>\n<h2>Findings</h2>\n")?;
        if report.findings.is_empty() {
            f.write_str("<p>None.</p>\n")?;
        }
        report.findings.iter().try_for_each(|finding| of(f, finding))
    }
}

fn of(f: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
    let class = if finding.is_in_the_way() { "finding heavy" } else { "finding" };
    writeln!(f, "<section class=\"{class}\">\n<h3>{}</h3>", Escaped(&heading(finding)))?;
    let losses = finding.losses.iter().map(lost);
    for line in finding.seen.iter().cloned().chain(losses) {
        writeln!(f, "<p>{}</p>", Escaped(&line))?;
    }
    if let Some(mends) = finding.mends {
        f.write_str("<dl>\n")?;
        for (server, mend) in mends.each() {
            write!(f, "<dt>{server}<dd>")?;
            // Words in backticks are settings.
            for (at, part) in mend.split('`').enumerate() {
                let (before, after) = if at % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
                write!(f, "{before}{}{after}", Escaped(part))?;
            }
            writeln!(f)?;
        }
        f.write_str("</dl>\n")?;
    }
    f.write_str("</section>\n")
}
