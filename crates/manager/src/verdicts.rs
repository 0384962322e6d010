//! What was learned of servers, and spares them and programs a trial.
//!
//! Over TLS 1.3 a server says after the handshake only that it does not take a certificate, or
//! wants one. Who issues tickets says at once that all is well; who does not is silent, and each
//! connection would wait for nothing. And a server that does not speak TLS as the manager does would be
//! called twice for every program that has a TLS of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::sessions::PlaceName;

/// Servers of which one thing was found out.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Until when.
    places: Mutex<HashMap<PlaceName, u64>>,
}

impl Verdicts {
    /// So many are remembered; then all are forgotten, and each is tried once more.
    const MOST: usize = 4_096;

    pub(crate) fn holds(&self, place: &PlaceName, now_ms: u64) -> bool {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(place).is_some_and(|until_ms| now_ms < *until_ms)
    }

    pub(crate) fn note(&self, place: &PlaceName, until_ms: u64) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= Self::MOST {
            places.clear();
        }
        places.insert(place.clone(), until_ms);
    }
}
