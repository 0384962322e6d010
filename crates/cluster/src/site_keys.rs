//! The ring of ticket keys of a cluster with several sites, as one machine follows it.
//!
//! The ring has one home: the Valkey of one site, in which alone it is replaced, by compare-and-set. So two sites never make
//! two keys for one turn, and neither loses the other's. Each other site has a copy of the ring in its own Valkey, under the
//! same name. Its machines write there what they know, if it is newer; a machine that starts while the home is away takes
//! the ring from there.
//!
//! - While a site does not reach the home, its newest key goes on encrypting, as without Valkey. No key is made from a copy.
//! - A copy that is newer than all that a machine has seen counts as seen. So a home that comes back with an older ring, or
//!   with none, gets the newer one back, whoever still has it.
//! - Of two rings with the same version the home's counts.
//! - A new ring begins only after all sites have been asked for a copy of an earlier one, or half a minute long.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use rejoin_tickets::KeyRing;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::ring_place::{Change, Found, Known, RingPlace};
use crate::{ClusterKeys, ClusterSecret, Error, Link, SiteLinks};

/// One machine's view of the ring of a cluster, in one site or several.
#[derive(Debug)]
pub struct SiteKeys {
    keys: ClusterKeys,
    home: Link,
    /// The copy in the own site's Valkey, unless that is the home.
    own: Option<RingCopy>,
    /// The Valkeys of other sites that have copies.
    others: Vec<Link>,
    began: Instant,
}

/// The outcome of following the ring.
#[derive(Debug)]
pub struct Followed {
    /// The ring, if it changed.
    pub newer: Option<KeyRing>,
    /// The answer of the own site's Valkey.
    pub own: Answer,
    /// The answer of the ring's home, if that is another site.
    pub home: Option<Answer>,
}

/// The answer of a Valkey.
#[derive(Debug)]
pub struct Answer {
    /// The reason why there is none, or none that helps.
    pub outcome: Result<(), Error>,
    /// The time that it took.
    pub after: Duration,
}

/// A copy of the ring.
struct RingCopy {
    link: Link,
    /// The ring that was there last.
    held: Option<Known>,
}

impl SiteKeys {
    /// The time after which Valkey counts as unreachable.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
    /// The ring that these keys follow in the home.
    pub fn new(keys: ClusterKeys, links: &SiteLinks) -> Self {
        let copy = || RingCopy { link: links.own().clone(), held: None };
        let own = links.home_elsewhere().map(|_| copy());
        let others = links.with_copies().cloned().collect();
        Self { home: links.home().clone(), own, others, began: Instant::now(), keys }
    }

    /// Follows the ring, as [`ClusterKeys::follow`] does, in the home; keeps the own site's copy, and takes over what is
    /// newer there. Takes three seconds at most, and should be called every second.
    pub async fn follow(&mut self, now_s: u64) -> Followed {
        let mut newer = None;
        if self.keys.is_to_look_for_copies() {
            newer = self.look_for_copies().await;
        }
        let Self { keys, home, own, .. } = self;
        let place = keys.place();
        let follow = timed(keys.follow(home, now_s));
        let Some(own) = own else {
            let (changed, own) = answer(follow.await);
            return Followed { newer: changed.flatten().or(newer), own, home: None };
        };
        let (followed, read) = tokio::join!(follow, timed(own.read(&place)));
        let ((changed, home), (read, mut own_answer)) = (answer(followed), answer(read));
        newer = changed.flatten().or(newer);
        if read.is_some() {
            newer = own.held.as_ref().and_then(|held| keys.adopt(held)).or(newer);
            if let (Err(error), _) = timed(own.keep(&place, keys)).await {
                own_answer.outcome = Err(error);
            }
        }
        Followed { newer, own: own_answer, home: Some(home) }
    }

    /// Uses the keys of this secret from now on. The ring and its copy stay as they are.
    pub fn set_secret(&mut self, secret: &ClusterSecret) {
        self.keys.set_secret(secret);
    }

    /// Returns the keys, of which a copy may be newer than the home's.
    pub fn keys(&self) -> &ClusterKeys {
        &self.keys
    }

    /// Returns the reason why the highest version was not recorded, once.
    pub fn take_unrecorded(&mut self) -> Option<Error> {
        self.keys.take_unrecorded()
    }

    /// Returns the newest ring that was seen.
    pub fn ring(&self) -> Option<&KeyRing> {
        self.keys.newest().map(|(_, ring)| ring)
    }

    /// Asks all sites for copies, and takes over the newest one. Lets a new ring begin if there is none.
    async fn look_for_copies(&mut self) -> Option<KeyRing> {
        let mut asked = JoinSet::new();
        for link in self.own.iter().map(|own| &own.link).chain(&self.others) {
            let (mut link, place) = (link.clone(), self.keys.place());
            asked.spawn(timed(async move { place.read(&mut link, None, None).await }));
        }
        let (mut newest, mut all_answered) = (None, true);
        while let Some(joined) = asked.join_next().await {
            match joined.map(|(read, _)| read) {
                Ok(Ok((Found::Other(copy), _))) => newest = self.keys.adopt(&copy).or(newest),
                Ok(Ok((Found::Same { .. } | Found::Nothing, _))) => {}
                Ok(Err(_)) | Err(_) => all_answered = false,
            }
        }
        let is_long_enough = self.began.elapsed() >= ClusterKeys::WAITS_FOR_RING;
        self.keys.let_begin(all_answered || is_long_enough);
        newest
    }
}

impl RingCopy {
    async fn read(&mut self, place: &RingPlace) -> Result<(), Error> {
        let (found, _) = place.read(&mut self.link, self.held.as_ref(), None).await?;
        match found {
            Found::Same { .. } => {}
            Found::Nothing => self.held = None,
            Found::Other(there) => self.held = Some(there),
        }
        Ok(())
    }

    /// Writes the newest ring, if the copy is not that. If another machine changed the copy, the next call looks again.
    async fn keep(&mut self, place: &RingPlace, keys: &mut ClusterKeys) -> Result<(), Error> {
        let Some((version, ring)) = keys.newest() else { return Ok(()) };
        let is_due = self.held.as_ref().is_none_or(|held| {
            let is_same = || held.ring.list(0).eq(ring.list(0));
            match held.version.cmp(&version) {
                Ordering::Less => true,
                // The home's counts.
                Ordering::Equal => place.is_outdated(held) || keys.ring().is_some() && !is_same(),
                Ordering::Greater => keys.is_to_replace_newer(),
            }
        });
        if is_due {
            let (next, held) = ((version, ring.clone()), self.held.as_ref());
            let written = place.replace(&mut self.link, held, next, Change::Other).await?;
            if written.is_none() {
                return Ok(());
            }
            self.held = written;
        }
        keys.note_replaced();
        Ok(())
    }
}

impl fmt::Debug for RingCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingCopy").field("link", &self.link).finish_non_exhaustive()
    }
}

/// Waits for an answer, for as long as Valkey counts as reachable. Returns the time that it took, too.
async fn timed<T>(answer: impl Future<Output = Result<T, Error>>) -> (Result<T, Error>, Duration) {
    let began = Instant::now();
    let answer = timeout(SiteKeys::ANSWERS_WITHIN, answer).await.unwrap_or(Err(Error::NoAnswer));
    (answer, began.elapsed())
}

fn answer<T>((answer, after): (Result<T, Error>, Duration)) -> (Option<T>, Answer) {
    match answer {
        Ok(told) => (Some(told), Answer { outcome: Ok(()), after }),
        Err(error) => (None, Answer { outcome: Err(error), after }),
    }
}

impl Answer {
    /// Returns true if Valkey is unreachable, or cannot serve anybody now.
    pub(crate) fn is_away(&self) -> bool {
        self.outcome.as_ref().is_err_and(Error::is_away)
    }
}
