//! The cost of a handshake for a server on OpenSSL, in two figures: `rejoin plan` calculates with them.

use std::time::{Duration, Instant};

use rejoin_openssl::InternalCache;
use rejoin_report::median;
use serde::Serialize;

use super::by_openssl::OpenSslPair;
use super::chains::Chains;
use super::pair::{Pair, Watch};
use super::{Kept, Suite, connect};
use crate::Error;
use rejoin_serve::{KeyType, Versions};

/// The server's CPU time of a handshake, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServerCost {
    /// The version as on the command line: `1.2` or `1.3`.
    pub tls: &'static str,
    /// CPU time of a full handshake.
    pub full_us: f64,
    /// CPU time of a handshake resumed out of the shipped cache: by session id over TLS 1.2, by stateful ticket over
    /// TLS 1.3.
    pub resumed_us: f64,
}

/// Handshakes of a batch.
const BATCH: u32 = 20;
/// Batches of each kind, an odd number; fewer if they take longer than [`PATIENCE`].
const BATCHES: usize = 15;
/// For all batches of one version.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sessions that OpenSSL's own cache is weighed with.
const WEIGHED: u64 = 200;

/// Measures TLS 1.2, if it has such keys, then 1.3. Takes a few seconds at most.
///
/// # Errors
/// OpenSSL's; a type of key that it does not know.
pub fn server_costs(key: KeyType) -> Result<Vec<ServerCost>, Error> {
    let chains = Chains::made(key)?;
    let versions = [Versions::Tls12, Versions::Tls13].into_iter();
    let possible = versions.filter(|versions| key.check(*versions).is_ok());
    let suites = possible.map(|versions| Suite { versions, key, client_certificates: false });
    suites.map(|suite| server_cost(suite, &chains)).collect()
}

/// Bytes of a session in OpenSSL's own cache, over TLS 1.2. `None` unless
/// [`weigh_internal_cache`](rejoin_serve::weigh_internal_cache) was called in time.
///
/// # Errors
/// OpenSSL's.
pub fn internal_cache_session_bytes() -> Result<Option<f64>, Error> {
    let (versions, key) = (Versions::Tls12, KeyType::P256);
    let suite = Suite { versions, key, client_certificates: false };
    let mut pair = OpenSslPair::new(&Chains::made(key)?, suite, Kept::OpenSsl)?;
    let watch = Watch::start();
    for _ in 0..WEIGHED {
        pair.connect(false, &watch)?;
    }
    let InternalCache { sessions, bytes } = InternalCache::empty(&pair.server);
    Ok((bytes > 0 && sessions > 0).then(|| bytes as f64 / sessions as f64))
}

fn server_cost(suite: Suite, chains: &Chains) -> Result<ServerCost, Error> {
    let mut pair = OpenSslPair::new(chains, suite, Kept::Cache)?;
    // What is only done once is not to be counted.
    let watch = Watch::start();
    connect(&mut pair, false, &watch)?;
    let mut batch = |resumes| -> Result<f64, Error> {
        let mut sum = Duration::ZERO;
        for _ in 0..BATCH {
            sum += connect(&mut pair, resumes, &watch)?.server.cpu;
        }
        Ok(sum.as_secs_f64() * 1e6 / f64::from(BATCH))
    };
    let (mut full, mut resumed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while full.len() < BATCHES && (full.is_empty() || began.elapsed() < PATIENCE) {
        full.push(batch(false)?);
        resumed.push(batch(true)?);
    }
    let (full_us, resumed_us) = (median(full), median(resumed));
    Ok(ServerCost { tls: suite.versions.name(), full_us, resumed_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_handshake_costs_the_server_less() {
        let costs = server_costs(KeyType::Rsa2048).expect("measured");
        assert_eq!(costs.iter().map(|cost| cost.tls).collect::<Vec<_>>(), ["1.2", "1.3"]);
        // Over TLS 1.3 there is a key exchange in any case: what is saved is the signature.
        for (cost, times) in costs.iter().zip([3.0, 1.2]) {
            assert!(cost.resumed_us > 1.0 && cost.full_us > times * cost.resumed_us, "{cost:?}");
        }
    }
}
