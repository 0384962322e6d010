//! `rejoin bench handshake`

use std::path::PathBuf;

use rejoin_lab::handshake::{self, Java, Settings, Stack};
use rejoin_report::distinct;
use rejoin_serve::{KeyType, Versions};
use serde_json::json;

use crate::arguments::{Choice, KEY_TYPES, TLS, each_version, one_of};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Client and server run in one thread and exchange records in memory; all combinations take turns.
Combinations that a library does not support here are named and left out. JMH measures jsse, one
combination after the other in about ten seconds each; `make bench-handshake` builds the benchmark.
After Ctrl-C the figures so far are shown.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned.
Examples:
  rejoin bench handshake --html handshake.html
  rejoin bench handshake --stack rustls --key-type ml-dsa-65 --client-certificates with --json")]
pub(crate) struct Arguments {
    /// The TLS libraries
    #[arg(long, value_parser = one_of(STACKS), value_delimiter = ',', default_value = "openssl,rustls")]
    stack: Vec<Stack>,
    /// The TLS versions, each measured alone
    #[arg(long, value_parser = one_of(TLS), value_delimiter = ',', default_value = "both")]
    tls: Vec<Versions>,
    /// The types of the certificates' keys
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", value_delimiter = ',', default_value = "rsa-2048,p-256,ml-dsa-65")]
    key_type: Vec<KeyType>,
    /// Clients without or with certificates
    #[arg(long, value_parser = one_of(CLIENT_CERTIFICATES), value_delimiter = ',', default_value = "without,with")]
    client_certificates: Vec<bool>,
    /// Batches of each combination [default: 15; with --quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: Option<u16>,
    /// Handshakes in a batch [default: 20; with --quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::LARGEST_BATCH)))]
    batch: Option<u16>,
    /// Use fewer and smaller batches by default: two seconds, coarser figures
    #[arg(long)]
    quick: bool,
    /// The folder of the JMH benchmark for jsse
    #[arg(long, value_name = "FOLDER", alias = "java", default_value = Java::TARGET)]
    jmh: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page with charts too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const STACKS: &[Choice<Stack>] = &[
    (Stack::OpenSsl, "openssl", "the system's OpenSSL"),
    (Stack::Rustls, "rustls", "rustls with aws-lc-rs"),
    (Stack::Jsse, "jsse", "the JDK's TLS"),
];
const CLIENT_CERTIFICATES: &[Choice<bool>] = &[(false, "without", ""), (true, "with", "")];

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments);
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let outcome = progress::watched(|stop, began| handshake::run(&settings, stop, began))?;
    let text = if arguments.json { json!(outcome).to_string() } else { handshake::text(&outcome) };
    terminal::print_result(&text)?;
    html.map(|file| file.write(&handshake::html(&outcome))).transpose()?;
    progress::whole(&outcome.ended, "interrupted", "batches")
}

fn settings(arguments: &Arguments) -> Settings {
    let quick = arguments.quick;
    Settings {
        stacks: distinct(arguments.stack.clone()),
        versions: each_version(&arguments.tls),
        keys: distinct(arguments.key_type.clone()),
        client_certificates: distinct(arguments.client_certificates.clone()),
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 15 }),
        batch: arguments.batch.unwrap_or(if quick { 5 } else { 20 }),
        java: Java { target: arguments.jmh.clone(), quick },
    }
}
