//! `rejoin bench insert`

use std::path::PathBuf;

use rejoin_lab::insert::{self, Jmh, Outcome, PATCH_003_NS, Row, Settings};
use rejoin_report::distinct;
use rejoin_trace::grouped;
use serde_json::json;

use crate::instruments::progress;
use crate::terminal;
use crate::units::seconds_in;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
`make bench-insert` builds the benchmark for --jmh and runs this command. Native caches take turns
on one thread, whose CPU time is measured; JMH measures JSSE, each JDK in its own processes.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned.
Examples:
  rejoin bench insert
  rejoin bench insert --jmh bindings/java/bench/target --json
  rejoin bench insert --entries 1000000 --lifetime 1d")]
pub(crate) struct Arguments {
    /// Sessions in a full cache, in turn
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "20480,204800", value_parser = clap::value_parser!(u32).range(1..=MOST_ENTRIES))]
    entries: Vec<u32>,
    /// The lifetime of sessions, in turn: at least an hour and 15 ms for each entry; 0 for no limit
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "1d,0", value_parser = seconds_in(0..=A_YEAR_S))]
    lifetime: Vec<u32>,
    /// The folder of the JMH benchmark for jsse [default: none, without jsse]
    #[arg(long, value_name = "FOLDER")]
    jmh: Option<PathBuf>,
    /// Java runtimes, in turn [default: all below /usr/lib/jvm]
    #[arg(long, value_name = "FILE,…", value_delimiter = ',', requires = "jmh")]
    java: Vec<PathBuf>,
    /// Run fewer and shorter rounds: coarser figures
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const MOST_ENTRIES: i64 = Settings::MOST_ENTRIES as i64;
const A_YEAR_S: u32 = 366 * 86_400;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments);
    let outcome = progress::watched(|stop, began| insert::measure(&settings, stop, began))?;
    anyhow::ensure!(!outcome.rows.is_empty(), "interrupted before anything was measured");
    let text = if arguments.json { json!(outcome).to_string() } else { text(&outcome) };
    terminal::print_result(&text)?;
    progress::whole(&outcome.ended, "interrupted", "steps")
}

fn settings(arguments: &Arguments) -> Settings {
    let quick = arguments.quick;
    let jmh = arguments.jmh.clone().map(|folder| {
        let given = arguments.java.clone();
        let javas = if given.is_empty() { insert::installed() } else { given };
        let (iteration_s, iterations) = if quick { (1, 2) } else { (2, 6) };
        Jmh { folder, javas, iteration_s, iterations }
    });
    Settings {
        entries: distinct(arguments.entries.clone()),
        lifetimes_s: distinct(arguments.lifetime.clone()),
        rounds: if quick { 15 } else { 101 },
        jmh,
    }
}

fn text(outcome: &Outcome) -> String {
    let mut text = table(&outcome.rows);
    if let Some(left_out) = &outcome.left_out {
        text.push_str(&format!("\n\n{left_out}"));
    }
    text.push_str(&progress::notes(&outcome.ended));
    text
}

fn table(rows: &[Row]) -> String {
    let head = ["cache", "entries", "lifetime s", "ns", "least", "most", "stored %"];
    let line = |cache: String, (entries, lifetime_s): (u32, u32), figures: [f64; 4]| {
        let mut line = vec![cache, grouped(u64::from(entries)), grouped(u64::from(lifetime_s))];
        line.extend(
            figures.map(|ns| if ns.is_nan() { "–".to_owned() } else { grouped(ns.round() as u64) }),
        );
        line
    };
    let measured = rows.iter().map(|row| {
        let figures = [row.ns, row.least_ns, row.most_ns, row.stored_percent];
        line(rejoin_lab::marked(&row.cache, row.kept_up), (row.entries, row.lifetime_s), figures)
    });
    let is_measured = |entries, lifetime_s| {
        rows.iter().any(|row| (row.entries, row.lifetime_s) == (entries, lifetime_s))
    };
    let paper =
        PATCH_003_NS.iter().filter(|(entries, lifetime_s, ..)| is_measured(*entries, *lifetime_s));
    let paper = paper.flat_map(|(entries, lifetime_s, before, after)| {
        [("before", before), ("after", after)].map(|(when, ns)| {
            let cell = (*entries, *lifetime_s);
            line(format!("the patch's JSSE, {when}"), cell, [*ns, f64::NAN, f64::NAN, 100.0])
        })
    });
    let mut rows: Vec<Vec<String>> = measured.chain(paper).collect();
    // Groups the rows by size and lifetime, as the caches were measured in each.
    let mut cells: Vec<[String; 2]> = Vec::new();
    for row in &rows {
        let cell = [row[1].clone(), row[2].clone()];
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    rows.sort_by_key(|row| cells.iter().position(|cell| row[1..3] == *cell));
    rejoin_report::table(&[0], head, rows)
}
