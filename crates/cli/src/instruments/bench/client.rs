//! `rejoin bench client`

use std::path::PathBuf;

use anyhow::Context;
use rejoin_lab::client::{self, Chain, Costs, Outcome, Row, Settings};
use rejoin_report::distinct;
use rejoin_serve::Versions;
use rejoin_trace::grouped;
use serde_json::json;

use crate::arguments::{Choice, TLS, one_of};
use crate::instruments::progress;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each program is a curl that fetches one page, in turns with Rejoin and without, from one server on
this machine. A round trip above 0 is a delaying relay with TCP's slow start, ten segments at first.
Compare the ratios of one run: times depend on the machine. docs/bench.md says what is measured.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned.
Examples:
  rejoin bench client
  rejoin bench client --quick
  rejoin bench client --round-trip-ms 0,40 --tls 1.2 --chain rsa-2048 --programs 100 --json")]
pub(crate) struct Arguments {
    /// Programs of each way in a row [default: 30; with --quick: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PROGRAMS))]
    programs: Option<u32>,
    /// Round trips of the path, in turn; 0 is loopback [default: 0,10,40,100; with --quick: 0,40]
    #[arg(long, value_name = "MS,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=10_000))]
    round_trip_ms: Vec<u32>,
    /// The TLS version
    #[arg(long, value_parser = one_of(TLS), default_value = "both")]
    tls: Versions,
    /// The server's certificates, in turn [default: all]
    #[arg(long, value_name = "CHAIN,…", value_delimiter = ',', value_parser = one_of(CHAINS))]
    chain: Vec<Chain>,
    /// librejoin.so, which has librejoin_preload.so beside it [default: the one beside this program,
    /// else in the system's library folders]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Run fewer programs over fewer paths: coarser figures
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const MOST_PROGRAMS: i64 = Settings::MOST_PROGRAMS as i64;

const CHAINS: &[Choice<Chain>] = &[
    (Chain::Rsa2048, "rsa-2048", ""),
    (Chain::P256, "p-256", ""),
    (Chain::MlDsaSized, "ml-dsa", "P-256 with the size of ML-DSA-65"),
];

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments)?;
    let outcome = progress::watched(|stop, began| client::measure(&settings, stop, began))?;
    anyhow::ensure!(!outcome.rows.is_empty(), "interrupted before anything was measured");
    let text = if arguments.json { json!(outcome).to_string() } else { text(&outcome) };
    terminal::print_result(&text)?;
    progress::whole(&outcome.ended, "interrupted", "rows")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let quick = arguments.quick;
    let or = |given: Vec<u32>, else_: &[u32]| if given.is_empty() { else_.to_vec() } else { given };
    let round_trips: &[u32] = if quick { &[0, 40] } else { &[0, 10, 40, 100] };
    let chains = distinct(arguments.chain.clone());
    Ok(Settings {
        rejoin: std::env::current_exe().context("cannot find this program's own file")?,
        library: crate::run::preload(arguments.library.as_deref())?.into(),
        programs: arguments.programs.unwrap_or(if quick { 8 } else { 30 }),
        versions: arguments.tls.each().to_vec(),
        chains: if chains.is_empty() { Chain::ALL.to_vec() } else { chains },
        round_trips_ms: distinct(or(arguments.round_trip_ms.clone(), round_trips)),
    })
}

fn text(outcome: &Outcome) -> String {
    let mut text = table(&outcome.rows);
    text.push_str(&progress::notes(&outcome.ended));
    text
}

/// Each cell that has an arrow is without Rejoin and with it.
fn table(rows: &[Row]) -> String {
    let head =
        "chain|TLS|round trip ms|wall ms|wall ×|client CPU ms|manager|server|CPU ×|bytes|resumed %";
    let rows = rows.iter().map(|row| {
        let both =
            |of: fn(&Costs) -> f64| format!("{:.1} → {:.1}", of(&row.without), of(&row.with));
        let bytes = |costs: &Costs| grouped(costs.bytes.round() as u64);
        vec![
            rejoin_lab::marked(row.chain, row.kept_up),
            row.tls.to_owned(),
            row.round_trip_ms.to_string(),
            both(|costs| costs.wall_ms),
            format!("{:.2}", row.wall_times),
            both(|costs| costs.client_ms),
            format!("{:.1}", row.with.manager_ms),
            both(|costs| costs.server_ms),
            format!("{:.2}", row.cpu_times),
            format!("{} → {}", bytes(&row.without), bytes(&row.with)),
            format!("{:.0}", row.resumed_percent),
        ]
    });
    rejoin_report::table(&[0], head.split('|'), rows)
}
