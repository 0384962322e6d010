//! Hit rate by cache size: Fig. 1 of paper 000, as SVG.
//!
//! Written by hand rather than by a library, which flattens a drawing: here each line, band and point
//! stands below its policy, so that a script can hide it and read it, and takes its colour from
//! there, so that a style sheet can darken it. Everything is said in attributes, and so the picture
//! also stands alone, in programs that know no style sheets.
//!
//! A picture holds every view (rate × group of clients), of which one is displayed. The rate of a
//! point is in its `title`; choosing and hiding is the script's.

use std::fmt;

use super::{Counted, Curve, percent, thousands};
use crate::{Cell, HitRates, Outcome, Rate};
use rejoin_report::{Axis, Escaped, Mark};

/// Between two lines of text beside the plot.
const LINE_HEIGHT: f64 = 19.0;
/// From the last point to its label.
const TO_LABEL: f64 = 34.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;
const LEFT: f64 = 38.0;
/// The most points with a marker in a policy's curve: more would run into each other.
const MARKERS_MAX: usize = 24;

/// How a picture is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For a page or a printed column; the policies' names stand at their lines.
    Wide,
    /// For a telephone.
    Narrow,
}

/// A picture.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    format: Format,
    curves: &'a [Curve<'a>],
    views: &'a [View<'a>],
    shown: usize,
    seeds: u32,
    axis: Axis,
    width: f64,
    /// The right and lower edge of the plot.
    right: f64,
    floor: f64,
}

/// A view of a picture: one of the rates, of all clients or of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) counted: Counted,
    /// Among [`groups`].
    pub(super) group: Option<(usize, &'a str)>,
}

/// The names of the policies beside what marks them, each a button for the script.
#[derive(Debug)]
pub(super) struct Legend<'a>(pub(super) &'a [Curve<'a>]);

/// A point of a curve.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    cell: &'a Cell,
    rate: Rate,
    x: f64,
    y: f64,
}

/// The groups of clients by name, in the order of their first cells; none if there is only one.
pub(super) fn groups(outcome: &Outcome) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for group in outcome.cells.iter().flat_map(|cell| &cell.groups) {
        if !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    if names.len() > 1 { names } else { Vec::new() }
}

impl<'a> Chart<'a> {
    /// Draws the views; the one at `shown` is displayed.
    pub(super) fn new(
        format: Format,
        curves: &'a [Curve<'a>],
        views: &'a [View<'a>],
        shown: usize,
        seeds: u32,
    ) -> Self {
        let capacities = curves.iter().flat_map(|curve| &curve.cells).map(|cell| cell.capacity);
        let longest = curves.iter().map(|curve| curve.policy.as_str().len()).max().unwrap_or(0);
        let (width, height, right) = match format {
            // Room for every name at its line.
            Format::Wide => {
                let names = TO_LABEL + 16.0 + 7.2 * longest as f64;
                (900.0, f64::max(490.0, LINE_HEIGHT * curves.len() as f64 + TOP + BOTTOM), names)
            }
            Format::Narrow => (400.0, 360.0, 22.0),
        };
        Self {
            format,
            curves,
            views,
            shown,
            seeds,
            axis: Axis::new(capacities),
            width,
            right: width - right,
            floor: height - BOTTOM,
        }
    }

    fn x(&self, capacity: u32) -> f64 {
        LEFT + (self.right - LEFT) * self.axis.share(capacity)
    }

    fn y(&self, percent: f64) -> f64 {
        self.floor - (self.floor - TOP) * percent.clamp(0.0, 100.0) / 100.0
    }

    fn points<'c>(&self, curve: &Curve<'c>, view: View<'_>) -> Vec<Point<'c>> {
        let cells = curve.cells.iter().copied();
        let rated = cells.filter_map(|cell| Some((cell, view.rate(cell)?)));
        rated
            .map(|(cell, rate)| {
                let (x, y) = (self.x(cell.capacity), self.y(rate.mean));
                Point { cell, rate, x, y }
            })
            .collect()
    }
}

impl View<'_> {
    /// Returns the name of a view in the page.
    pub(super) fn key(&self) -> (&'static str, usize) {
        (self.counted.key(), self.group.map_or(0, |(at, _)| at + 1))
    }

    /// The rate of a cell, if it was counted.
    pub(super) fn rate(&self, cell: &Cell) -> Option<Rate> {
        let rates: &HitRates = match self.group {
            None => &cell.rates,
            Some((_, name)) => &cell.groups.iter().find(|group| group.name == name)?.rates,
        };
        self.counted.of(rates)
    }

    fn heading(&self) -> &'static str {
        match self.counted {
            Counted::All => "Hit rate, all requests",
            Counted::AfterFirstOfDevice => "Hit rate after the first request of each device",
            Counted::AfterFirstOfRun => "Hit rate after the first request of each run",
        }
    }
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = (self.width, self.floor + BOTTOM);
        let class = match self.format {
            Format::Wide => "wide",
            Format::Narrow => "narrow",
        };
        writeln!(
            f,
            r##"<svg xmlns="http://www.w3.org/2000/svg" class="{class}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="Hit rate by cache size, one line for each policy" font-family="system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif" font-size="13">
<rect class="paper" width="{width}" height="{height}" fill="#fff"/>"##
        )?;
        self.axes(f)?;
        for (at, view) in self.views.iter().enumerate() {
            self.view(f, *view, at == self.shown)?;
        }
        f.write_str("</svg>\n")
    }
}

impl Chart<'_> {
    fn axes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (right, floor) = (self.right, self.floor);
        f.write_str("<g class=\"axes\" fill=\"#5c5c5c\" stroke=\"#e6e6e6\">\n")?;
        for percent in [0_u8, 20, 40, 60, 80, 100] {
            let y = self.y(percent.into());
            let class = if percent == 0 { r##" class="base" stroke="#8a8a8a""## } else { "" };
            write!(f, r#"<path{class} d="M{LEFT} {y:.1}H{right:.1}"/>"#)?;
            let (x, y) = (LEFT - 10.0, y + 4.5);
            writeln!(
                f,
                r#"<text x="{x}" y="{y:.1}" text-anchor="end" stroke="none">{percent}</text>"#
            )?;
        }
        let wanted = if self.format == Format::Wide { 8 } else { 4 };
        for capacity in self.axis.ticks(wanted) {
            let (x, y, text) = (self.x(capacity), floor + 20.0, thousands(capacity.into()));
            write!(f, r##"<path class="base" stroke="#8a8a8a" d="M{x:.1} {floor}v5"/>"##)?;
            writeln!(
                f,
                r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" stroke="none">{text}</text>"#
            )?;
        }
        let (x, y) = ((LEFT + right) / 2.0, floor + 42.0);
        let logarithmic = if self.axis.is_logarithmic() { ", logarithmic" } else { "" };
        writeln!(
            f,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" stroke="none">cache size in sessions{logarithmic}</text>
</g>"#
        )
    }

    fn view(&self, f: &mut fmt::Formatter<'_>, view: View<'_>, shown: bool) -> fmt::Result {
        let (rate, group) = view.key();
        let display = if shown { "" } else { r#" display="none""# };
        write!(
            f,
            r##"<g class="view" data-rate="{rate}" data-group="{group}"{display}>
<text class="heading" x="0" y="16" font-size="14" font-weight="600" fill="#222">{}"##,
            view.heading()
        )?;
        f.write_str("</text>\n<text class=\"unit\" x=\"0\" y=\"36\" fill=\"#5c5c5c\">percent")?;
        if let Some((_, name)) = view.group {
            let fits = if self.format == Format::Wide { 90 } else { 40 };
            let cut = if name.chars().count() > fits { "…" } else { "" };
            let name: String = name.chars().take(fits).collect();
            write!(f, " · {}{cut}", Escaped(&name))?;
        }
        writeln!(f, "</text>")?;
        let curves: Vec<_> = self.curves.iter().map(|curve| self.points(curve, view)).collect();
        let labels = match self.format {
            Format::Wide => self.label_heights(&curves),
            Format::Narrow => vec![None; curves.len()],
        };
        for (at, points) in curves.iter().enumerate() {
            self.curve(f, at, points, labels[at])?;
        }
        writeln!(f, "</g>")
    }

    fn curve(
        &self,
        f: &mut fmt::Formatter<'_>,
        at: usize,
        points: &[Point<'_>],
        label: Option<f64>,
    ) -> fmt::Result {
        let mark = Mark::of(at);
        let (colour, dashes) = (mark.colour(), mark.dashes());
        write!(f, r#"<g class="curve c{}" data-policy="{at}" color="{colour}">"#, mark.hue())?;
        if points.iter().any(|point| point.rate.sd > 0.0) {
            self.band(f, points)?;
        }
        f.write_str(r#"<polyline class="line" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round""#)?;
        if let Some(dashes) = dashes {
            write!(f, r#" stroke-dasharray="{dashes}""#)?;
        }
        f.write_str(" points=\"")?;
        for (at, point) in points.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(f, "{space}{:.1},{:.1}", point.x, point.y)?;
        }
        writeln!(f, "\"/>")?;
        let stride = points.len().div_ceil(MARKERS_MAX).max(1);
        for (index, point) in points.iter().enumerate() {
            // The last one has a marker in any case.
            let marked = (points.len() - 1 - index).is_multiple_of(stride);
            self.point(f, mark, self.curves[at].policy.as_str(), *point, marked)?;
        }
        if let (Some(y), Some(last)) = (label, points.last()) {
            self.label(f, mark, self.curves[at].policy.as_str(), last.y, y)?;
        }
        writeln!(f, "</g>")
    }

    /// One standard deviation to either side; bars where there is nothing to lie between.
    fn band(&self, f: &mut fmt::Formatter<'_>, points: &[Point<'_>]) -> fmt::Result {
        if let [Point { rate, x, .. }] = points {
            let (top, bottom) = (self.y(rate.mean + rate.sd), self.y(rate.mean - rate.sd));
            return write!(
                f,
                r#"<path class="band" stroke="currentColor" stroke-opacity=".5" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#
            );
        }
        let above = points.iter().map(|point| (point.x, point.rate.mean + point.rate.sd));
        let below = points.iter().rev().map(|point| (point.x, point.rate.mean - point.rate.sd));
        f.write_str(r#"<path class="band" fill="currentColor" fill-opacity=".13" d=""#)?;
        for (at, (x, percent)) in above.chain(below).enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            write!(f, "{command}{x:.1} {:.1}", self.y(percent))?;
        }
        writeln!(f, "Z\"/>")
    }

    fn point(
        &self,
        f: &mut fmt::Formatter<'_>,
        mark: Mark,
        policy: &str,
        Point { cell, rate, x, y }: Point<'_>,
        marked: bool,
    ) -> fmt::Result {
        let (capacity, rate) = (thousands(cell.capacity.into()), percent(Some(rate), cell.seeds));
        write!(f, r#"<g class="point" transform="translate({x:.1} {y:.1})">"#)?;
        write!(f, "<title>{policy}\n{capacity} sessions\n{rate} %")?;
        if cell.seeds != self.seeds {
            write!(f, "\n{} of {} seeds", cell.seeds, self.seeds)?;
        }
        f.write_str("</title>")?;
        if marked {
            write!(f, "{mark}")?;
        }
        writeln!(f, "</g>")
    }

    fn label(
        &self,
        f: &mut fmt::Formatter<'_>,
        mark: Mark,
        policy: &str,
        from: f64,
        y: f64,
    ) -> fmt::Result {
        let (right, x) = (self.right, self.right + TO_LABEL);
        let (start, end, text) = (right + 7.0, x - 8.0, x + 11.0);
        let baseline = y + 4.5;
        writeln!(
            f,
            r##"<path class="leader" fill="none" stroke="currentColor" stroke-opacity=".5" d="M{start:.1} {from:.1}L{end:.1} {y:.1}"/><g transform="translate({x:.1} {y:.1})">{mark}</g><text class="label" x="{text:.1}" y="{baseline:.1}" fill="#222">{policy}</text>"##
        )
    }

    /// How high each curve's name stands: as near to its end as the others let it.
    fn label_heights(&self, curves: &[Vec<Point<'_>>]) -> Vec<Option<f64>> {
        // Only a line that reaches the plot's edge can be named there.
        let reaches = |points: &[Point<'_>]| points.last().is_some_and(|p| p.x > self.right - 1.0);
        let mut ends: Vec<usize> = (0..curves.len()).filter(|at| reaches(&curves[*at])).collect();
        // Those that end together stand in the order in which they came there.
        let backwards = |at: usize| curves[at].iter().rev().map(|point| point.y.round() as i64);
        ends.sort_by(|a, b| backwards(*a).cmp(backwards(*b)));
        let mut heights = vec![None; curves.len()];
        let mut free = f64::NEG_INFINITY;
        for at in &ends {
            let y = curves[*at].last().map_or(free, |last| last.y.max(free));
            heights[*at] = Some(y);
            free = y + LINE_HEIGHT;
        }
        // What was pushed below the plot moves up again.
        let mut free = self.floor;
        for at in ends.iter().rev() {
            let y = heights[*at].map(|y| y.min(free));
            heights[*at] = y;
            free = y.map_or(free, |y| y - LINE_HEIGHT);
        }
        heights
    }
}

impl fmt::Display for Legend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<ul class=\"legend\" aria-label=\"Policies\">\n")?;
        for (at, curve) in self.0.iter().enumerate() {
            let mark = Mark::of(at);
            let (hue, colour) = (mark.hue(), mark.colour());
            write!(
                f,
                r#"<li><button type="button" aria-pressed="true" data-policy="{at}"><svg class="c{hue}" width="34" height="14" viewBox="-17 -7 34 14" color="{colour}" aria-hidden="true"><path stroke="currentColor" stroke-width="2""#
            )?;
            if let Some(dashes) = mark.dashes() {
                write!(f, r#" stroke-dasharray="{dashes}""#)?;
            }
            writeln!(f, r#" d="M-17 0H17"/>{mark}</svg>{}</button>"#, curve.policy)?;
        }
        f.write_str("</ul>\n")
    }
}
