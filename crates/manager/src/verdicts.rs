//! Servers that have nothing to say of a client's certificate.
//!
//! Over TLS 1.3 a server says after the handshake only that it does not take a certificate, or
//! wants one. Who issues tickets says at once that all is well; who does not is silent, and each
//! connection would wait for nothing. So that is remembered.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::sessions::PlaceName;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    silent: Mutex<HashSet<PlaceName>>,
}

impl Verdicts {
    /// So many are remembered; then all are forgotten, and each is waited for once more.
    const MOST: usize = 4_096;

    pub(crate) fn is_silent(&self, place: &PlaceName) -> bool {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).contains(place)
    }

    pub(crate) fn note_silence(&self, place: &PlaceName) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.len() >= Self::MOST {
            silent.clear();
        }
        silent.insert(place.clone());
    }
}
