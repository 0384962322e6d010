//! Carries sessions between the machine's cache and the Valkey of its site.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_cache::{
    ContextTag, History, Kept, NewSession, SecretBytes, SessionId, Settings as CacheSettings,
};
use rejoin_store::{Asked, Asker, Letter, Says, Store, now_ms};
use rejoin_tickets::KeyRing;
use tokio::time::timeout;

use super::abroad::Abroad;
use super::lately::Lately;
use super::{mailbox, unix_ms};
use crate::health::{Fetched, Health, Sent};
use crate::sessions::{Entry, Found, NEVER_MS, Past, Put, Sessions, Taken, returns_ms};
use crate::{ClusterSecret, Error};

/// Carries sessions between the cache and Valkey.
pub(super) struct Carrier {
    pub(super) store: Arc<Store>,
    pub(super) sessions: Sessions,
    pub(super) abroad: Abroad,
    /// The sessions that servers of this machine removed lately.
    pub(super) removed: Lately,
    pub(super) health: Arc<Health>,
    pub(super) deadline: Duration,
    /// The prediction settings of the machine's cache.
    pub(super) usual: CacheSettings,
}

impl Carrier {
    /// Notes what a letter says of a session. Must be called in the order of the letters, which are handled side by side.
    pub(super) fn note(&self, letter: &Letter) {
        match letter.says {
            Says::Removed => self.removed.note(&letter.id, Instant::now()),
            Says::Stored => self.removed.forget(&letter.id),
            Says::Seen | Says::Retired | Says::Wanted(_) | Says::Taken(_) => {}
        }
    }

    /// Handles a letter. If Valkey fails, its session is lost.
    pub(super) async fn carry(&self, letter: Letter) {
        match letter.says {
            Says::Stored => drop(self.store_remotely(&letter).await),
            Says::Seen => drop(self.expect(&letter).await),
            Says::Retired => drop(self.retire(&letter.id).await),
            Says::Removed => {
                drop(self.sessions.remove(&letter.id).await);
                self.abroad.remove(letter.id, &self.health);
            }
            Says::Wanted(asker) => self.fetch(&letter, asker, false).await,
            Says::Taken(asker) => self.fetch(&letter, asker, true).await,
        }
    }

    /// Uses the keys of a newer ring from now on. Must be called from one task only.
    pub(super) fn set_ring(&self, ring: &KeyRing) {
        self.sessions.set_ring(ring);
        self.abroad.set_ring(ring);
    }

    /// Hashes ids under the keys of this secret from now on.
    pub(super) fn set_secret(&self, secret: &ClusterSecret) {
        self.sessions.set_secret(secret);
        self.abroad.set_secret(secret);
    }

    async fn store_remotely(&self, letter: &Letter) -> Result<(), Error> {
        let mut value = SecretBytes::default();
        let Letter { id, context, .. } = letter;
        if self.removed.has(id, Instant::now()) {
            return Ok(());
        }
        // The session may be gone by now.
        let Some(kept) = self.store.cache().look(now_ms(), id, *context, &mut value) else {
            return Ok(());
        };
        let entry = Entry {
            id,
            context: *context,
            value: &value,
            expires_ms: unix_of(kept.expires_ms),
            past: past(&kept),
            returns_ms: kept.returns_ms.map_or(NEVER_MS, unix_of),
        };
        self.sent(self.sessions.put(unix_ms(), &entry).await)?;
        // Its removal may have come to Valkey first.
        if self.removed.has(id, Instant::now()) {
            self.sessions.remove(id).await?;
        }
        Ok(())
    }

    fn sent(&self, put: Result<Put, Error>) -> Result<(), Error> {
        self.health.note_sent(match put {
            Ok(Put::Stored { .. }) => Sent::Stored,
            Ok(Put::Refused(_) | Put::Taken) => Sent::Refused,
            Err(_) => Sent::Failed,
        });
        put.as_ref().err().into_iter().for_each(|error| self.health.note_error(error));
        put.map(|_| ())
    }

    /// Updates a session's return time in Valkey after its client's visit. Does not store a session that Valkey does
    /// not have: another machine may have removed it.
    async fn expect(&self, letter: &Letter) -> Result<(), Error> {
        let mut value = SecretBytes::default();
        let Letter { id, context, .. } = letter;
        let Some(kept) = self.store.cache().look(now_ms(), id, *context, &mut value) else {
            return Ok(());
        };
        let returns_ms = kept.returns_ms.map_or(NEVER_MS, unix_of);
        let expires_ms = unix_of(kept.expires_ms);
        self.sessions.expect(id, past(&kept), returns_ms, expires_ms).await.map(|_| ())
    }

    /// Marks a session whose client is not expected back, so that it is evicted first.
    async fn retire(&self, id: &SessionId) -> Result<(), Error> {
        let Some(Found { expires_ms, past, .. }) = self.sessions.get(unix_ms(), id).await? else {
            return Ok(());
        };
        let past = Past { history: History::default(), ..past };
        self.sessions.expect(id, past, NEVER_MS, expires_ms).await.map(|_| ())
    }

    async fn fetch(&self, letter: &Letter, asker: Asker, take: bool) {
        let found = timeout(self.deadline, async {
            if take {
                self.sessions.take(unix_ms(), &letter.id).await
            } else {
                self.sessions.get(unix_ms(), &letter.id).await
            }
        });
        let found = match found.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                self.health.note_fetched(Fetched::Failed);
                self.health.note_error(&error);
                // Nobody knows whether a connection that broke brought it to Valkey, and another copy of a first flight may
                // come: the server waits to the end, and has no answer then. Otherwise it continues with a full handshake,
                // and need not wait.
                if !take || !error.is_away() {
                    mailbox(&self.store).answer(asker, Asked::Missing);
                }
                return;
            }
            // The server waits no more.
            Err(_) => return self.health.note_fetched(Fetched::Failed),
        };
        let is_there =
            found.as_ref().is_some_and(|found| self.admit(&letter.id, letter.context, found));
        self.health.note_fetched(match (&found, is_there) {
            (_, true) => Fetched::Found,
            (Some(_), false) => Fetched::Unfit,
            (None, false) => Fetched::Absent,
        });
        let taken = found.as_ref().and_then(|found| found.taken.as_ref());
        let asked = match taken {
            _ if !is_there => Asked::Missing,
            Some(Taken { is_certain: true, .. }) => Asked::Certain,
            Some(_) => {
                self.health.note_uncertain();
                Asked::Fetched
            }
            None => Asked::Fetched,
        };
        mailbox(&self.store).answer(asker, asked);
        if found.is_none() {
            // No handshake waits for this.
            self.abroad.want(letter, take, &self.health);
        }
        if let (false, Some(found), Some(taken)) = (is_there, &found, taken) {
            drop(self.put_back(&letter.id, found, taken).await);
        }
    }

    /// Puts a session back into Valkey that was taken and did not fit into the machine's cache.
    async fn put_back(&self, id: &SessionId, found: &Found, taken: &Taken) -> Result<(), Error> {
        let entry = self.entry(id, found, found.past.seen_ms);
        self.sent(self.sessions.put_back(unix_ms(), &entry, taken).await)
    }

    /// Returns what was found, to be stored again. Its client was here at `seen_ms`, in Unix time.
    pub(super) fn entry<'f>(&self, id: &'f SessionId, found: &'f Found, seen_ms: u64) -> Entry<'f> {
        let Found { context, ref value, expires_ms, past, .. } = *found;
        let usual = &self.usual;
        let returns_ms = returns_ms(usual.prediction, seen_ms, past.history, None, usual.prior_ms);
        Entry { id, context, value, expires_ms, past, returns_ms }
    }

    /// Puts a session into the machine's cache, unless it was made in another context.
    pub(super) fn admit(&self, id: &SessionId, context: ContextTag, found: &Found) -> bool {
        let now_ms = now_ms();
        let away_ms = unix_ms().saturating_sub(found.past.seen_ms);
        let new = NewSession {
            history: found.past.history,
            seen_ms: Some(now_ms.saturating_sub(away_ms)),
            ..NewSession::new(*id, &found.value, boot_of(found.expires_ms), found.context)
        };
        found.context == context && self.store.cache().admit(now_ms, &new).is_ok()
    }
}

fn past(kept: &Kept) -> Past {
    Past { history: kept.history, seen_ms: unix_of(kept.seen_ms) }
}

/// Converts a time of the cache's clock to Unix time.
fn unix_of(boot_ms: u64) -> u64 {
    unix_ms().saturating_sub(now_ms()).saturating_add(boot_ms)
}

/// Converts Unix time to a time of the cache's clock.
fn boot_of(unix: u64) -> u64 {
    unix.saturating_sub(unix_ms().saturating_sub(now_ms()))
}
