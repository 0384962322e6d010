//! The times of the handshakes in a capture, beside those of the model.

use serde::Serialize;

use super::counted::Protocol;
use super::findings::Bytes;
use super::uses::Uses;

/// The handshakes of one protocol family, full and resumed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// The protocol family.
    pub protocol: &'static str,
    /// The full handshakes.
    pub full: Times,
    /// The resumed handshakes.
    pub resumed: Times,
}

/// How long handshakes took, from the ClientHello until both sides had sent encrypted records.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// The handshakes.
    pub handshakes: u64,
    /// Those of which the capture shows the time.
    pub timed: u64,
    /// The median time, in milliseconds; `None` if there is none.
    pub median_ms: Option<f64>,
    /// The average number of bytes of both sides; `None` if the capture lacks a side of each.
    pub bytes: Option<f64>,
}

/// Measures each protocol family that occurs.
pub(super) fn of(uses: &Uses) -> Vec<Measured> {
    let measured = Protocol::ALL.map(|protocol| Measured {
        protocol: protocol.name(),
        full: times(uses, protocol, true),
        resumed: times(uses, protocol, false),
    });
    measured.into_iter().filter(|it| it.full.handshakes + it.resumed.handshakes > 0).collect()
}

fn times(uses: &Uses, protocol: Protocol, is_full: bool) -> Times {
    let of_kind =
        || uses.iter().filter(move |used| used.protocol == protocol && used.is_full == is_full);
    let timed = of_kind().filter(|used| used.is_timed);
    let took_ms: Vec<f64> = timed.map(|used| f64::from(used.lasted_us) / 1e3).collect();
    let handshakes = of_kind().count() as u64;
    Times {
        handshakes,
        timed: took_ms.len() as u64,
        median_ms: (!took_ms.is_empty()).then(|| rejoin_report::median(took_ms)),
        bytes: Bytes::mean(of_kind()).map(|bytes| bytes.sum()),
    }
}
