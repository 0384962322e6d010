//! A line chart of one quantity over another: complete without a script.

use std::fmt;

use crate::{Axis, Escaped, Mark};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 84.0;
const FLOOR: f64 = HEIGHT - 52.0;
/// The width of a letter in a line's name.
const LETTER: f64 = 7.4;
/// The room above the highest point.
const ROOM: f64 = 1.06;

/// A line, its points from left to right.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// Its name, escaped where it is written.
    pub name: &'a str,
    /// Horizontal and vertical values. Negative ones are drawn as 0.
    pub points: Vec<(u32, f64)>,
}

/// A line chart as SVG.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines<'a> {
    /// The subject.
    pub heading: &'a str,
    /// The unit of the vertical axis.
    pub unit: &'a str,
    /// The quantity on the horizontal axis.
    pub across: &'a str,
    /// A highlighted place on the horizontal axis, and its name.
    pub at: Option<(u32, &'a str)>,
    /// The lines.
    pub lines: &'a [Line<'a>],
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (heading, unit) = (Escaped(self.heading), Escaped(self.unit));
        writeln!(
            f,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" style="width:100%;height:auto" role="img" aria-label="{heading}, one line for each" font-family="system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif" font-size="13">
<rect class="paper" width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text class="heading" x="0" y="16" font-size="14" font-weight="600" fill="#222">{heading}</text>
<text class="unit" x="0" y="36" fill="#5c5c5c">{unit}</text>"##
        )?;
        self.names(f)?;
        let (across, up) = (self.across_axis(), self.up_axis());
        self.axes(f, across, up)?;
        for (at, line) in self.lines.iter().enumerate() {
            draw(f, Mark::of(at), line, across, up)?;
        }
        f.write_str("</svg>\n")
    }
}

impl Lines<'_> {
    /// Returns the chart for a page, where it scrolls if there is no room for it.
    pub fn figure(&self) -> String {
        format!("<figure class=\"scroll\" tabindex=\"0\">\n{self}</figure>\n")
    }

    fn points(&self) -> impl Iterator<Item = (u32, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }

    fn across_axis(&self) -> Axis {
        Axis::new(self.points().map(|(across, _)| across).chain(self.at.map(|(at, _)| at)))
    }

    fn up_axis(&self) -> Axis {
        let highest = self.points().map(|(_, up)| up).fold(0.0, f64::max);
        Axis::new(std::iter::once(whole(highest * ROOM)))
    }

    fn names(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut x = 10.0;
        for (at, line) in self.lines.iter().enumerate() {
            let (mark, name, text) = (Mark::of(at), Escaped(line.name), x + 12.0);
            let (hue, colour) = (mark.hue(), mark.colour());
            writeln!(
                f,
                r##"<g class="c{hue}" color="{colour}"><g transform="translate({x:.1} 58)">{mark}</g><text class="label" x="{text:.1}" y="62.5" fill="#222">{name}</text></g>"##
            )?;
            x += 44.0 + LETTER * line.name.chars().count() as f64;
        }
        Ok(())
    }

    fn axes(&self, f: &mut fmt::Formatter<'_>, across: Axis, up: Axis) -> fmt::Result {
        f.write_str("<g class=\"axes\" fill=\"#5c5c5c\" stroke=\"#e6e6e6\">\n")?;
        for tick in up.ticks(5) {
            let (y, x) = (y_of(up, tick), LEFT - 10.0);
            let baseline = y + 4.5;
            writeln!(
                f,
                r#"<path d="M{LEFT} {y:.1}H{RIGHT}"/><text x="{x}" y="{baseline:.1}" text-anchor="end" stroke="none">{tick}</text>"#
            )?;
        }
        for tick in across.ticks(8) {
            let (x, y) = (x_of(across, tick), FLOOR + 20.0);
            writeln!(
                f,
                r##"<path class="base" stroke="#8a8a8a" d="M{x:.1} {FLOOR}v5"/><text x="{x:.1}" y="{y}" text-anchor="middle" stroke="none">{tick}</text>"##
            )?;
        }
        if let Some((at, name)) = self.at {
            let (x, y, name) = (x_of(across, at), TOP - 6.0, Escaped(name));
            writeln!(
                f,
                r##"<path class="base" stroke="#8a8a8a" stroke-dasharray="3 4" d="M{x:.1} {TOP}V{FLOOR}"/><text x="{x:.1}" y="{y}" text-anchor="middle" stroke="none">{name}</text>"##
            )?;
        }
        let (x, y, across) = ((LEFT + RIGHT) / 2.0, FLOOR + 42.0, Escaped(self.across));
        writeln!(
            f,
            r#"<text x="{x:.1}" y="{y}" text-anchor="middle" stroke="none">{across}</text>
</g>"#
        )
    }
}

fn draw(
    f: &mut fmt::Formatter<'_>,
    mark: Mark,
    line: &Line<'_>,
    across: Axis,
    up: Axis,
) -> fmt::Result {
    let (hue, colour, name) = (mark.hue(), mark.colour(), Escaped(line.name));
    let places = line.points.iter().map(|(at, value)| {
        let (x, y) = (x_of(across, *at), y_of(up, whole(*value)));
        (x, y, at, value)
    });
    write!(
        f,
        r#"<g class="c{hue}" color="{colour}"><polyline fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round""#
    )?;
    if let Some(dashes) = mark.dashes() {
        write!(f, r#" stroke-dasharray="{dashes}""#)?;
    }
    f.write_str(" points=\"")?;
    for (x, y, ..) in places.clone() {
        write!(f, "{x:.1},{y:.1} ")?;
    }
    f.write_str("\"/>\n")?;
    for (x, y, at, value) in places {
        writeln!(
            f,
            r#"<g transform="translate({x:.1} {y:.1})"><title>{name}, {at}: {value:.0}</title>{mark}</g>"#
        )?;
    }
    f.write_str("</g>\n")
}

/// Rounds a number. One that is negative or not a number becomes 0.
fn whole(number: f64) -> u32 {
    number.round() as u32
}

fn x_of(across: Axis, number: u32) -> f64 {
    LEFT + (RIGHT - LEFT) * across.share(number)
}

fn y_of(up: Axis, number: u32) -> f64 {
    FLOOR - (FLOOR - TOP) * up.share(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(lines: &[Line<'_>]) -> String {
        let at = Some((100, "full"));
        Lines { heading: "h", unit: "u", across: "a", at, lines }.to_string()
    }

    #[test]
    fn every_line_and_point_is_drawn() {
        let line = |name, points| Line { name, points };
        let lines = [line("<one>", vec![(50, 10.0), (200, 20.0)]), line("two", vec![(50, 5.0)])];
        let svg = picture(&lines);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("<title>").count(), 3, "{svg}");
        assert!(svg.contains("&lt;one&gt;, 200: 20</title>") && !svg.contains("<one>"), "{svg}");
        // The highest point is below the heading, and the lowest on or above the floor.
        assert!(svg.contains(&format!("{:.1},", x_of(Axis::new([200].into_iter()), 200))), "{svg}");
    }

    #[test]
    fn what_is_no_number_is_nothing() {
        let lines = [Line { name: "odd", points: vec![(1, f64::NAN), (2, -1.0)] }];
        let svg = picture(&lines);
        assert!(!svg.contains("NaN,") && svg.contains(&format!(",{FLOOR:.1}")), "{svg}");
        assert!(!picture(&[]).contains("polyline"));
    }
}
