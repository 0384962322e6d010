//! `rejoin serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rejoin_cache::{Capacity, Settings as CacheSettings};
use rejoin_serve::{Identity, PATIENCE, RESPONSE_BYTES, Server, Settings, Stack, Summary};
use serde_json::json;

use crate::arguments::{Bytes, KeyName, Misuse, PredictionName, ResumptionName, StackName, Tls};
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A client may announce when it connects next, in seconds, in the field `Next-Connect: 60`.
Example:
  rejoin serve --resumption predictive --capacity-sessions 5000 --metrics 127.0.0.1:9443")]
pub(crate) struct Arguments {
    /// Where to serve
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Where to serve GET /metrics for Prometheus, in clear
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// TLS library
    #[arg(long, value_enum, default_value = "openssl")]
    stack: StackName,
    /// TLS version
    #[arg(long, value_enum, default_value = "both")]
    tls: Tls,
    /// How sessions are resumed
    #[arg(long, value_enum, default_value = "predictive")]
    resumption: ResumptionName,
    /// Sessions the cache may hold [default: 20480, OpenSSL's own]
    #[arg(long, value_name = "N", conflicts_with = "capacity_bytes")]
    capacity_sessions: Option<u64>,
    /// Bytes the cache may take in all, as 512MiB
    #[arg(long, value_name = "BYTES")]
    capacity_bytes: Option<Bytes>,
    /// Where return times come from
    #[arg(long, value_enum, default_value = "both")]
    prediction: PredictionName,
    /// How late a client may be before its session is the first to go, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = CacheSettings::GRACE_MS)]
    grace_ms: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Certificate chain in PEM [default: one made on the spot for localhost]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Write the certificate made on the spot here, for clients to trust
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    certificate_out: Option<PathBuf>,
    /// Key of the certificate made on the spot
    #[arg(long, value_enum, default_value = "p-256")]
    key_type: KeyName,
    /// Bytes of each response
    #[arg(long, value_name = "N", default_value_t = RESPONSE_BYTES as u32, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    response_bytes: u32,
    /// Bytes of each response's body, instead
    #[arg(long, value_name = "N", conflicts_with = "response_bytes", value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    body_bytes: Option<u32>,
    /// Print one JSON object when listening and one at the end
    #[arg(long)]
    json: bool,
    /// End when the parent process does
    #[arg(long, hide = true)]
    end_with_parent: bool,
    /// Seconds for a handshake, a request or a response: more for a server under valgrind
    #[arg(long, value_name = "S", default_value_t = PATIENCE.as_secs(), hide = true)]
    patience_s: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.resumption == ResumptionName::Openssl {
        // Counts what OpenSSL's own cache weighs; works only before OpenSSL's first allocation.
        rejoin_serve::weigh_internal_cache();
    }
    if arguments.end_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let runtime = crate::runtime(arguments.workers)?;
    runtime.block_on(async {
        let server = Server::bind(&settings).await?;
        let (listening, metrics) = server.addresses()?;
        let scheme = if settings.stack == Stack::None { "http" } else { "https" };
        announce(arguments.json, scheme, listening, metrics);
        // On the runtime's own threads: block_on's thread is one more.
        let running = tokio::spawn(server.run(terminal::interrupted()));
        summarise(arguments.json, &running.await?);
        Ok(())
    })
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let capacity = match (arguments.capacity_sessions, arguments.capacity_bytes) {
        (_, Some(Bytes(bytes))) => Capacity::Bytes(bytes),
        (sessions, None) => Capacity::Sessions(sessions.unwrap_or(20_480)),
    };
    let cache = CacheSettings {
        prediction: arguments.prediction.into(),
        grace_ms: arguments.grace_ms,
        ..CacheSettings::new(capacity)
    };
    if arguments.metrics == Some(arguments.listen) && arguments.listen.port() != 0 {
        let why = "--listen and --metrics are the same address: give two";
        return Err(Misuse(why.to_owned()).into());
    }
    if Stack::from(arguments.stack) == Stack::None && arguments.certificate_out.is_some() {
        let why = "--certificate-out: there is no certificate without TLS: leave it out";
        return Err(Misuse(why.to_owned()).into());
    }
    Ok(Settings {
        listen: arguments.listen,
        metrics: arguments.metrics,
        stack: arguments.stack.into(),
        versions: arguments.tls.into(),
        resumption: arguments.resumption.into(),
        cache,
        identity: identity(arguments)?,
        response_bytes: arguments.response_bytes as usize,
        body_bytes: arguments.body_bytes.map(|bytes| bytes as usize),
        patience: Duration::from_secs(arguments.patience_s),
    })
}

/// `None` where there is no TLS: to make a key takes longer than a thousand requests in clear.
fn identity(arguments: &Arguments) -> Result<Option<Identity>, rejoin_serve::Error> {
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        return Identity::read(certificate, key).map(Some);
    }
    if Stack::from(arguments.stack) == Stack::None {
        return Ok(None);
    }
    let identity = Identity::made(arguments.key_type.into())?;
    if let Some(path) = &arguments.certificate_out {
        identity.write_certificate(path)?;
    }
    Ok(Some(identity))
}

fn announce(json: bool, scheme: &str, listening: SocketAddr, metrics: Option<SocketAddr>) {
    if json {
        return terminal::print(&json!({ "listening": listening, "metrics": metrics }).to_string());
    }
    let metrics =
        metrics.map_or_else(String::new, |at| format!(", metrics on http://{at}/metrics"));
    terminal::print(&format!("serving {scheme}://{listening}{metrics}; Ctrl-C ends"));
}

fn summarise(json: bool, summary: &Summary) {
    if json {
        return terminal::print(&json!(summary).to_string());
    }
    let Summary { full, resumed, failed, requests, cpu_us_per_handshake, .. } = summary;
    let share = *resumed as f64 * 100.0 / (full + resumed).max(1) as f64;
    terminal::print(&format!(
        "{} handshakes: {full} full, {resumed} resumed ({share:.1} %), {failed} failed; \
         {requests} requests; {cpu_us_per_handshake:.0} µs of CPU per handshake",
        full + resumed
    ));
}
