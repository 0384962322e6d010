//! A picture of horizontal bars, in groups, each of one part or more: complete without a script.

use std::fmt;

use crate::Escaped;

const WIDTH: f64 = 440.0;
/// The least width of the names at the left.
const NAMES: f64 = 118.0;
/// The width of a letter in a name, on a narrow page, which has larger ones.
const LETTER: f64 = 7.2;
/// The width of the figures at the right.
const FIGURE: f64 = 48.0;
/// The margin at the right where there are no figures.
const MARGIN: f64 = 20.0;
const TOP: f64 = 34.0;
const BAR: f64 = 15.0;
const STEP: f64 = BAR + 4.0;
/// The space between two groups.
const BETWEEN: f64 = 13.0;
/// The width of a part that has room for its text.
const ROOM: f64 = 46.0;

/// A part of a bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The number of its colour in [`BAR_STYLE`](crate::BAR_STYLE): 0 to 2.
    pub colour: usize,
    /// The length. A negative one, or none, is drawn as 0.
    pub length: f64,
    /// The text shown while a pointer rests on the part.
    pub title: String,
    /// The text shown in the part if there is room.
    pub shown: String,
}

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The name at its left.
    pub name: String,
    /// The parts from left to right.
    pub parts: Vec<Part>,
    /// The figure at its right.
    pub figure: String,
}

/// A picture as SVG.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars<'a> {
    /// The subject, for readers that do not see the picture.
    pub subject: &'a str,
    /// The heading.
    pub heading: &'a str,
    /// The length of a bar that fills the width.
    pub most: f64,
    /// Groups of bars from top to bottom.
    pub groups: &'a [Vec<Bar>],
}

impl fmt::Display for Bars<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, heading) = (Escaped(self.subject), Escaped(self.heading));
        let bars: usize = self.groups.iter().map(Vec::len).sum();
        let gaps = self.groups.len().saturating_sub(1);
        let height = TOP + bars as f64 * STEP + gaps as f64 * BETWEEN + 4.0;
        writeln!(
            f,
            r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{subject}, {heading}"><text class="heading" x="0" y="16">{heading}</text>"#
        )?;
        let mut y = TOP;
        for group in self.groups {
            for bar in group {
                self.bar(f, y, bar)?;
                y += STEP;
            }
            y += BETWEEN;
        }
        f.write_str("</svg>\n")
    }
}

impl Bars<'_> {
    fn bar(&self, f: &mut fmt::Formatter<'_>, y: f64, bar: &Bar) -> fmt::Result {
        let (baseline, names, name) = (y + BAR - 3.5, self.names() - 8.0, Escaped(&bar.name));
        writeln!(
            f,
            r#"<text class="quiet" x="{names}" y="{baseline:.1}" text-anchor="end">{name}</text>"#
        )?;
        let mut x = self.names();
        for Part { colour, length, title, shown } in &bar.parts {
            let (width, title) = (self.width(*length), Escaped(title));
            writeln!(
                f,
                r#"<rect class="p{colour}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}"><title>{title}</title></rect>"#
            )?;
            if width > ROOM && !shown.is_empty() {
                let (middle, shown) = (x + width / 2.0, Escaped(shown));
                writeln!(
                    f,
                    r#"<text class="on" x="{middle:.1}" y="{baseline:.1}" text-anchor="middle">{shown}</text>"#
                )?;
            }
            x += width;
        }
        if !bar.figure.is_empty() {
            let (x, figure) = (x + 6.0, Escaped(&bar.figure));
            writeln!(f, r#"<text class="quiet" x="{x:.1}" y="{baseline:.1}">{figure}</text>"#)?;
        }
        Ok(())
    }

    /// Returns the width of the names.
    fn names(&self) -> f64 {
        let longest = self.groups.iter().flatten().map(|bar| bar.name.chars().count()).max();
        (longest.unwrap_or(0) as f64 * LETTER + 12.0).max(NAMES)
    }

    fn width(&self, length: f64) -> f64 {
        let has_figures = self.groups.iter().flatten().any(|bar| !bar.figure.is_empty());
        let right = if has_figures { FIGURE } else { MARGIN };
        let share = length / self.most;
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 2.0) };
        share * (WIDTH - self.names() - right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(lengths: &[f64]) -> String {
        let part = |(colour, length): (usize, &f64)| Part {
            colour,
            length: *length,
            title: format!("<{length}>"),
            shown: "shown".to_owned(),
        };
        let parts = lengths.iter().enumerate().map(part).collect();
        let groups = [vec![Bar { name: "<name>".to_owned(), parts, figure: "7".to_owned() }]];
        Bars { subject: "s", heading: "h", most: 10.0, groups: &groups }.to_string()
    }

    #[test]
    fn parts_follow_each_other_up_to_the_figure() {
        let svg = picture(&[5.0, 5.0]);
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert!(svg.contains(r#"x="118.0" y="34.0" width="137.0""#), "{svg}");
        assert!(svg.contains(r#"x="398.0" y="45.5">7</text>"#), "{svg}");
        assert!(svg.contains("&lt;name&gt;") && svg.contains("<title>&lt;5&gt;</title>"), "{svg}");
        assert_eq!(svg.matches("shown").count(), 2, "{svg}");
    }

    #[test]
    fn a_long_name_has_room() {
        let bar = |name: &str| Bar { name: name.to_owned(), parts: vec![], figure: String::new() };
        let groups = [vec![bar("short"), bar("a name of twenty-five let")]];
        let svg = Bars { subject: "s", heading: "h", most: 1.0, groups: &groups }.to_string();
        assert_eq!(svg.matches(r#"x="184""#).count(), 2, "{svg}");
    }

    #[test]
    fn a_part_below_nothing_has_no_length() {
        let svg = picture(&[f64::NAN, -1.0]);
        assert_eq!(svg.matches(r#"width="0.0""#).count(), 2, "{svg}");
        assert!(!svg.contains("shown"), "{svg}");
    }
}
