//! `rejoin bench interning`

use rejoin_lab::interning::{self, Outcome, Row, Settings};
use rejoin_report::distinct;
use rejoin_serve::{KeyType, Versions};
use rejoin_trace::grouped;
use serde_json::json;

use crate::arguments::{KEY_TYPES, TLS, one_of};
use crate::instruments::progress;
use crate::terminal;
use crate::units::Bytes;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The benchmark makes real OpenSSL handshakes in memory, in one thread. It measures the server's CPU
time and the bytes that OpenSSL allocates for it. It needs about 30 KiB of memory for each
certificate.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned.
Examples:
  rejoin bench interning
  rejoin bench interning --certificates 1,1000 --tls 1.3 --key-type rsa-2048 --json
  rejoin bench interning --certificates 10000 --room 32MiB")]
pub(crate) struct Arguments {
    /// Distinct client certificates, in turn [default: 1,10000; with --quick: 1,1000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_CERTIFICATES))]
    certificates: Vec<u32>,
    /// The TLS version
    #[arg(long, value_parser = one_of(TLS), default_value = "both")]
    tls: Versions,
    /// The type of the certificates' keys
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", default_value = "p-256")]
    key_type: KeyType,
    /// Memory for decoded certificates; servers have 32MiB. Clients beyond it take turns [default:
    /// enough for all]
    #[arg(long, value_name = "SIZE")]
    room: Option<Bytes>,
    /// Measure fewer resumptions of fewer clients: seconds, coarser figures
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const MOST_CERTIFICATES: i64 = Settings::MOST_CERTIFICATES as i64;
const BATCHES: u32 = 401;
const QUICK_BATCHES: u32 = 61;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments);
    let outcome = progress::watched(|stop, began| interning::measure(&settings, stop, began))?;
    anyhow::ensure!(!outcome.rows.is_empty(), "interrupted before anything was measured");
    let text = if arguments.json { json!(outcome).to_string() } else { text(&outcome) };
    terminal::print_result(&text)?;
    progress::whole(&outcome.ended, "interrupted", "rows")
}

fn settings(arguments: &Arguments) -> Settings {
    let quick = arguments.quick;
    let mut certificates = distinct(arguments.certificates.clone());
    if certificates.is_empty() {
        certificates = vec![1, if quick { 1_000 } else { 10_000 }];
    }
    let versions = arguments.tls.each().to_vec();
    let batches = if quick { QUICK_BATCHES } else { BATCHES };
    let room_bytes = arguments.room.map(|Bytes(bytes)| bytes.try_into().unwrap_or(usize::MAX));
    Settings { versions, certificates, key_type: arguments.key_type, batches, room_bytes }
}

fn text(outcome: &Outcome) -> String {
    let mut text = table(&outcome.rows);
    if let Some(Row { certificate_bytes, decoded_bytes, decoding_allocates_bytes, .. }) =
        outcome.rows.first()
    {
        text.push_str(&format!(
            "\n\na certificate: {} bytes, {} when decoded, for which OpenSSL allocates {}",
            grouped(*certificate_bytes as u64),
            grouped(*decoded_bytes),
            grouped(*decoding_allocates_bytes)
        ));
    }
    text.push_str(&progress::notes(&outcome.ended));
    text
}

fn table(rows: &[Row]) -> String {
    let head = "TLS|certificates|decoded|per CPU-s|CPU µs|allocated B|× per s|saved B".split('|');
    let whole = |figure: f64| grouped(figure.round().max(0.0) as u64);
    let rows = rows.iter().flat_map(|row| {
        let line = |decoded: &str, taken: &interning::Taken| {
            vec![
                row.tls.to_owned(),
                grouped(u64::from(row.certificates)),
                rejoin_lab::marked(decoded, row.kept_up),
                whole(taken.per_cpu_s),
                format!("{:.1}", taken.cpu_us),
                whole(taken.allocated_bytes),
            ]
        };
        let saved = vec![format!("{:.2}", row.times), whole(row.saved_bytes)];
        [line("each time", &row.each_time), [line("once", &row.once), saved].concat()]
    });
    rejoin_report::table(&[2], head, rows)
}
