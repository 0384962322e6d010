//! `rejoin bench handshake`

use std::path::PathBuf;

use rejoin_lab::handshake::{self, Java, Settings, Stack};
use rejoin_serve::KeyType;
use rejoin_serve::Versions;
use serde_json::json;

use crate::arguments::{KeyName, Tls};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::sizes::distinct;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Client and server run in one thread and exchange records in memory; all combinations take turns.
Combinations that a library does not support here are named and left out. JMH measures jsse, one
combination after the other in about ten seconds each; `make bench-handshake` builds the benchmark.
After Ctrl-C the figures so far are shown.
Examples:
  rejoin bench handshake --html handshake.html
  rejoin bench handshake --stack rustls --tls 1.3 --key-type ml-dsa-65 --client-certificates with --json")]
pub(crate) struct Arguments {
    /// The TLS libraries
    #[arg(long, value_enum, value_delimiter = ',', default_value = "openssl,rustls")]
    stack: Vec<StackName>,
    /// The TLS versions, each measured alone
    #[arg(long, value_enum, value_delimiter = ',', default_value = "both")]
    tls: Vec<Tls>,
    /// The types of the certificates' keys
    #[arg(
        long,
        value_enum,
        alias = "key",
        value_delimiter = ',',
        default_value = "rsa-2048,p-256,ml-dsa-65"
    )]
    key_type: Vec<KeyName>,
    /// Clients without or with certificates
    #[arg(long, value_enum, value_delimiter = ',', default_value = "without,with")]
    client_certificates: Vec<ClientCertificates>,
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

/// A value of `--stack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
enum StackName {
    /// the system's OpenSSL
    Openssl,
    /// rustls with aws-lc-rs
    Rustls,
    /// the JDK's TLS
    Jsse,
}

/// A value of `--client-certificates`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
enum ClientCertificates {
    Without,
    With,
}

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
    let versions = arguments.tls.iter().flat_map(|tls| Versions::from(*tls).each()).copied();
    let stacks = distinct(arguments.stack.clone()).into_iter().map(|stack| match stack {
        StackName::Openssl => Stack::OpenSsl,
        StackName::Rustls => Stack::Rustls,
        StackName::Jsse => Stack::Jsse,
    });
    let with = distinct(arguments.client_certificates.clone()).into_iter();
    Settings {
        stacks: stacks.collect(),
        versions: distinct(versions.collect()),
        keys: distinct(arguments.key_type.clone()).into_iter().map(KeyType::from).collect(),
        client_certificates: with.map(|with| with == ClientCertificates::With).collect(),
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 15 }),
        batch: arguments.batch.unwrap_or(if quick { 5 } else { 20 }),
        java: Java { target: arguments.jmh.clone(), quick },
    }
}
