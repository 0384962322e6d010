//! What runs on each machine, between the servers' shared memory and Valkey.
//!
//! One task follows the ring of ticket keys, and others carry sessions as servers ask in the cache's
//! mailbox. What Valkey does not take in time is dropped: a session lost is a full handshake.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_cache::{History, Kept, NewSession, SecretBytes, SessionId, Settings as CacheSettings};
use rejoin_store::{Asker, Letter, Mailbox, Says, Store, now_ms};
use rejoin_tickets::{KeyRing, Schedule};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::sessions::{Entry, Found, NEVER_MS, Past, Sessions, returns_ms};
use crate::{ClusterKeys, Error, Link, Servers, Settings, WrappingKey};

/// One machine's part in a cluster.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    key: WrappingKey,
    servers: Servers,
    store: Arc<Store>,
}

/// What an operator is told, once each time it changes.
#[derive(Debug)]
pub enum News<'a> {
    /// Valkey answers.
    Linked,
    /// It does not, and servers go on with what the machine has.
    Cut(&'a Error),
}

impl Agent {
    /// How often the ring is looked at.
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    /// Valkey is away that does not answer for so long.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
    /// Operations under way at a time; more letters wait, and then are dropped.
    const MOST_AT_ONCE: usize = 512;
    const MOST_WAITING: usize = 16_384;
    const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(1);
    const MOST_EVICTED: u32 = 100;
    /// Whose client is a day late: most tickets are over by then.
    const OVERDUE_FOR_MS: u64 = 24 * 3_600 * 1_000;

    /// Reads all files that the settings name, and opens the machine's cache, or makes it. Afterwards
    /// neither is opened again: the process may become another user. To be called before the servers start:
    /// they find the cache then.
    ///
    /// # Errors
    /// A file that cannot be read, a cache that is not the cluster's, settings out of range.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let key = WrappingKey::read(&settings.key_file)?;
        let servers = settings.valkey()?;
        let id_key = key.derive(b"session ids");
        let id_key = id_key.first_chunk().expect("32 bytes");
        let cache = CacheSettings::new(settings.capacity);
        let (folder, name) = (&settings.folder, settings.cache()?);
        let store = Store::open_for_cluster(folder, &name, Some(&cache), id_key)?;
        let store = Arc::new(store);
        Self::be_the_only_one(&store)?;
        mailbox(&store).set_deadline(settings.deadline());
        Ok(Self { settings, key, servers, store })
    }

    /// One that was killed is forgotten a second later.
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

    /// Works until `shutdown` is done.
    ///
    /// # Errors
    /// Settings out of range, and a cache that was removed. Not that Valkey is away.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()>,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let is_linked = Arc::new(AtomicBool::new(false));
        let is_over = Arc::new(AtomicBool::new(false));
        let (letters, received) = mpsc::channel(Self::MOST_WAITING);
        let postman = Postman {
            store: Arc::clone(&self.store),
            is_linked: Arc::clone(&is_linked),
            is_over: Arc::clone(&is_over),
        };
        let postman = std::thread::spawn(move || postman.run(&letters));
        let work = self.work(received, &is_linked, &mut tell);
        let done = tokio::select! {
            done = work => done,
            () = shutdown => Ok(()),
        };
        is_over.store(true, Ordering::Relaxed);
        // It ends within a quarter of a second.
        let _ = postman.join();
        mailbox(&self.store).leave();
        done
    }

    async fn work(
        &self,
        mut letters: mpsc::Receiver<Letter>,
        is_linked: &AtomicBool,
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<(), Error> {
        let Settings { name, .. } = &self.settings;
        let last = self.store.ring()?;
        let keys = ClusterKeys::new(name.clone(), &self.key, Some(self.settings.schedule()?))?;
        let mut keys = keys.after(last.clone());
        let mut link = connected(&self.servers, tell).await;
        let ring = last.unwrap_or_else(|| KeyRing::new(Schedule::default()));
        let sessions = Sessions::of_cluster(link.clone(), &self.settings, &self.key, &ring)?;
        let carrier = Arc::new(Carrier {
            store: Arc::clone(&self.store),
            sessions,
            deadline: self.settings.deadline(),
            usual: CacheSettings::new(self.settings.capacity),
        });
        let at_once = Arc::new(Semaphore::new(Self::MOST_AT_ONCE));
        let mut look = interval(Self::LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut was_linked, mut to_adopt) = (None, None);
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
                let followed = keys.follow(&mut link, unix_ms() / 1_000);
                let followed = timeout(Self::ANSWERS_WITHIN, followed).await;
                let followed = followed.unwrap_or(Err(Error::NoAnswer));
                is_linked.store(!followed.as_ref().is_err_and(Error::is_away), Ordering::Relaxed);
                if !self.store.facts().is_named {
                    return Err(Error::CacheRemoved { name: self.store.name().clone() });
                }
                match followed {
                    Ok(newer) => {
                        if let Some(ring) = newer {
                            carrier.sessions.set_ring(&ring);
                            to_adopt = Some(ring);
                        }
                        let told = carrier.sessions.report_rejected();
                        // What could not be told is told the next time.
                        let _ = timeout(Self::ANSWERS_WITHIN, told).await;
                        // Locked: the next time.
                        to_adopt = to_adopt.filter(|ring| self.store.adopt_ring(ring).is_err());
                        if was_linked.replace(true) != Some(true) {
                            tell(News::Linked);
                        }
                    }
                    Err(error) => {
                        if was_linked.replace(false) != Some(false) {
                            tell(News::Cut(&error));
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = carry => Ok(()),
            () = self.keep_house(&carrier.sessions) => Ok(()),
            done = follow => done,
        }
    }

    /// What is over takes no room from others in the meantime. Never ends.
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

/// Waits for as long as it takes.
async fn connected(servers: &Servers, tell: &mut impl FnMut(News<'_>)) -> Link {
    const AGAIN_AFTER: Duration = Duration::from_millis(500);
    let mut told = false;
    loop {
        match Link::connect(servers).await {
            Ok(link) => return link,
            Err(error) if !told => tell(News::Cut(&error)),
            Err(_) => {}
        }
        told = true;
        sleep(AGAIN_AFTER).await;
    }
}

fn mailbox(store: &Store) -> &Mailbox {
    store.mailbox().expect("opened for a cluster")
}

/// Takes letters out of shared memory: a thread, since it sleeps there.
struct Postman {
    store: Arc<Store>,
    is_linked: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Postman {
    fn run(&self, to: &mpsc::Sender<Letter>) {
        const SLEEP: Duration = Duration::from_millis(100);
        let mut letters = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let is_linked = self.is_linked.load(Ordering::Relaxed);
            mailbox(&self.store).receive(&mut letters, SLEEP, is_linked);
            for letter in letters.drain(..) {
                // Who waits is served first by there being little before it: the rest may be lost.
                let _ = to.try_send(letter);
            }
        }
    }
}

/// Carries sessions between the cache and Valkey.
struct Carrier {
    store: Arc<Store>,
    sessions: Sessions,
    deadline: Duration,
    /// How the machine's cache expects clients.
    usual: CacheSettings,
}

impl Carrier {
    /// Errors are Valkey's: what was to be carried is lost.
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
        // It may be gone by now.
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
        self.sessions.put(unix_ms(), &entry).await.map(|_| ())
    }

    /// A client was here: Valkey is to know. Where it has no such session it gets none: another machine may
    /// have removed it.
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

    /// Nobody is expected for it: it goes when there is no room to spare.
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
        // Without an answer the asker goes on by itself.
        let Ok(Ok(found)) = found.await else { return };
        let is_there = found.as_ref().is_some_and(|found| self.admit(letter, found));
        mailbox(&self.store).answer(asker, is_there);
        if let Some(found) = found.filter(|_| take && !is_there) {
            drop(self.put_back(&letter.id, &found).await);
        }
    }

    /// A session that was taken and found no place here.
    async fn put_back(&self, id: &SessionId, found: &Found) -> Result<(), Error> {
        let Found { context, ref value, expires_ms, past } = *found;
        let usual = &self.usual;
        let returns_ms =
            returns_ms(usual.prediction, past.seen_ms, past.history, None, usual.prior_ms);
        let entry = Entry { id, context, value, expires_ms, past, returns_ms };
        self.sessions.put(unix_ms(), &entry).await.map(|_| ())
    }

    /// Puts a session into the machine's cache, where its client is about to come for it.
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

/// A time of the cache's clock, as Unix time; and back.
fn unix_of(boot_ms: u64) -> u64 {
    unix_ms().saturating_sub(now_ms()).saturating_add(boot_ms)
}

fn boot_of(unix: u64) -> u64 {
    unix.saturating_sub(unix_ms().saturating_sub(now_ms()))
}
