//! The table and the lines below it, for people or for programs.

use std::io::{self, Write};

use serde_json::json;

use crate::peers::{CONTENDERS, OF_MIXTURES};
use crate::race::{Figures, Size};
use crate::requirements::{Bound, Requirement};

/// All measurements.
pub(crate) struct Report {
    /// The figures for each size, one for each contender.
    pub(crate) sizes: Vec<(Size, Vec<Figures>)>,
    /// For each size the figures of the first contenders where clients keep no interval.
    pub(crate) mixtures: Vec<Vec<Figures>>,
    pub(crate) requirements: Vec<Requirement>,
    /// True if they were measured at the size for which they are defined. At another size they are
    /// only shown.
    pub(crate) judged: bool,
}

impl Report {
    pub(crate) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_head(out)?;
        for (row, contender) in CONTENDERS.iter().enumerate() {
            write!(out, "{:<24}", contender.name)?;
            self.sizes.iter().try_for_each(|(_, figures)| write_cell(&figures[row], out))?;
            writeln!(out)?;
        }
        writeln!(out, "{:<24}", "\nany interval")?;
        for (row, contender) in CONTENDERS.iter().take(OF_MIXTURES).enumerate() {
            write!(out, "{:<24}", contender.name)?;
            self.mixtures.iter().try_for_each(|figures| write_cell(&figures[row], out))?;
            writeln!(out)?;
        }
        self.write_notes(out)?;
        self.requirements.iter().try_for_each(|line| self.write_requirement(line, out))
    }

    fn write_head(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "ns per operation: 19 in 20 a client that returns, 1 in 20 a new session.\n"
        )?;
        write!(out, "{:<24}", "sessions")?;
        for (size, _) in &self.sizes {
            write!(out, " │{:>27}", thousands(size.sessions))?;
        }
        write!(out, "\n{:<24}", "")?;
        for _ in &self.sizes {
            write!(out, " │{:>6}{:>7}{:>7}{:>7}", "min", "median", "kept%", "+bytes")?;
        }
        let width = 24 + 29 * self.sizes.len();
        writeln!(out, "\n{}", "─".repeat(width))
    }

    fn write_notes(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\nkept%: returning clients whose session was still there; the others are given \
             another.\n+bytes: memory per session beyond its id (32 bytes) and value (152)."
        )?;
        for alike in CONTENDERS.chunk_by(|a, b| a.note == b.note) {
            if let Some(note) = alike[0].note {
                let names: Vec<&str> = alike.iter().map(|contender| contender.name).collect();
                writeln!(out, "{}: {note}.", names.join(", "))?;
            }
        }
        writeln!(out)
    }

    fn write_requirement(&self, line: &Requirement, out: &mut impl Write) -> io::Result<()> {
        let limit = match line.bound {
            Bound::AtMost(most) => format!("≤ {most:<5}"),
            Bound::AtLeast(least) => format!("≥ {least:<5}"),
            Bound::None => String::new(),
        };
        let verdict = match (self.judged, line.is_met()) {
            _ if matches!(line.bound, Bound::None) => "",
            (false, _) => "not judged",
            (true, true) => "PASS",
            (true, false) => "short",
        };
        let Requirement { what, sessions, measured, .. } = line;
        let sessions = thousands(*sessions);
        let line = format!("{what:<36}{sessions:>10}{measured:>9.2}  {limit}{verdict}");
        writeln!(out, "{}", line.trim_end())
    }

    /// Prints one JSON object per line.
    pub(crate) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for (size, figures) in &self.sizes {
            for (contender, figures) in CONTENDERS.iter().zip(figures) {
                let row = json!({
                    "row": contender.name,
                    "sessions": size.sessions,
                    "min_ns": figures.min_ns(),
                    "median_ns": figures.median_ns(),
                    "kept_percent": figures.kept_percent(),
                    "overhead_bytes": figures.overhead_bytes,
                });
                writeln!(out, "{row}")?;
            }
        }
        for line in &self.requirements {
            let (at_most, at_least) = match line.bound {
                Bound::AtMost(most) => (Some(most), None),
                Bound::AtLeast(least) => (None, Some(least)),
                Bound::None => (None, None),
            };
            let is_judged = self.judged && !matches!(line.bound, Bound::None);
            let row = json!({
                "requirement": line.what,
                "sessions": line.sessions,
                "measured": line.measured,
                "at_most": at_most,
                "at_least": at_least,
                "met": is_judged.then(|| line.is_met()),
            });
            writeln!(out, "{row}")?;
        }
        Ok(())
    }
}

fn write_cell(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    let (min, median, kept) = (figures.min_ns(), figures.median_ns(), figures.kept_percent());
    write!(out, " │{min:>6.0}{median:>7.0}{kept:>7.1}{:>7.0}", figures.overhead_bytes)
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
