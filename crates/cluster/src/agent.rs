//! The agent of each machine, between the servers' shared memory and Valkey.
//!
//! One task follows the ring of ticket keys. Others carry sessions, as servers request in the cache's
//! mailbox. Requests that Valkey does not handle in time are dropped: a lost session costs a full handshake.

mod abroad;
mod carrier;
mod lately;
mod reporter;

use std::future::Future;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rejoin_cache::Settings as CacheSettings;
use rejoin_store::{Letter, Mailbox, Says, Store};
use rejoin_tickets::{KeyRing, Schedule};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::health::{Health, Sent};
use crate::sessions::Sessions;
use crate::{
    ClusterKeys, ClusterSecret, Error, Followed, KeyFile, RingRecord, Settings, SiteKeys,
    SiteLinks, SiteName, Sites, without_numbers,
};
use abroad::Abroad;
use carrier::Carrier;
use lately::Lately;
use reporter::Reporter;

/// The agent of one machine.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    /// Read by [`Self::new`], and handed over by [`Self::run`].
    files: Option<(KeyFile, RingRecord)>,
    sites: Sites,
    store: Arc<Store>,
    accepts_older_ring: bool,
    health: Arc<Health>,
}

/// A change to report to the operator.
#[derive(Debug)]
pub enum News<'a> {
    /// Valkey answers at this address, the primary's, or at those of a cluster's nodes.
    Linked(&'a str),
    /// Valkey does not answer, or another reason is known why. Servers continue with the keys and sessions of their
    /// machine.
    Cut(&'a Error),
    /// The Valkey of the site that is the ring's home answers. Told where that is another site.
    HomeLinked(&'a SiteName),
    /// It does not answer, or another reason is known why. Servers continue with the ring that they have; no key is made.
    HomeCut(&'a SiteName, &'a Error),
    /// Valkey denies a command or a key to the agent's user: its rules are not those of [`Settings::acl_rules`]. Told once.
    Denied(&'a Error),
    /// Another server says that it is the primary, too ([`Error::TwoPrimaries`]). The one in use stays in use. Told once, and
    /// again if it begins anew.
    TwoPrimaries(&'a Error),
    /// This machine's clock is so far from Valkey's, in seconds, that no key is made here and no session is removed for its
    /// age; negative if it is behind. `None`: no longer. Told when it begins and ends.
    ClocksApart(Option<i64>),
    /// Valkey has no ring of ticket keys, although this machine has seen one, and has lost it. A new one begins in half a
    /// minute if no machine puts it back, and there are no keys until then. `false`: no longer. Told when it begins and ends.
    WaitsForRing(bool),
    /// The highest version of the ring cannot be recorded beside the key file. After a restart of the machine, an older
    /// ring could not be recognised.
    Unrecorded(&'a Error),
    /// This machine is not shown among the cluster's ([`Census`](crate::Census)), or in turns with another one. Each reason
    /// is told once.
    Unseen(&'a Error),
    /// The key file has other keys, which are used from now on.
    Rekeyed(&'a ClusterSecret),
    /// The key file has changed, and cannot be used. The last keys stay in use. Each reason is told once.
    NotRekeyed(&'a Error),
}

impl Agent {
    /// The interval at which the ring is read.
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    /// The time after which Valkey counts as unreachable.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
    /// The concurrent operations. Further letters wait.
    const MOST_AT_ONCE: usize = 512;
    /// The letters that wait. Further ones are dropped.
    const MOST_WAITING: usize = 16_384;
    const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(1);
    const MOST_EVICTED: u32 = 100;
    /// The time after which an overdue session is removed: a day, by which most tickets have expired.
    const OVERDUE_FOR_MS: u64 = 24 * 3_600 * 1_000;

    /// Reads all files that the settings name, and opens or creates the machine's cache. Only two files are opened again:
    /// the password's, when Valkey refuses the password, and the key file, when it has changed. So the process may change to
    /// another user. Must be called before the servers start, so that they find the cache.
    ///
    /// # Errors
    /// A file cannot be read, the cache belongs to a different cluster, or a setting is out of range.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let key_file = settings.open_key_file()?;
        let secret = key_file.secret();
        let sites = settings.all_sites()?;
        let cache = CacheSettings::new(settings.capacity);
        let (folder, name) = (&settings.folder, settings.cache()?);
        let store = Store::open_for_cluster(folder, &name, Some(&cache), secret.ids())?;
        let store = Arc::new(store);
        Self::be_the_only_one(&store)?;
        mailbox(&store).set_deadline(settings.deadline(), settings.deadline_ms.is_none());
        let record = RingRecord::open(&settings.key_file, secret, &settings.name)?;
        let (accepts_older_ring, health) = (false, Arc::<Health>::default());
        health.note_rekey_step(secret.step());
        let files = Some((key_file, record));
        Ok(Self { settings, files, sites, store, accepts_older_ring, health })
    }

    /// Accepts the first ring in Valkey, even if this machine has seen a newer one.
    #[must_use]
    pub fn accepting_older_ring(mut self, accepts: bool) -> Self {
        self.accepts_older_ring = accepts;
        self
    }

    /// Waits until no other agent serves the cache, and takes its place. An agent that was killed is forgotten after a
    /// second.
    fn be_the_only_one(store: &Store) -> Result<(), Error> {
        const STEPS: u32 = 15;
        const STEP: Duration = Duration::from_millis(100);
        for _ in 0..STEPS {
            if mailbox(store).become_agent() {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        Err(Error::OtherAgent { name: store.name().clone() })
    }

    /// The machine's cache.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The agent's counters.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Runs until `shutdown` completes.
    ///
    /// # Errors
    /// A setting is out of range, the cache was removed, its file was cut short, or another agent took it over while this
    /// one stood still. An unreachable Valkey is not an error.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let (key_file, record) = self.files.take().expect("it runs once");
        let keys = self.keys(key_file.secret())?.recorded_in(record);
        let is_over = Arc::new(AtomicBool::new(false));
        let (letters, received) = mpsc::channel(Self::MOST_WAITING);
        let postman = Postman {
            store: Arc::clone(&self.store),
            health: Arc::clone(&self.health),
            is_over: Arc::clone(&is_over),
        };
        let postman = std::thread::spawn(move || postman.run(&letters));
        let work = self.work(keys, key_file, received, &mut tell);
        let done = tokio::select! {
            done = work => done,
            () = shutdown => Ok(()),
        };
        is_over.store(true, Ordering::Relaxed);
        // The thread ends within a quarter of a second.
        let ended = postman.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if !matches!(ended, Err(Error::OtherAgent { .. })) {
            mailbox(&self.store).leave();
        }
        done.and(ended)
    }

    fn keys(&self, secret: &ClusterSecret) -> Result<ClusterKeys, Error> {
        let (name, schedule) = (self.settings.name.clone(), self.settings.schedule()?);
        let last = self.store.ring()?.map(|ring| (self.store.ring_version(), ring));
        let keys = ClusterKeys::new(name, secret, Some(schedule))?.after(last);
        Ok(keys.accepting_older(self.accepts_older_ring))
    }

    async fn work(
        &self,
        keys: ClusterKeys,
        key_file: KeyFile,
        letters: mpsc::Receiver<Letter>,
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let links = self.sites.open();
        let ring = self.store.ring()?.unwrap_or_else(|| KeyRing::new(Schedule::default()));
        let secret = key_file.secret();
        let (abroad, queues) = Abroad::new(&links, &self.settings, secret, &ring)?;
        let own = links.own().clone();
        let carrier = Arc::new(Carrier {
            store: Arc::clone(&self.store),
            sessions: Sessions::of_cluster(own, &self.settings, secret, &ring)?,
            abroad,
            removed: Lately::new(Instant::now()),
            health: Arc::clone(&self.health),
            deadline: self.settings.deadline(),
            usual: CacheSettings::new(self.settings.capacity),
        });
        // Its keys must not stay for as long as the agent runs.
        drop(ring);
        let reporter = Reporter::new(&self.settings, secret, &self.store, &self.health)?;
        let carry = side_by_side(letters, Self::MOST_AT_ONCE, |letter| {
            let carrier = Arc::clone(&carrier);
            // Before a letter is carried that a copy may have caused.
            if self.health.take_standstill() {
                carrier.sessions.doubt();
            }
            carrier.note(&letter);
            async move { carrier.carry(letter).await }
        });
        tokio::select! {
            () = carry => Ok(()),
            () = queues.serve(&carrier) => Ok(()),
            () = self.keep_house(&carrier.sessions) => Ok(()),
            () = reporter.run(links.own().clone()) => Ok(()),
            done = self.follow(keys, key_file, &links, (&carrier, &reporter), tell) => done,
        }
    }

    /// Follows the ring and the key file until the cache is removed.
    async fn follow(
        &self,
        keys: ClusterKeys,
        mut key_file: KeyFile,
        links: &SiteLinks,
        (carrier, reporter): (&Carrier, &Reporter),
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let mut keys = SiteKeys::new(keys, links);
        let mut look = interval(Self::LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut to_adopt) = (ToldOfAll::default(), None);
        let (mut were_apart, mut waited) = (false, false);
        loop {
            look.tick().await;
            match key_file.renew() {
                Ok(false) => {}
                Ok(true) => {
                    let secret = key_file.secret();
                    keys.set_secret(secret);
                    carrier.set_secret(secret);
                    reporter.set_secret(secret);
                    self.health.note_rekey_step(secret.step());
                    tell(News::Rekeyed(secret));
                }
                Err(error) => tell(News::NotRekeyed(&error)),
            }
            let followed = keys.follow(unix_ms() / 1_000).await;
            keys.take_unrecorded().iter().for_each(|error| tell(News::Unrecorded(error)));
            self.note(&followed, &carrier.sessions);
            let apart_s = keys.keys().clock_apart_s();
            carrier.sessions.set_doubts_clock(!keys.keys().trusts_clock());
            if apart_s.is_some() != std::mem::replace(&mut were_apart, apart_s.is_some()) {
                tell(News::ClocksApart(apart_s));
            }
            // It is over once there is a ring, and not if Valkey is silent or the half minute has passed.
            let waits = keys.keys().awaits_ring() || waited && keys.keys().ring().is_none();
            if waits != std::mem::replace(&mut waited, waits) {
                tell(News::WaitsForRing(waits));
            }
            self.health.note_misses(carrier.sessions.misses());
            if !self.store.facts().is_named {
                return Err(Error::CacheRemoved { name: self.store.name().clone() });
            }
            told.tell(&followed, links, tell);
            if let Some(ring) = followed.newer {
                carrier.set_ring(&ring);
                to_adopt = Some((ring, keys.keys().version()));
            }
            // If the shared memory is locked, the ring is adopted the next time.
            to_adopt =
                to_adopt.filter(|(ring, version)| self.store.adopt_ring(ring, *version).is_err());
            if followed.own.outcome.is_ok() {
                // A failed report is repeated the next time.
                let _ = timeout(Self::ANSWERS_WITHIN, carrier.sessions.report_rejected()).await;
            }
            links.take_denied().iter().for_each(|error| tell(News::Denied(error)));
            links.take_rival().iter().for_each(|error| tell(News::TwoPrimaries(error)));
            reporter.take_trouble().iter().for_each(|error| tell(News::Unseen(error)));
        }
    }

    /// Counts the answers of the own site's Valkey and of the ring's home.
    fn note(&self, Followed { own, home, .. }: &Followed, sessions: &Sessions) {
        match own.is_away() {
            true => {
                self.health.note_silence();
                sessions.doubt();
            }
            false => self.health.note_answer(unix_ms() / 1_000, own.after),
        }
        if self.health.take_standstill() {
            sessions.doubt();
        }
        if let Some(home) = home {
            self.health.note_home(!home.is_away());
        }
    }

    /// Evicts expired and overdue sessions, so that they take no room from others. Never ends.
    async fn keep_house(&self, sessions: &Sessions) {
        let mut turn = interval(Self::HOUSEKEEPING_EVERY);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shards = self.settings.bounds().shards;
        // Sessions in shards beyond those are of a time with more of them.
        let mut further = (shards..Sessions::MOST_SHARDS).cycle();
        for shard in (0..shards).cycle() {
            turn.tick().await;
            let (overdue_for_ms, most) = (Self::OVERDUE_FOR_MS, Self::MOST_EVICTED);
            for shard in iter::once(shard).chain(further.next()) {
                let _ = sessions.evict(unix_ms(), overdue_for_ms, shard, most).await;
            }
        }
    }
}

/// Works on what is received, on so many at once.
async fn side_by_side<J, W: Future<Output = ()> + Send + 'static>(
    mut received: mpsc::Receiver<J>,
    most_at_once: usize,
    work: impl Fn(J) -> W,
) {
    let at_once = Arc::new(Semaphore::new(most_at_once));
    while let Some(job) = received.recv().await {
        let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
        let work = work(job);
        tokio::spawn(async move {
            work.await;
            drop(turn);
        });
    }
}

/// The last news of the own site's Valkey and of the ring's home, so that none is told twice.
#[derive(Default)]
struct ToldOfAll {
    own: Told,
    home: Told,
}

impl ToldOfAll {
    fn tell(&mut self, followed: &Followed, links: &SiteLinks, tell: &mut impl FnMut(News<'_>)) {
        let now = Instant::now();
        match (&followed.own.outcome, links.own().primary()) {
            (Err(error), _) if self.own.is_news_of(error, now) => tell(News::Cut(error)),
            (Ok(()), Some(primary)) if self.own.is_linked_anew(&primary) => {
                tell(News::Linked(&primary));
            }
            _ => {}
        }
        let Some(((site, link), home)) = links.home_elsewhere().zip(followed.home.as_ref()) else {
            return;
        };
        match (&home.outcome, link.primary()) {
            (Err(error), _) if self.home.is_news_of(error, now) => tell(News::HomeCut(site, error)),
            (Ok(()), Some(primary)) if self.home.is_linked_anew(&primary) => {
                tell(News::HomeLinked(site));
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Told {
    linked_with: Option<Arc<str>>,
    /// The reasons since Valkey answered last, the oldest first.
    causes: Vec<String>,
    /// The time at which the last of them was told.
    told_at: Option<Instant>,
}

impl Told {
    /// The most reasons that are remembered while Valkey does not answer.
    const MOST_CAUSES: usize = 8;
    /// The time between further ones, each of which replaces the oldest.
    const FURTHER_AFTER: Duration = Duration::from_secs(60);

    fn is_linked_anew(&mut self, primary: &Arc<str>) -> bool {
        self.causes.clear();
        let before = self.linked_with.replace(Arc::clone(primary));
        before.as_ref() != Some(primary)
    }

    fn is_news_of(&mut self, error: &Error, now: Instant) -> bool {
        self.linked_with = None;
        // Some tell the time, and are another text each second.
        let cause = without_numbers(&error.to_string());
        if self.causes.contains(&cause) {
            return false;
        }
        if self.causes.len() == Self::MOST_CAUSES {
            if self.told_at.is_some_and(|at| now < at + Self::FURTHER_AFTER) {
                return false;
            }
            self.causes.remove(0);
        }
        self.causes.push(cause);
        self.told_at = Some(now);
        true
    }
}

fn mailbox(store: &Store) -> &Mailbox {
    store.mailbox().expect("opened for a cluster")
}

/// Takes letters out of shared memory. It runs on a thread, because it sleeps there.
struct Postman {
    store: Arc<Store>,
    health: Arc<Health>,
    is_over: Arc<AtomicBool>,
}

impl Postman {
    /// Runs until it is over, or the cache is gone or another agent's: then the other tasks end, too, because the sender is dropped.
    fn run(&self, to: &mpsc::Sender<Letter>) -> Result<(), Error> {
        const SLEEP: Duration = Duration::from_millis(100);
        let mut letters = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            if mailbox(&self.store).has_other_agent() {
                return Err(Error::OtherAgent { name: self.store.name().clone() });
            }
            // Servers have turned first flights away meanwhile.
            if !mailbox(&self.store).has_agent() {
                self.health.note_standstill();
            }
            mailbox(&self.store).receive(&mut letters, SLEEP, self.health.is_linked());
            if self.store.is_cut_short() {
                return Err(Error::CacheCutShort { name: self.store.name().clone() });
            }
            for letter in letters.drain(..) {
                // A short queue keeps the wait of a handshake short.
                if let Err(letter) = to.try_send(letter).map_err(TrySendError::into_inner) {
                    self.count_dropped(&letter);
                }
            }
        }
        Ok(())
    }

    /// Counts a letter that is not carried.
    fn count_dropped(&self, letter: &Letter) {
        mailbox(&self.store).note_dropped();
        if letter.says == Says::Stored {
            self.health.note_sent(Sent::Failed);
        }
    }
}

/// Returns the Unix time in milliseconds.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use rejoin_cache::{Capacity, ContextTag, SessionId};
    use rejoin_testkit::folder::Folder;
    use rejoin_testkit::process::wait_until;

    use super::*;

    /// A postman of a new cache.
    fn postman(folder: &Folder) -> Postman {
        let settings = CacheSettings::new(Capacity::Sessions(10));
        let name = "test".parse().expect("a name");
        let store = Store::open_for_cluster(folder, &name, Some(&settings), &[7; 16]);
        let store = Arc::new(store.expect("made"));
        Postman { store, health: Arc::default(), is_over: Arc::default() }
    }

    /// rustls tells of an expired certificate how many seconds ago that was.
    #[test]
    fn a_cause_is_told_once_whatever_its_numbers_and_further_ones_now_and_then() {
        let (mut told, begin) = (Told::default(), Instant::now());
        let mut is_news = |text: &str, after_s| {
            let error =
                Error::Valkey(redis::RedisError::from(std::io::Error::other(text.to_owned())));
            told.is_news_of(&error, begin + Duration::from_secs(after_s))
        };
        let expired = |time: u64| {
            format!(
                "10.0.0.5:6379: certificate expired: verification time {time} (UNIX), ({} seconds ago)",
                time - 7
            )
        };
        assert!(is_news(&expired(1_700_000_000), 0));
        assert!((1..60).all(|second| !is_news(&expired(1_700_000_000 + second), second)));
        assert!(
            is_news(&expired(1_700_000_000).replace("0.5:6379", "0.6:6379"), 0),
            "another server"
        );
        for text in ["one", "two", "three", "four", "five", "six"] {
            assert!(is_news(text, 1) && !is_news(text, 1), "{text}");
        }
        assert!(!is_news("the ninth", 60) && is_news("the ninth", 61) && !is_news("the ninth", 62));
        assert!(!is_news("six", 122) && !is_news("the tenth", 120) && is_news("the tenth", 121));
        // The oldest were forgotten.
        assert!(is_news(&expired(1_700_000_000), 200));
    }

    #[test]
    fn letters_that_the_agent_has_no_room_for_are_counted() {
        const ROOM: usize = 10;
        const POSTED: u64 = 100;
        let folder = Folder::new();
        let postman = postman(&folder);
        let (to, mut received) = mpsc::channel(ROOM);
        let (store, health) = (Arc::clone(&postman.store), Arc::clone(&postman.health));
        let is_over = Arc::clone(&postman.is_over);
        let postman = std::thread::spawn(move || postman.run(&to));
        wait_until("a sign of life", || mailbox(&store).has_agent());
        for number in 0..POSTED {
            let id = SessionId::new(&number.to_le_bytes()).expect("eight bytes");
            let says = if number % 2 == 0 { Says::Stored } else { Says::Seen };
            mailbox(&store).tell(&id, ContextTag(1), says);
        }
        wait_until("all letters", || {
            mailbox(&store).facts().dropped + received.len() as u64 == POSTED
        });
        is_over.store(true, Ordering::Relaxed);
        postman.join().expect("no panic").expect("the cache is there");
        let stored = iter::from_fn(|| received.try_recv().ok())
            .filter(|letter| letter.says == Says::Stored)
            .count() as u64;
        assert_eq!(mailbox(&store).facts().dropped, POSTED - ROOM as u64);
        assert_eq!(health.read().unsent, POSTED / 2 - stored);
    }
}
