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
Client and server are in one thread, with memory between them; all combinations take turns. What a
library cannot do here is named, and left out. jsse is measured by JMH, which `make bench-handshake`
builds, in some ten seconds a combination, one after the other. Ctrl-C ends with what was measured
so far.
Examples:
  rejoin bench handshake --html handshake.html
  rejoin bench handshake --stack rustls --tls 1.3 --key ml-dsa-65 --client-certificates with --json")]
pub(crate) struct Arguments {
    /// TLS libraries
    #[arg(long, value_enum, value_delimiter = ',', default_value = "openssl,rustls")]
    stack: Vec<StackName>,
    /// TLS versions, each measured alone
    #[arg(long, value_enum, value_delimiter = ',', default_value = "both")]
    tls: Vec<Tls>,
    /// Keys of all certificates
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rsa-2048,p-256,ml-dsa-65")]
    key: Vec<KeyName>,
    /// Whether clients show certificates, too
    #[arg(long, value_enum, value_delimiter = ',', default_value = "without,with")]
    client_certificates: Vec<ClientCertificates>,
    /// Batches of each combination [default: 15; with --quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: Option<u16>,
    /// Handshakes of a batch [default: 20; with --quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::LARGEST_BATCH)))]
    batch: Option<u16>,
    /// Fewer and smaller batches, where nothing else is said: two seconds, coarser figures
    #[arg(long)]
    quick: bool,
    /// Where jsse's benchmark was built to
    #[arg(long, value_name = "FOLDER", default_value = Java::TARGET)]
    java: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page with bars, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `--stack`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
enum StackName {
    /// the system's
    Openssl,
    /// with aws-lc-rs
    Rustls,
    /// the JDK's
    Jsse,
}

/// `--client-certificates`
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
        keys: distinct(arguments.key.clone()).into_iter().map(KeyType::from).collect(),
        client_certificates: with.map(|with| with == ClientCertificates::With).collect(),
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 15 }),
        batch: arguments.batch.unwrap_or(if quick { 5 } else { 20 }),
        java: Java { target: arguments.java.clone(), quick },
    }
}
