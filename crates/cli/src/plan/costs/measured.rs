//! `rejoin plan --measure`: the cost of handshakes on this machine.

use rejoin_lab::{Error, handshake};
use rejoin_serve::{KeyType, Versions, weigh_internal_cache};

use super::{Costs, HandshakeCost};
use crate::instruments::told;

impl Costs {
    /// Measures the costs and replaces the present ones.
    pub(super) fn measure(&mut self, key: KeyType, tls: &str) -> anyhow::Result<()> {
        told(self.try_measure(key, tls).map_err(Into::into))
    }

    fn try_measure(&mut self, key: KeyType, tls: &str) -> Result<(), Error> {
        // Must precede any other use of OpenSSL.
        weigh_internal_cache();
        let name = match key {
            KeyType::Rsa2048 => "RSA with 2,048 bits",
            KeyType::P256 => "ECDSA on P-256",
            KeyType::MlDsa65 => "ML-DSA-65",
        };
        let versions = if tls == "1.2" { Versions::Tls12 } else { Versions::Tls13 };
        key.check_openssl(versions)?;
        let measured = handshake::server_costs(key)?.into_iter().map(|cost| HandshakeCost {
            tls: cost.tls,
            full_us: cost.full_us,
            resumed_us: cost.resumed_us,
        });
        self.measured = measured.collect();
        self.handshake = self.measured.iter().copied().find(|cost| cost.tls == tls);
        self.source = Some(format!("measured here with libssl, {name}"));
        if let Some(bytes) = handshake::internal_cache_session_bytes()? {
            self.openssl_session_bytes = bytes;
            self.openssl_session_bytes_source = "counted here as libssl frees them".to_owned();
        }
        Ok(())
    }
}
