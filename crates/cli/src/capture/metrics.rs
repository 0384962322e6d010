//! The counts of a live capture as metrics, and the port that serves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rejoin_capture::{Carrier, Class, Handshake};
use rejoin_serve::metrics::Meters;
use rejoin_serve::{Answer, StatusPort};

use crate::terminal::{self, Watch};

const KINDS: [&str; 4] = ["full", "resumed", "unknown", "unanswered"];
const PROTOCOLS: [&str; 3] = ["tls", "quic", "dtls"];

/// The counts so far. They name nobody.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By protocol and kind.
    handshakes: [[AtomicU64; KINDS.len()]; PROTOCOLS.len()],
    files: AtomicU64,
}

impl Counts {
    /// Counts an input as it is begun.
    pub(super) fn begin(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, handshake: &Handshake) {
        let kind = match handshake.cls {
            Class::Full => 0,
            Class::Resumed => 1,
            Class::Unknown => 2,
            Class::NoServerhello => 3,
        };
        let protocol = match handshake.carrier {
            Carrier::Quic => 1,
            Carrier::Dtls => 2,
            _ => 0,
        };
        self.handshakes[protocol][kind].fetch_add(1, Ordering::Relaxed);
    }

    fn meters(&self, lost: u64) -> Meters {
        let mut meters = Meters::new(Vec::new());
        let each = self.handshakes.iter().zip(PROTOCOLS).flat_map(|(kinds, protocol)| {
            kinds.iter().zip(KINDS).map(move |(count, kind)| {
                let labels = [("protocol", protocol), ("kind", kind)];
                let labels = labels.map(|(name, value)| (name, value.to_owned()));
                (labels.into(), count.load(Ordering::Relaxed))
            })
        });
        let help = "Handshakes found; unknown ones do not show if they were resumed, unanswered ones have no ServerHello";
        meters.counters("capture_handshakes", help, each.collect());
        let help = "Files begun; 1 for an interface";
        meters.counter("capture_files", help, self.files.load(Ordering::Relaxed));
        let help = "Packets that arrived faster than they were read, and are lost";
        meters.counter("capture_packets_lost", help, lost);
        meters
    }
}

/// Serves the counts until `watch` ends, and prints where.
pub(super) fn serve(
    watch: &Watch,
    address: SocketAddr,
    counts: Arc<Counts>,
    lost: Arc<AtomicU32>,
) -> anyhow::Result<()> {
    let port = watch.block_on(StatusPort::listen(address))?;
    let address = port.address()?;
    terminal::complain(&format!("metrics on http://{address}/metrics"));
    terminal::warn_of_others(address);
    watch.spawn(async move {
        let page = move |path: &str| match path {
            "/metrics" => Answer::metrics(counts.meters(lost.load(Ordering::Relaxed).into())),
            _ => Answer::not_found("try /metrics\n"),
        };
        port.serve(page).await;
    });
    Ok(())
}
