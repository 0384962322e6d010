//! The agent of each machine, between the servers' shared memory and Valkey.
//!
//! One task follows the ring of ticket keys. Others carry sessions, as servers request in the cache's
//! mailbox. Requests that Valkey does not handle in time are dropped: a lost session costs a full handshake.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rejoin_cache::{History, Kept, NewSession, SecretBytes, SessionId, Settings as CacheSettings};
use rejoin_store::{Asked, Asker, Letter, Mailbox, Says, Store, now_ms};
use rejoin_tickets::{KeyRing, Schedule};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::health::{Fetched, Health, Sent};
use crate::sessions::{Entry, Found, NEVER_MS, Past, Put, Sessions, Taken, returns_ms};
use crate::{ClusterKeys, ClusterSecret, Error, KeyFile, Link, RingRecord, Servers, Settings};

/// The agent of one machine.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    /// Read by [`Self::new`], and handed over by [`Self::run`].
    files: Option<(KeyFile, RingRecord)>,
    servers: Servers,
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
    /// Valkey denies a command or a key to the agent's user: its rules are not those of [`Settings::acl_rules`]. Told once.
    Denied(&'a Error),
    /// The highest version of the ring cannot be recorded beside the key file. After a restart of the machine, an older
    /// ring could not be recognised.
    Unrecorded(&'a Error),
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
        let servers = settings.valkey()?;
        let cache = CacheSettings::new(settings.capacity);
        let (folder, name) = (&settings.folder, settings.cache()?);
        let store = Store::open_for_cluster(folder, &name, Some(&cache), secret.ids())?;
        let store = Arc::new(store);
        Self::be_the_only_one(&store)?;
        mailbox(&store).set_deadline(settings.deadline());
        let record = RingRecord::open(&settings.key_file, secret, &settings.name)?;
        let (accepts_older_ring, health) = (false, Arc::<Health>::default());
        health.note_rekey_step(secret.step());
        let files = Some((key_file, record));
        Ok(Self { settings, files, servers, store, accepts_older_ring, health })
    }

    /// Accepts the first ring in Valkey, even if this machine has seen a newer one.
    #[must_use]
    pub fn accepting_older_ring(mut self, accepts: bool) -> Self {
        self.accepts_older_ring = accepts;
        self
    }

    /// Waits until no other agent serves the cache. An agent that was killed is forgotten after a second.
    fn be_the_only_one(store: &Store) -> Result<(), Error> {
        const STEPS: u32 = 15;
        const STEP: Duration = Duration::from_millis(100);
        for _ in 0..STEPS {
            if !mailbox(store).has_agent() {
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
    /// A setting is out of range, or the cache was removed. An unreachable Valkey is not an error.
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
        let _ = postman.join();
        mailbox(&self.store).leave();
        done
    }

    fn keys(&self, secret: &ClusterSecret) -> Result<ClusterKeys, Error> {
        let (name, schedule) = (self.settings.name.clone(), self.settings.schedule()?);
        let last = self.store.ring()?.map(|ring| (self.store.ring_version(), ring));
        let keys = ClusterKeys::new(name, secret, Some(schedule))?.after(last);
        Ok(keys.accepting_older(self.accepts_older_ring))
    }

    async fn work(
        &self,
        mut keys: ClusterKeys,
        mut key_file: KeyFile,
        mut letters: mpsc::Receiver<Letter>,
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let mut link = Link::open(self.servers.clone());
        let ring = self.store.ring()?.unwrap_or_else(|| KeyRing::new(Schedule::default()));
        let sessions =
            Sessions::of_cluster(link.clone(), &self.settings, key_file.secret(), &ring)?;
        let carrier = Arc::new(Carrier {
            store: Arc::clone(&self.store),
            sessions,
            health: Arc::clone(&self.health),
            deadline: self.settings.deadline(),
            usual: CacheSettings::new(self.settings.capacity),
        });
        let at_once = Arc::new(Semaphore::new(Self::MOST_AT_ONCE));
        let mut look = interval(Self::LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut to_adopt) = (Told::default(), None);
        let carry = async {
            while let Some(letter) = letters.recv().await {
                let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
                let carrier = Arc::clone(&carrier);
                tokio::spawn(async move {
                    carrier.carry(letter).await;
                    drop(turn);
                });
            }
        };
        let follow = async {
            loop {
                look.tick().await;
                match key_file.renew() {
                    Ok(false) => {}
                    Ok(true) => {
                        let secret = key_file.secret();
                        keys.set_secret(secret);
                        carrier.sessions.set_secret(secret);
                        self.health.note_rekey_step(secret.step());
                        tell(News::Rekeyed(secret));
                    }
                    Err(error) => tell(News::NotRekeyed(&error)),
                }
                let followed = self.timed(keys.follow(&mut link, unix_ms() / 1_000)).await;
                keys.take_unrecorded().iter().for_each(|error| tell(News::Unrecorded(error)));
                self.health.note_misses(carrier.sessions.misses());
                if !self.store.facts().is_named {
                    return Err(Error::CacheRemoved { name: self.store.name().clone() });
                }
                match followed {
                    Ok(newer) => {
                        if let Some(ring) = newer {
                            carrier.sessions.set_ring(&ring);
                            to_adopt = Some((ring, keys.version()));
                        }
                        let report = carrier.sessions.report_rejected();
                        // A failed report is repeated the next time.
                        let _ = timeout(Self::ANSWERS_WITHIN, report).await;
                        // If the shared memory is locked, the ring is adopted the next time.
                        to_adopt = to_adopt.filter(|(ring, version)| {
                            self.store.adopt_ring(ring, *version).is_err()
                        });
                        link.primary().iter().for_each(|primary| told.linked(primary, tell));
                    }
                    Err(error) => told.cut(&error, tell),
                }
                link.take_denied().iter().for_each(|error| tell(News::Denied(error)));
            }
        };
        tokio::select! {
            () = carry => Ok(()),
            () = self.keep_house(&carrier.sessions) => Ok(()),
            done = follow => done,
        }
    }

    /// Waits for Valkey's answer, for as long as it counts as reachable, and notes it.
    async fn timed<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let began = Instant::now();
        let answer = timeout(Self::ANSWERS_WITHIN, answer).await.unwrap_or(Err(Error::NoAnswer));
        match answer.as_ref().is_err_and(Error::is_away) {
            true => self.health.note_silence(),
            false => self.health.note_answer(unix_ms() / 1_000, began.elapsed()),
        }
        answer
    }

    /// Evicts expired and overdue sessions, so that they take no room from others. Never ends.
    async fn keep_house(&self, sessions: &Sessions) {
        let mut turn = interval(Self::HOUSEKEEPING_EVERY);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for shard in (0..self.settings.bounds().shards).cycle() {
            turn.tick().await;
            let (overdue_for_ms, most) = (Self::OVERDUE_FOR_MS, Self::MOST_EVICTED);
            let _ = sessions.evict(unix_ms(), overdue_for_ms, shard, most).await;
        }
    }
}

/// The last news of Valkey, so that none is told twice.
#[derive(Default)]
struct Told {
    linked_with: Option<Arc<str>>,
    /// The reasons since Valkey answered last.
    causes: Vec<String>,
}

impl Told {
    /// The most reasons that are told while Valkey does not answer.
    const MOST_CAUSES: usize = 8;

    fn linked(&mut self, primary: &Arc<str>, tell: &mut impl FnMut(News<'_>)) {
        if self.linked_with.as_ref() != Some(primary) {
            self.linked_with = Some(Arc::clone(primary));
            tell(News::Linked(primary));
        }
        self.causes.clear();
    }

    fn cut(&mut self, error: &Error, tell: &mut impl FnMut(News<'_>)) {
        self.linked_with = None;
        let cause = error.to_string();
        if self.causes.len() < Self::MOST_CAUSES && !self.causes.contains(&cause) {
            self.causes.push(cause);
            tell(News::Cut(error));
        }
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
    fn run(&self, to: &mpsc::Sender<Letter>) {
        const SLEEP: Duration = Duration::from_millis(100);
        let mut letters = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            mailbox(&self.store).receive(&mut letters, SLEEP, self.health.is_linked());
            for letter in letters.drain(..) {
                // A short queue keeps the wait of a handshake short. Letters that do not fit are dropped.
                let _ = to.try_send(letter);
            }
        }
    }
}

/// Carries sessions between the cache and Valkey.
struct Carrier {
    store: Arc<Store>,
    sessions: Sessions,
    health: Arc<Health>,
    deadline: Duration,
    /// The prediction settings of the machine's cache.
    usual: CacheSettings,
}

impl Carrier {
    /// Handles a letter. If Valkey fails, its session is lost.
    async fn carry(&self, letter: Letter) {
        match letter.says {
            Says::Stored => drop(self.store_remotely(&letter).await),
            Says::Seen => drop(self.expect(&letter).await),
            Says::Retired => drop(self.retire(&letter.id).await),
            Says::Removed => drop(self.sessions.remove(&letter.id).await),
            Says::Wanted(asker) => self.fetch(&letter, asker, false).await,
            Says::Taken(asker) => self.fetch(&letter, asker, true).await,
        }
    }

    async fn store_remotely(&self, letter: &Letter) -> Result<(), Error> {
        let mut value = SecretBytes::default();
        let Letter { id, context, .. } = letter;
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
        self.sent(self.sessions.put(unix_ms(), &entry).await)
    }

    fn sent(&self, put: Result<Put, Error>) -> Result<(), Error> {
        self.health.note_sent(match put {
            Ok(Put::Stored { .. }) => Sent::Stored,
            Ok(Put::Refused(_) | Put::Taken) => Sent::Refused,
            Err(_) => Sent::Failed,
        });
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
        // Without an answer the server continues with a full handshake.
        let Ok(Ok(found)) = found.await else { return self.health.note_fetched(Fetched::Failed) };
        let is_there = found.as_ref().is_some_and(|found| self.admit(letter, found));
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
        if let (false, Some(found), Some(taken)) = (is_there, &found, taken) {
            drop(self.put_back(&letter.id, found, taken).await);
        }
    }

    /// Puts a session back into Valkey that was taken and did not fit into the machine's cache.
    async fn put_back(&self, id: &SessionId, found: &Found, taken: &Taken) -> Result<(), Error> {
        let Found { context, ref value, expires_ms, past, .. } = *found;
        let usual = &self.usual;
        let returns_ms =
            returns_ms(usual.prediction, past.seen_ms, past.history, None, usual.prior_ms);
        let entry = Entry { id, context, value, expires_ms, past, returns_ms };
        self.sent(self.sessions.put_back(unix_ms(), &entry, taken).await)
    }

    /// Puts a session into the machine's cache, where its client is about to resume it.
    fn admit(&self, letter: &Letter, found: &Found) -> bool {
        let now_ms = now_ms();
        let away_ms = unix_ms().saturating_sub(found.past.seen_ms);
        let new = NewSession {
            id: letter.id,
            value: &found.value,
            expires_ms: boot_of(found.expires_ms),
            context: found.context,
            history: found.past.history,
            hint_ms: None,
            sibling: false,
            seen_ms: Some(now_ms.saturating_sub(away_ms)),
        };
        found.context == letter.context && self.store.cache().insert(now_ms, &new).is_ok()
    }
}

fn past(kept: &Kept) -> Past {
    Past { history: kept.history, seen_ms: unix_of(kept.seen_ms) }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Converts a time of the cache's clock to Unix time.
fn unix_of(boot_ms: u64) -> u64 {
    unix_ms().saturating_sub(now_ms()).saturating_add(boot_ms)
}

/// Converts Unix time to a time of the cache's clock.
fn boot_of(unix: u64) -> u64 {
    unix.saturating_sub(unix_ms().saturating_sub(now_ms()))
}
