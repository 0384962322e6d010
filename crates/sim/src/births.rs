//! The ages of sessions, where they have a lifetime.

use crate::server::{Server, Tls};

/// The time when each client's session was made.
///
/// A session's lifetime starts at the handshake that made it. Over TLS 1.3 a resumption makes new tickets, and so the
/// client's session is as old as its last visit. Otherwise the resumed session grows older.
#[derive(Debug)]
pub(crate) struct Births {
    /// `None` if sessions live for ever: then no times are kept.
    lifetime_ms: Option<u64>,
    /// True if a resumption makes a new session.
    pub(crate) renewed: bool,
    made_ms: Vec<u64>,
}

impl Births {
    pub(crate) fn new(server: &Server) -> Self {
        let renewed = matches!(server.tls, Tls::V1_3 { resumed, .. } if resumed > 0);
        Self { lifetime_ms: server.lifetime_ms(), renewed, made_ms: Vec::new() }
    }

    /// Returns true if the client's session has come to its end. The second at which the lifetime ends is not in it any
    /// more, as in our cache and in nginx.
    #[inline]
    pub(crate) fn is_expired(&self, client: u32, now_ms: u64) -> bool {
        self.lifetime_ms.is_some_and(|lifetime_ms| {
            let made_ms = self.made_ms.get(client as usize);
            made_ms.is_some_and(|made_ms| now_ms - made_ms >= lifetime_ms)
        })
    }

    /// Records a visit. Clients are numbered in the order in which they come.
    #[inline]
    pub(crate) fn record(&mut self, client: u32, now_ms: u64, resumed: bool) {
        if self.lifetime_ms.is_none() {
            return;
        }
        match self.made_ms.get_mut(client as usize) {
            Some(_) if resumed && !self.renewed => {}
            Some(made_ms) => *made_ms = now_ms,
            None => self.made_ms.push(now_ms),
        }
    }
}
