//! The demonstration's page: two charts and the figures, in one file without outside requests.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::Error;
use crate::demo::{Row, Settings};

/// Of the two versions of TLS. Both can be told apart without colour vision.
const COLOURS: [RGBColor; 2] = [RGBColor(0x1b, 0x6c, 0xa8), RGBColor(0xf2, 0xa5, 0x41)];
const SIZE: (u32, u32) = (860, 320);

/// Writes the page.
pub(crate) fn write(path: &Path, settings: &Settings, rows: &[Row]) -> Result<(), Error> {
    let page = page(settings, rows)
        .map_err(|error| Error::file(path.to_owned(), std::io::Error::other(error.to_string())))?;
    // Written beside and renamed: whoever looks sees a whole page.
    let beside = path.with_extension("html.new");
    std::fs::write(&beside, page)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| Error::file(path.to_owned(), source))
}

fn page(settings: &Settings, rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let hits = bars(rows, "percent resumed", |row| row.hit_after_first_of_run)?;
    let cpu = bars(rows, "µs of server CPU", |row| row.server_cpu_us)?;
    let capacity = rows.first().map_or(0, |row| row.capacity_sessions);
    let share = settings.capacity_share;
    let devices = settings.devices;
    Ok(format!(
        r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Rejoin: who resumes</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #ddd }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left }}
svg {{ width: 100%; height: auto }} i {{ display: inline-block; width: .8em; height: .8em; margin-right: .4em }} h2 {{ margin-top: 2rem; font-size: 1.15rem }}
</style>
<h1>Who resumes, and what it costs</h1>
<p>{devices} devices, each coming back every 15, 30 or 60 seconds while it runs, against one TLS
server that may keep {capacity} sessions: {share} of the devices running at a time. The same
recorded arrivals for every row; real handshakes on loopback.</p>
<p>{legend}</p>
<h2>Connections resumed, the first of each run left out</h2>
{hits}
<h2>Server CPU per connection</h2>
{cpu}
<h2>Figures</h2>
{table}
</html>
"#,
        legend = legend(rows)?,
        table = table(rows)?
    ))
}

fn legend(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut html = String::new();
    for (version, RGBColor(r, g, b)) in distinct(rows.iter().map(|r| r.tls)).iter().zip(COLOURS) {
        write!(html, r#"<i style="background:rgb({r},{g},{b})"></i>TLS {version}&emsp;"#)?;
    }
    Ok(html)
}

fn table(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut html = String::from(
        "<table><tr><th>TLS<th>resumption<th>resumed %<th>handshakes/s<th>server CPU µs\
         <th>bytes/session</tr>\n",
    );
    for row in rows {
        writeln!(
            html,
            "<tr><td>{}<td>{}<td>{:.1}<td>{:.0}<td>{:.0}<td>{:.0}</tr>",
            row.tls,
            row.resumption,
            row.hit_after_first_of_run,
            row.handshakes_per_s,
            row.server_cpu_us,
            row.cache_bytes_per_session
        )?;
    }
    html.push_str("</table>");
    Ok(html)
}

/// Bars side by side for each way of resuming, one per version.
fn bars(
    rows: &[Row],
    unit: &str,
    value: impl Fn(&Row) -> f64,
) -> Result<String, Box<dyn std::error::Error>> {
    let names = distinct(rows.iter().map(|row| row.resumption));
    let versions = distinct(rows.iter().map(|row| row.tls));
    let highest = rows.iter().map(&value).fold(1.0, f64::max) * 1.12;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..names.len() as f64, 0.0..highest)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(unit)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (at, version) in versions.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let of_version = rows.iter().filter(|row| row.tls == *version);
            chart.draw_series(of_version.map(|row| {
                let across = across(&names, row.resumption, at, versions.len());
                Rectangle::new([(across.start, 0.0), (across.end, value(row))], colour.filled())
            }))?;
        }
        label(&area, &names)?;
        for (at, version) in versions.iter().enumerate() {
            for row in rows.iter().filter(|row| row.tls == *version) {
                let across = across(&names, row.resumption, at, versions.len());
                let centre = (across.start + across.end) / 2.0;
                let (x, y) = chart.backend_coord(&(centre, value(row)));
                write_centred(&area, &format!("{:.0}", value(row)), (x, y - 16), 13)?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

/// Where a bar stands.
fn across(names: &[&str], name: &str, version: usize, versions: usize) -> Range<f64> {
    let group = names.iter().position(|known| *known == name).unwrap_or(0) as f64;
    let width = 0.7 / versions.max(1) as f64;
    let start = group + 0.15 + width * version as f64;
    start..start + width * 0.95
}

fn label(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    names: &[&str],
) -> Result<(), Box<dyn std::error::Error>> {
    let left = 60.0;
    let width = (f64::from(SIZE.0) - left - 8.0) / names.len().max(1) as f64;
    for (at, name) in names.iter().enumerate() {
        let x = left + width * (at as f64 + 0.5);
        write_centred(area, name, (x as i32, SIZE.1 as i32 - 28), 15)?;
    }
    Ok(())
}

fn write_centred(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    (x, y): (i32, i32),
    size: i32,
) -> Result<(), Box<dyn std::error::Error>> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let centred = ("sans-serif", size).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    Ok(area.draw_text(text, &centred, (x, y))?)
}

fn distinct(items: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}
