//! The answer as a page.

use std::fmt::Write;

use rejoin_report::{CHART_STYLE, Escaped, Figures, Line, Lines, Page};
use rejoin_sim::Subject;

use super::answer::Answer;
use super::text;
use super::trials::returning;

/// Rules of this page alone.
const STYLE: &str = "\
.answer{font-size:1.25em;font-weight:600}
.warning{border-left:4px solid #c8501e;padding-left:.75em}
pre{overflow-x:auto}
";

/// Returns the page: what is recommended, the curves, what speaks for it and against it, the figures, configurations.
pub(super) fn of(answer: &Answer<'_>, sizes: &[u32]) -> String {
    let mut body = String::new();
    paragraph(&mut body, "", &text::head(answer));
    paragraph(&mut body, " class=\"answer\"", &answer.line);
    for warning in &answer.warnings {
        paragraph(&mut body, " class=\"warning\"", &format!("Warning: {warning}."));
    }
    body += &chart(answer, sizes);
    list(&mut body, "Compared with other sizes, caches and readings", &text::beside(answer));
    if let Some(log) = &answer.log {
        list(&mut body, "The log", &log.text());
    }
    let text::Figures { head, rows } = text::table(answer, sizes);
    let head: Vec<String> = head.iter().map(|head| head.replace('\n', " ")).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let figures = Figures { heading: "Figures", about: "", text: &[1], head: &head, rows: &rows };
    body += &figures.to_string();
    text::notes(answer).lines().for_each(|line| paragraph(&mut body, "", line));
    if let Some(configuration) = &answer.configuration {
        body += "<h2>Configurations</h2>\n";
        for (name, lines) in configuration.each() {
            let _ = writeln!(
                body,
                "<h3>{name}</h3>\n<pre tabindex=\"0\">{}</pre>",
                escaped_lines(lines)
            );
        }
        paragraph(&mut body, "", &text::lifetime(answer));
    }
    let style = [CHART_STYLE, STYLE].concat();
    let title = format!("Cache for {}", answer.title);
    Page { title: &title, style: &style, script: "", body }.to_string()
}

/// Returns the lines with their ends, which are no text to escape.
fn escaped_lines(lines: &str) -> String {
    lines.lines().map(|line| format!("{}\n", Escaped(line))).collect()
}

fn chart(answer: &Answer<'_>, sizes: &[u32]) -> String {
    let mut policies: Vec<Subject> = Vec::new();
    let shown = || answer.rows.iter().filter(|row| sizes.contains(&row.cell.capacity));
    for row in shown() {
        if !policies.contains(&row.cell.policy) {
            policies.push(row.cell.policy);
        }
    }
    let line = |policy: &Subject| {
        let cells = shown().map(|row| row.cell).filter(|cell| cell.policy == *policy);
        let points = cells.map(|cell| (cell.capacity, returning(cell))).collect();
        Line { name: policy.as_str(), points }
    };
    let lines: Vec<Line<'_>> = policies.iter().map(line).collect();
    let at = answer.recommendation.as_ref().map(|best| (best.sessions, "recommended"));
    let chart = Lines {
        heading: "Returning devices that resume, by the size of the cache",
        unit: "%",
        across: "sessions",
        at,
        lines: &lines,
    };
    chart.figure()
}

fn paragraph(body: &mut String, class: &str, text: &str) {
    let _ = writeln!(body, "<p{class}>{}</p>", Escaped(text));
}

fn list(body: &mut String, heading: &str, lines: &[String]) {
    let _ = writeln!(body, "<h2>{}</h2>\n<ul>", Escaped(heading));
    for line in lines {
        let _ = writeln!(body, "<li>{}</li>", Escaped(line));
    }
    body.push_str("</ul>\n");
}
