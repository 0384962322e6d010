//! Sessions that are in other sites.
//!
//! A session that the own site does not have is looked up in the others, after its handshake has been answered: it is
//! there for the next one. What is found comes into the own site's Valkey. A session for a single use is taken from where
//! it was, and not stored there again for a while; any other one is copied.
//!
//! A session that came from another site is never certainly a first one ([`crate::sessions::Taken`]): the Valkey of the site
//! that handed it out may lose that write, and know it as certain again when it has waited for long enough.
//!
//! Ids that nobody has cost the other sites one lookup in ten seconds from each machine, and a machine looks up a few at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_cache::{ContextTag, SessionId};
use rejoin_store::Letter;
use rejoin_tickets::KeyRing;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::carrier::Carrier;
use super::lately::Lately;
use super::{mailbox, side_by_side, unix_ms};
use crate::health::{Health, Sought};
use crate::sessions::{Found, Put, Sessions};
use crate::{ClusterSecret, Error, Link, Settings, SiteLinks};

/// The other sites, and what waits to be asked there.
pub(super) struct Abroad {
    sites: Vec<Site>,
    wanted: mpsc::Sender<Wanted>,
    removed: mpsc::Sender<SessionId>,
    asked: Lately,
}

/// The ends of what waits.
pub(super) struct Queues {
    wanted: mpsc::Receiver<Wanted>,
    removed: mpsc::Receiver<SessionId>,
}

/// The sessions of another site.
#[derive(Clone)]
struct Site {
    link: Link,
    sessions: Arc<Sessions>,
}

/// A session that the own site does not have.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    id: SessionId,
    context: ContextTag,
    /// True if it may be used once only.
    once: bool,
}

impl Abroad {
    /// The time limit for a site's answer.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
    /// The sessions that are looked up, and the ones that are removed, at once.
    const MOST_AT_ONCE: usize = 64;
    /// The sessions that wait to be looked up, and to be removed. Further ones are not.
    const MOST_WAITING: usize = 256;

    pub(super) fn new(
        links: &SiteLinks,
        settings: &Settings,
        secret: &ClusterSecret,
        ring: &KeyRing,
    ) -> Result<(Self, Queues), Error> {
        let site = |link: &Link| {
            let sessions = Sessions::of_cluster(link.clone(), settings, secret, ring)?;
            Ok(Site { link: link.clone(), sessions: Arc::new(sessions) })
        };
        let sites = links.others().iter().map(|(_, link)| site(link)).collect::<Result<_, Error>>();
        let (wanted, receives_wanted) = mpsc::channel(Self::MOST_WAITING);
        let (removed, receives_removed) = mpsc::channel(Self::MOST_WAITING);
        let asked = Lately::new(Instant::now());
        let queues = Queues { wanted: receives_wanted, removed: receives_removed };
        Ok((Self { sites: sites?, wanted, removed, asked }, queues))
    }

    /// Has the other sites asked for a session soon, unless they were a moment ago. `once`: it is for a single use.
    pub(super) fn want(&self, letter: &Letter, once: bool, health: &Health) {
        let (id, now) = (letter.id, Instant::now());
        if self.sites.is_empty() {
            return;
        }
        if self.asked.has(&id, now) {
            return health.note_sought(Sought::Lately);
        }
        match self.wanted.try_send(Wanted { id, context: letter.context, once }) {
            Ok(()) => self.asked.note(&id, now),
            Err(_) => health.note_sought(Sought::Dropped),
        }
    }

    /// Has a session removed from the other sites soon.
    pub(super) fn remove(&self, id: SessionId, health: &Health) {
        if !self.sites.is_empty() && self.removed.try_send(id).is_err() {
            health.note_removal(false);
        }
    }

    pub(super) fn set_ring(&self, ring: &KeyRing) {
        self.sites.iter().for_each(|site| site.sessions.set_ring(ring));
    }

    pub(super) fn set_secret(&self, secret: &ClusterSecret) {
        self.sites.iter().for_each(|site| site.sessions.set_secret(secret));
    }
}

impl Queues {
    /// Asks the other sites for what is wanted, and tells them of what was removed. Never ends.
    pub(super) async fn serve(self, carrier: &Arc<Carrier>) {
        let wanted = side_by_side(self.wanted, Abroad::MOST_AT_ONCE, |wanted| {
            let carrier = Arc::clone(carrier);
            async move {
                let sought = carrier.seek(wanted).await;
                carrier.health.note_sought(sought);
            }
        });
        let removed = side_by_side(self.removed, Abroad::MOST_AT_ONCE, |id| {
            let carrier = Arc::clone(carrier);
            async move { carrier.remove_abroad(id).await }
        });
        tokio::join!(wanted, removed);
    }
}

impl Carrier {
    /// Asks all other sites that can be reached, and brings what one of them has.
    async fn seek(&self, wanted: Wanted) -> Sought {
        let sites = &self.abroad.sites;
        let mut asked = JoinSet::new();
        for site in sites.iter().filter(|site| site.link.primary().is_some()) {
            let site = site.clone();
            asked.spawn(async move {
                let found = timeout(Abroad::ANSWERS_WITHIN, wanted.of(&site.sessions)).await;
                (site, found.unwrap_or(Err(Error::NoAnswer)))
            });
        }
        let (mut all_answered, mut brought) = (asked.len() == sites.len(), None);
        while let Some(joined) = asked.join_next().await {
            match joined {
                Ok((site, Ok(Some(found)))) if brought.is_none() => {
                    brought = Some(self.bring(wanted, &site, &found).await);
                }
                // A second one was lost and came back: it is given up.
                Ok((_, Ok(_))) => {}
                Ok((_, Err(_))) | Err(_) => all_answered = false,
            }
        }
        brought.unwrap_or(if all_answered { Sought::Absent } else { Sought::Failed })
    }

    /// Stores a session of another site in the own one, for the next visit of its client.
    async fn bring(&self, wanted: Wanted, from: &Site, found: &Found) -> Sought {
        let Wanted { id, context, once } = wanted;
        let (is_ours, now_ms) = (found.context == context, unix_ms());
        let entry = self.entry(&id, found, now_ms);
        let is_stored = is_ours
            && matches!(self.sessions.put_moved(now_ms, &entry).await, Ok(Put::Stored { .. }));
        // One for a single use is taken from Valkey, where no other machine finds it then.
        let is_admitted = is_ours && !once && self.admit(&id, context, found);
        if is_stored {
            mailbox(&self.store).note_arrived(&id);
        }
        if let (false, Some(taken)) = (is_stored, &found.taken) {
            let entry = self.entry(&id, found, found.past.seen_ms);
            // Without an answer, its client makes a full handshake.
            let _ = from.sessions.put_back(unix_ms(), &entry, taken).await;
        }
        if is_stored || is_admitted { Sought::Found } else { Sought::Unfit }
    }

    async fn remove_abroad(&self, id: SessionId) {
        let mut asked = JoinSet::new();
        for site in &self.abroad.sites {
            let sessions = Arc::clone(&site.sessions);
            asked.spawn(async move {
                let removed = timeout(Abroad::ANSWERS_WITHIN, sessions.remove(&id)).await;
                removed.is_ok_and(|removed| removed.is_ok())
            });
        }
        let answered = asked.join_all().await;
        self.health.note_removal(answered.iter().all(|is_done| *is_done));
    }
}

impl Wanted {
    async fn of(self, sessions: &Sessions) -> Result<Option<Found>, Error> {
        match self.once {
            true => sessions.take(unix_ms(), &self.id).await,
            false => sessions.get(unix_ms(), &self.id).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use rejoin_store::Says;
    use rejoin_testkit::folder::Folder;
    use rejoin_tickets::Schedule;

    use super::*;
    use crate::{NodeAddress, Place, Servers, Sites};

    fn letter(number: u16) -> Letter {
        let id = SessionId::new(&number.to_le_bytes()).expect("short");
        Letter { id, context: ContextTag(5), says: Says::Removed }
    }

    /// Nobody works on what waits.
    #[tokio::test]
    async fn what_finds_no_room_is_dropped_and_an_id_waits_once() {
        let folder = Folder::new();
        let secret = ClusterSecret::create(&folder.join("key")).expect("a key");
        let text =
            "name = \"web\"\nkey_file = \"/key\"\ncapacity = \"1MiB\"\nservers = [\"a:1\"]\n";
        let settings: Settings = toml::from_str(text).expect("settings");
        let nobody = || {
            let address = NodeAddress::new("127.0.0.1", 1).expect("a host");
            Servers::new(Place::Primary(vec![address]))
        };
        let other = crate::Site { name: "tokyo".parse().expect("a name"), servers: nobody() };
        let (ring, health) = (KeyRing::new(Schedule::default()), Health::default());
        for (others, most) in [(vec![other], 256), (Vec::new(), 0)] {
            let links = Sites::new(nobody(), others, None).open();
            let (abroad, mut queues) =
                Abroad::new(&links, &settings, &secret, &ring).expect("bounds");
            let before = health.read().sought;
            for number in (0..300).chain(0..100) {
                abroad.want(&letter(number), false, &health);
                abroad.remove(letter(number).id, &health);
            }
            let waits = std::iter::from_fn(|| queues.wanted.try_recv().ok()).count();
            assert_eq!(waits, most);
            let sought = health.read().sought;
            let (dropped, lately) =
                (sought.dropped - before.dropped, sought.lately - before.lately);
            let unremoved = sought.unremoved - before.unremoved;
            let expected = if most == 0 { (0, 0) } else { (144, 144) };
            assert_eq!((dropped + lately, unremoved), expected);
            // Some have the place of another.
            assert!(most == 0 || (80..=100).contains(&lately), "{lately}");
        }
    }
}
