//! The cost of handshakes, as given or as measured on this machine.

#[cfg(feature = "lab")]
mod measured;

use rejoin_sim::Tls;
use rejoin_sim::sizing::OPENSSL;
use serde::Serialize;

use super::Arguments;
use crate::arguments::Misuse;

/// The server's CPU time of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct HandshakeCost {
    /// The TLS version, as on the command line.
    pub(super) tls: &'static str,
    /// Microseconds of a full handshake.
    pub(super) full_us: f64,
    /// Microseconds of a resumed one.
    pub(super) resumed_us: f64,
}

/// The known costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Costs {
    /// The cost in the arrivals' TLS version, if it is known.
    pub(super) handshake: Option<HandshakeCost>,
    /// The source of that cost.
    pub(super) source: Option<String>,
    /// All measured costs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) measured: Vec<HandshakeCost>,
    /// Bytes of a session in OpenSSL's internal cache.
    pub(super) openssl_session_bytes: f64,
    /// The source of that number.
    pub(super) openssl_session_bytes_source: String,
}

impl Costs {
    pub(super) fn of(arguments: &Arguments, tls: Tls) -> anyhow::Result<Self> {
        let mut costs = Self::known();
        let tls = version(tls);
        if let (Some(full_us), Some(resumed_us)) = (arguments.full_us, arguments.resumed_us) {
            if resumed_us >= full_us {
                let what = "--resumed-us is not below --full-us: there is nothing to save";
                return Err(Misuse(what.to_owned()).into());
            }
            costs.handshake = Some(HandshakeCost { tls, full_us, resumed_us });
            costs.source = Some("given".to_owned());
        }
        #[cfg(feature = "lab")]
        if arguments.measure {
            costs.measure(arguments.key_type, tls)?;
        }
        Ok(costs)
    }

    /// Returns what is known without measuring.
    pub(super) fn known() -> Self {
        Self {
            handshake: None,
            source: None,
            measured: Vec::new(),
            openssl_session_bytes: OPENSSL.session_bytes,
            openssl_session_bytes_source: OPENSSL.source.to_owned(),
        }
    }

    /// Returns the cores saved if this many handshakes a second are resumed rather than full.
    pub(super) fn cores(&self, avoided_per_s: f64) -> Option<f64> {
        let cost = self.handshake?;
        Some(avoided_per_s * (cost.full_us - cost.resumed_us) / 1e6)
    }

    /// Returns the bytes of this many sessions in OpenSSL's internal cache.
    pub(super) fn openssl_bytes(&self, sessions: u32) -> u64 {
        (f64::from(sessions) * self.openssl_session_bytes).ceil() as u64
    }
}

/// Returns the version's name, as on the command line.
pub(super) const fn version(tls: Tls) -> &'static str {
    match tls {
        Tls::V1_2 => "1.2",
        Tls::V1_3 { .. } => "1.3",
    }
}
