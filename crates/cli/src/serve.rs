//! `rejoin serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rejoin_cache::{Capacity, Prediction, Settings as CacheSettings};
use rejoin_serve::{
    Identity, KeyType, RESPONSE_BYTES, Resumption, Server, Settings, Stack, Summary, TicketKeysOf,
    Versions,
};
use rejoin_store::{CacheName, Store};
use serde_json::json;

use crate::arguments::{Choice, KEY_TYPES, Misuse, PREDICTIONS, RESUMPTIONS, TLS, address, one_of};
use crate::units::{Bytes, Time, bytes_in};
use crate::{process, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A client may announce in how many seconds it connects again, in the HTTP field `Next-Connect: 60`.
Examples:
  rejoin serve --resumption predictive --capacity-sessions 5000 --metrics 127.0.0.1:9443
  rejoin serve --resumption tickets --ticket-keys web --listen 127.0.0.1:8444")]
pub(crate) struct Arguments {
    /// The address to serve HTTPS on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443", value_parser = address)]
    listen: SocketAddr,
    /// The address to serve /metrics for Prometheus on, over plain HTTP
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// The TLS library
    #[arg(long, value_parser = one_of(STACKS), default_value = "openssl")]
    stack: Stack,
    /// The TLS version
    #[arg(long, value_parser = one_of(TLS), default_value = "both")]
    tls: Versions,
    /// The way of resuming sessions
    #[arg(long, value_parser = one_of(RESUMPTIONS), default_value = "predictive")]
    resumption: Resumption,
    /// Share the ticket keys of this shared cache with other servers, with --resumption tickets
    #[arg(long, value_name = "NAME")]
    ticket_keys: Option<CacheName>,
    /// The folder of the shared cache
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER, requires = "ticket_keys")]
    folder: PathBuf,
    /// Sessions that the cache may hold [default: 20480, as OpenSSL's internal cache]
    #[arg(long, value_name = "N", conflicts_with = "capacity")]
    capacity_sessions: Option<u64>,
    /// Memory that the cache may take, such as 512MiB
    #[arg(long, value_name = "SIZE", alias = "capacity-bytes")]
    capacity: Option<Bytes>,
    /// The source of the predicted return times
    #[arg(long, value_parser = one_of(PREDICTIONS), default_value = "both")]
    prediction: Prediction,
    /// How late a client may return before its session is evicted first
    #[arg(long, value_name = "TIME", default_value = GRACE)]
    grace: Time,
    /// The old name of --grace, in milliseconds
    #[arg(long, value_name = "MS", hide = true, conflicts_with = "grace")]
    grace_ms: Option<u64>,
    /// Threads
    #[arg(long, value_name = "N", alias = "workers", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// The certificate chain, in PEM [default: a new certificate for localhost]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Write the new certificate to a file, for clients to trust
    #[arg(long, value_name = "FILE", alias = "certificate-out", conflicts_with = "certificate")]
    write_certificate: Option<PathBuf>,
    /// The type of the new certificate's key
    #[arg(long, value_parser = one_of(KEY_TYPES), default_value = "p-256")]
    key_type: KeyType,
    /// The size of each response
    #[arg(long, value_name = "SIZE", default_value_t = RESPONSE_BYTES as u32, value_parser = bytes_in(1..=1 << 26))]
    response_bytes: u32,
    /// The size of each response's body, instead
    #[arg(long, value_name = "SIZE", conflicts_with = "response_bytes", value_parser = bytes_in(1..=1 << 26))]
    body_bytes: Option<u32>,
    /// Print a JSON object when the server listens, and another when it ends
    #[arg(long)]
    json: bool,
    /// End when the parent process ends
    #[arg(long, hide = true)]
    end_with_parent: bool,
    /// The longest time for a handshake, a request or a response; a server under valgrind needs more
    #[arg(long, value_name = "TIME", alias = "patience-s", default_value = PATIENCE, hide = true)]
    patience: Time,
}

const STACKS: &[Choice<Stack>] = &[
    (Stack::OpenSsl, "openssl", ""),
    (Stack::Rustls, "rustls", ""),
    (Stack::None, "none", "no TLS: plain HTTP, for comparison"),
];

/// The cache's default grace and the server's default patience, as arguments. A test compares them.
const GRACE: &str = "2s";
const PATIENCE: &str = "10s";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.resumption == Resumption::OpenSsl {
        // Counts the memory of OpenSSL's internal cache. It must precede OpenSSL's first allocation.
        rejoin_serve::weigh_internal_cache();
    }
    if arguments.end_with_parent {
        process::end_with_parent()?;
    }
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let runtime = crate::runtime(arguments.threads)?;
    runtime.block_on(async {
        let server = Server::bind(&settings).await?;
        let (listening, metrics) = server.addresses()?;
        let scheme = if settings.stack == Stack::None { "http" } else { "https" };
        announce(arguments.json, scheme, listening, metrics);
        // The server runs on the runtime's threads; block_on's own thread would be one more.
        let running = tokio::spawn(server.run(terminal::interrupted()));
        summarise(arguments.json, &running.await?);
        Ok(())
    })
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let capacity = match (arguments.capacity_sessions, arguments.capacity) {
        (_, Some(Bytes(bytes))) => Capacity::Bytes(bytes),
        (sessions, None) => Capacity::Sessions(sessions.unwrap_or(20_480)),
    };
    let cache = CacheSettings {
        prediction: arguments.prediction,
        grace_ms: arguments.grace_ms.unwrap_or(arguments.grace.ms),
        ..CacheSettings::new(capacity)
    };
    if arguments.metrics == Some(arguments.listen) && arguments.listen.port() != 0 {
        let why = "--listen and --metrics name the same address; give two addresses";
        return Err(Misuse(why.to_owned()).into());
    }
    if arguments.stack == Stack::None && arguments.write_certificate.is_some() {
        let why = "--write-certificate: there is no certificate without TLS; leave it out";
        return Err(Misuse(why.to_owned()).into());
    }
    Ok(Settings {
        listen: arguments.listen,
        metrics: arguments.metrics,
        stack: arguments.stack,
        versions: arguments.tls,
        resumption: arguments.resumption,
        ticket_keys: arguments
            .ticket_keys
            .clone()
            .map(|name| TicketKeysOf { folder: arguments.folder.clone(), name }),
        cache,
        identity: identity(arguments)?,
        response_bytes: arguments.response_bytes as usize,
        body_bytes: arguments.body_bytes.map(|bytes| bytes as usize),
        patience: Duration::from_millis(arguments.patience.ms),
    })
}

/// Returns the certificate and key, or `None` without TLS: generating a key takes longer than a
/// thousand plain requests.
fn identity(arguments: &Arguments) -> Result<Option<Identity>, rejoin_serve::Error> {
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        return Identity::read(certificate, key).map(Some);
    }
    if arguments.stack == Stack::None {
        return Ok(None);
    }
    let identity = Identity::made(arguments.key_type)?;
    if let Some(path) = &arguments.write_certificate {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_libraries() {
        assert_eq!(GRACE.parse(), Ok(Time { ms: CacheSettings::GRACE_MS }));
        let patience = rejoin_serve::PATIENCE.as_millis() as u64;
        assert_eq!(PATIENCE.parse(), Ok(Time { ms: patience }));
    }
}
