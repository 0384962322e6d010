//! What handshakes cost, as given or as measured in place.

use rejoin_bench::KeyType;
use rejoin_bench::handshake::{self, ServerCost};
use rejoin_bench::server::{self, Versions};
use rejoin_sim::Tls;
use rejoin_sim::sizing::OPENSSL;
use serde::Serialize;

use super::Arguments;
use crate::arguments::{KeyName, Misuse};

/// What is known of costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Costs {
    /// Of the version that the arrivals speak; nothing if nobody said.
    pub(super) handshake: Option<ServerCost>,
    /// Where that is from.
    pub(super) source: Option<String>,
    /// All that was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) measured: Vec<ServerCost>,
    /// Bytes of a session in OpenSSL's own cache.
    pub(super) openssl_session_bytes: f64,
    /// Where that is from.
    pub(super) openssl_session_bytes_source: String,
}

impl Costs {
    pub(super) fn of(arguments: &Arguments, tls: Tls) -> anyhow::Result<Self> {
        let mut costs = Self {
            handshake: None,
            source: None,
            measured: Vec::new(),
            openssl_session_bytes: OPENSSL.session_bytes,
            openssl_session_bytes_source: OPENSSL.source.to_owned(),
        };
        let tls = version(tls);
        if let (Some(full_us), Some(resumed_us)) = (arguments.full_us, arguments.resumed_us) {
            if resumed_us >= full_us {
                let what = "--resumed-us is not below --full-us: then there is nothing to save";
                return Err(Misuse(what.to_owned()).into());
            }
            costs.handshake = Some(ServerCost { tls, full_us, resumed_us });
            costs.source = Some("given".to_owned());
        }
        if arguments.measure {
            costs.measure(arguments.key, tls)?;
        }
        Ok(costs)
    }

    fn measure(&mut self, key: KeyName, tls: &str) -> Result<(), rejoin_bench::Error> {
        // Only before anything else of OpenSSL's.
        server::weigh_internal_cache();
        let key = KeyType::from(key);
        let name = match key {
            KeyType::Rsa2048 => "RSA with 2,048 bits",
            KeyType::P256 => "ECDSA on P-256",
            KeyType::MlDsa65 => "ML-DSA-65",
        };
        let versions = if tls == "1.2" { Versions::Tls12 } else { Versions::Tls13 };
        key.check_openssl(versions)?;
        self.measured = handshake::server_costs(key)?;
        self.handshake = self.measured.iter().copied().find(|cost| cost.tls == tls);
        self.source = Some(format!("measured here with libssl, {name}"));
        if let Some(bytes) = handshake::internal_cache_session_bytes()? {
            self.openssl_session_bytes = bytes;
            self.openssl_session_bytes_source = "counted here as libssl frees them".to_owned();
        }
        Ok(())
    }

    /// Cores that so many handshakes a second keep busy when they are full and not when resumed.
    pub(super) fn cores(&self, avoided_per_s: f64) -> Option<f64> {
        let cost = self.handshake?;
        Some(avoided_per_s * (cost.full_us - cost.resumed_us) / 1e6)
    }

    /// Bytes of so many sessions in OpenSSL's own cache.
    pub(super) fn openssl_bytes(&self, sessions: u32) -> u64 {
        (f64::from(sessions) * self.openssl_session_bytes).ceil() as u64
    }
}

/// As on the command line.
pub(super) const fn version(tls: Tls) -> &'static str {
    match tls {
        Tls::V1_2 => "1.2",
        Tls::V1_3 { .. } => "1.3",
    }
}
