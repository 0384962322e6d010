//! Key shares that are generated in advance.
//!
//! A TLS 1.3 ClientHello carries a fresh public key. Generating one for X25519MLKEM768 takes about as long as all other
//! work of the manager before it can send. Each key share is used once, as if it had been generated on demand
//! (RFC 8446, section 4.2.8).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};

/// X25519MLKEM768 with key shares generated in advance.
pub(crate) static READY_MADE: ReadyMade =
    ReadyMade { ready: Mutex::new(VecDeque::new()), wanted: Condvar::new(), begin: Once::new() };

/// A key-exchange group with a stock of key shares.
pub(crate) struct ReadyMade {
    ready: Mutex<VecDeque<Box<dyn ActiveKeyExchange>>>,
    wanted: Condvar,
    begin: Once,
}

/// The size of the stock. A share takes about 8 KiB.
const READY: usize = 32;
/// The number of shares left at which the stock is filled up.
const FEW: usize = 16;
/// The pause before the stock is filled up: the handshakes that took the shares go first.
const AFTER: Duration = Duration::from_millis(2);

impl ReadyMade {
    /// Generates shares for as long as the process lives.
    fn make(&self) {
        loop {
            let ready = self.ready();
            let few = self.wanted.wait_while(ready, |ready| ready.len() > FEW);
            drop(few.unwrap_or_else(PoisonError::into_inner));
            thread::sleep(AFTER);
            while self.ready().len() < READY {
                // A handshake that generates its own share reports the error.
                let Ok(share) = X25519MLKEM768.start() else { break };
                self.ready().push_back(share);
            }
        }
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Box<dyn ActiveKeyExchange>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ReadyMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadyMade").field("ready", &self.ready().len()).finish_non_exhaustive()
    }
}

impl SupportedKxGroup for ReadyMade {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.begin.call_once(|| {
            // Without this thread, shares are generated on demand.
            let _ = thread::Builder::new().name("key shares".into()).spawn(|| READY_MADE.make());
        });
        let mut ready = self.ready();
        let share = ready.pop_front();
        if ready.len() == FEW {
            self.wanted.notify_one();
        }
        drop(ready);
        share.map_or_else(|| X25519MLKEM768.start(), Ok)
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        X25519MLKEM768.start_and_complete(peer)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        X25519MLKEM768.ffdhe_group()
    }

    fn name(&self) -> NamedGroup {
        X25519MLKEM768.name()
    }

    fn fips(&self) -> bool {
        X25519MLKEM768.fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        X25519MLKEM768.usable_for_version(version)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_share_is_given_twice() {
        let mut given = HashSet::new();
        for round in 0..8 {
            for _ in 0..READY {
                let share = READY_MADE.start().unwrap();
                assert!(given.insert(share.pub_key().to_vec()), "round {round}");
            }
            // Some are made ahead, and those are given as well.
            while READY_MADE.ready().len() <= FEW {
                thread::yield_now();
            }
        }
    }
}
