//! The ticket keys that the servers of a cache have in common, on a page of its file.
//!
//! The first process that finds the next key due makes it, under the page's lock. All others see within a
//! second that the ring has changed. A process killed while it wrote leaves a page whose checksum is wrong:
//! then there is a new ring, and tickets under the old one lead to full handshakes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rejoin_tickets::{KeyId, KeyRing, KeySource, Reschedule, SECRET_BYTES, Schedule, TicketEvent};
use zeroize::Zeroizing;

use crate::key_file::{KeyFile, Page};
use crate::random::fill_at_random;
use crate::{Error, Store};

/// Ticket keys for a server that follows them.
pub struct SharedKeys {
    store: Arc<Store>,
    file: Option<KeyFile>,
    told: Mutex<Told>,
    complain: fn(&Error),
    /// True if this process hands the keys on. It has nothing to do with those that its machine's servers make themselves.
    is_for_others: bool,
    has_complained: AtomicBool,
}

/// The figures of the ring that was reported last.
#[derive(Default)]
struct Told {
    /// The mark of its page; zeros if none was reported.
    mark: [u8; MARK_BYTES],
    schedule: Schedule,
    /// The oldest and the newest key that this machine's servers made themselves, while those of their cluster had not come.
    own: Option<[KeyId; 2]>,
    /// The Unix time from which a file is tried again that could not be written.
    keeps_again_s: u64,
}

/// The seconds until a file that could not be written is tried again.
const KEEPS_AGAIN_S: u64 = 30;
/// The bytes at the end of a page that differ if the ring does: its checksum.
const MARK_BYTES: usize = 32;

impl SharedKeys {
    /// Opens the keys of the cache. From now on they change by `schedule`, or else by the schedule that they have.
    /// With `file` they are also kept in that file. If the cache has no keys, those of the file are used, or a new
    /// ring is made. `complain` is called once with [`Error::NotKept`] if the file cannot be written, now or later; the keys
    /// go on without.
    ///
    /// # Errors
    /// A key file that is not ours or not a ring, or cannot be read; [`Error::KeysLocked`].
    pub fn open(
        store: Arc<Store>,
        schedule: Option<Schedule>,
        file: Option<&Path>,
        now_s: u64,
        complain: fn(&Error),
    ) -> Result<Self, Error> {
        let change = schedule.map(Reschedule::from).unwrap_or_default();
        Self::open_rescheduled(store, change, file, now_s, complain)
    }

    /// Opens the keys of the cache as [`Self::open`] does. From now on they change by the figures that are given, and for the rest by
    /// the schedule that they have.
    ///
    /// # Errors
    /// Those of [`Self::open`], and figures that do not fit the others.
    pub fn open_rescheduled(
        store: Arc<Store>,
        change: Reschedule,
        file: Option<&Path>,
        now_s: u64,
        complain: fn(&Error),
    ) -> Result<Self, Error> {
        if store.mailbox().is_some() {
            return Ok(Self::following(store, None, complain));
        }
        let file = file.map(KeyFile::new);
        let kept = file.as_ref().map_or(Ok(None), KeyFile::read)?;
        let schedule = store.change_ring(|ring| {
            if let Some(kept) = kept.filter(|_| is_empty(ring, now_s)) {
                *ring = kept;
            }
            ring.reschedule(change.of(ring.schedule())?);
            rotate_if_due(ring, now_s).map(|()| *ring.schedule())
        })??;
        let mut keys = Self::following(store, file, complain);
        keys.told = Mutex::new(Told { schedule, ..Told::default() });
        keys.keep();
        Ok(keys)
    }

    /// Lets the keys be handed on to programs that have not the cache. A cluster's keys come when they have reached the
    /// machine; those that its servers make until then stay with its servers.
    #[must_use]
    pub fn for_others(self) -> Self {
        Self { is_for_others: true, ..self }
    }

    /// Looks whether this process can keep keys in a file: it can replace it, and read it if it is there. Leaves nothing
    /// behind. [`Self::open`] goes on with a file that it cannot write.
    ///
    /// # Errors
    /// [`Error::Refused`], with the operating system's reason; those of [`Self::open`].
    pub fn check_file(file: &Path) -> Result<(), Error> {
        KeyFile::new(file).check()
    }

    fn following(store: Arc<Store>, file: Option<KeyFile>, complain: fn(&Error)) -> Self {
        let (told, has_complained) = (Mutex::default(), AtomicBool::new(false));
        Self { store, file, told, complain, is_for_others: false, has_complained }
    }

    fn newer_ring(&self, now_s: u64) -> Result<Option<KeyRing>, Error> {
        // Another thread is here, or one was when the process forked.
        let Ok(mut told) = self.told.try_lock() else { return Ok(None) };
        let mut page = Zeroizing::new([0; Store::PAGE_BYTES]);
        self.store.copy_page(&mut page)?;
        let ring = KeyRing::from_page(&page).ok();
        let is_of_cluster = self.store.mailbox().is_some();
        if is_of_cluster && !self.is_for_others {
            return self.newer_of_cluster(ring, mark(&page), &mut told, now_s);
        }
        // A cluster's ring is changed by its agent alone.
        let is_due = !is_of_cluster && ring.as_ref().is_none_or(|ring| ring.due(now_s));
        if !is_due {
            let is_new = *mark(&page) != told.mark || self.keeps_again(&mut told, now_s);
            told.mark = *mark(&page);
            ring.iter().for_each(|ring| told.schedule = *ring.schedule());
            return Ok(ring.filter(|_| is_new));
        }
        // A process was killed while it wrote the page, or the cache was removed, which leaves zeros.
        let is_lost = ring.is_none();
        let kept = if is_lost { self.kept() } else { None };
        // Another process may have rotated it by now. A later change is seen next time.
        let rotated = |ring: &mut KeyRing| {
            if is_lost && is_empty(ring, now_s) {
                *ring = kept.unwrap_or_else(|| KeyRing::new(told.schedule));
                ring.reschedule(told.schedule);
            }
            rotate_if_due(ring, now_s).map(|()| ring.clone())
        };
        let ring = self.store.change_ring(rotated)??;
        ring.to_page(&mut page);
        let keeps_again_s = now_s.saturating_add(KEEPS_AGAIN_S);
        *told = Told { mark: *mark(&page), schedule: *ring.schedule(), own: None, keeps_again_s };
        Ok(Some(ring))
    }

    /// Returns the cluster's ring if it is new, or else the one that this machine's servers make while there is none. The
    /// cluster's is changed by its agent alone. It opens the tickets that were sealed before it came, too.
    fn newer_of_cluster(
        &self,
        ring: Option<KeyRing>,
        page_mark: &[u8; MARK_BYTES],
        told: &mut Told,
        now_s: u64,
    ) -> Result<Option<KeyRing>, Error> {
        let ends = |ring: &KeyRing| {
            let mut ids = ring.list(now_s).map(|key| key.id);
            let oldest = ids.next()?;
            Some([oldest, ids.last().unwrap_or(oldest)])
        };
        let Some(mut ring) = ring else {
            // This process has a ring of the cluster's. The page was lost since, and its keys are as good as new ones.
            if told.mark != [0; MARK_BYTES] {
                return Ok(None);
            }
            let own = self.store.own_ring(now_s)?;
            let before = told.own;
            told.own = own.as_ref().and_then(ends).or(before);
            return Ok(own.filter(|_| told.own != before));
        };
        let own = self.store.own_ring_left(ring.schedule(), now_s)?;
        let own_ends = own.as_ref().and_then(|(own, _)| ends(own));
        // Keys of the own one may be gone: then this process must not keep them.
        let is_new = *page_mark != told.mark || own_ends != told.own;
        own.iter().for_each(|(own, sealed_at_s)| ring.open_tickets_of(own, *sealed_at_s));
        (told.mark, told.schedule, told.own) = (*page_mark, *ring.schedule(), own_ends);
        Ok(Some(ring).filter(|_| is_new))
    }

    /// Returns true if the file could not be written, and it is time to try again: the ring is reported once more.
    fn keeps_again(&self, told: &mut Told, now_s: u64) -> bool {
        let is_due = now_s >= told.keeps_again_s && self.has_complained.load(Ordering::Relaxed);
        if is_due {
            told.keeps_again_s = now_s.saturating_add(KEEPS_AGAIN_S);
        }
        is_due && self.store.is_named()
    }

    /// Returns the ring in the file, if it can be read.
    fn kept(&self) -> Option<KeyRing> {
        self.file.as_ref()?.read().ok().flatten()
    }
}

impl KeySource for SharedKeys {
    fn newer(&self, now_s: u64) -> Option<KeyRing> {
        // The current keys go on if the page is locked, or if there are no random numbers.
        self.newer_ring(now_s).ok().flatten()
    }

    /// Writes the ring to the file, if there is one, unless the cache was removed or replaced: then the file is that of
    /// others. Reports a failure once, until a later write succeeds: the ring is reported again every half a minute for that.
    ///
    /// The thread that saw the change waits for the disk here, once for each key, when all other threads have the
    /// ring. No other thread can write the file: servers start none of ours, and none would survive a fork. Nor can
    /// another process: only a cluster has an agent. And without `fsync` a power failure could leave an empty file,
    /// which the next start refuses. A slow disk loses no ticket: a key is made the schedule's lead before its turn.
    fn keep(&self) {
        let Some(file) = self.file.as_ref().filter(|_| self.store.is_named()) else { return };
        let copy_ring = |page: &mut Page| {
            self.store.copy_page(page)?;
            Ok(KeyRing::from_page(page).map(drop)?)
        };
        match file.write(copy_ring) {
            Ok(()) => self.has_complained.store(false, Ordering::Relaxed),
            // The cache is being removed, or a process was killed while it wrote. Whoever makes the next ring keeps that.
            Err(Error::Keys(_)) => {}
            Err(_) if self.has_complained.swap(true, Ordering::Relaxed) => {}
            Err(error) => (self.complain)(&Error::NotKept(Box::new(error))),
        }
    }

    fn record(&self, event: TicketEvent) {
        self.store.tickets()[event as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedKeys").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the ring of ticket keys, or `None` if no server has made one yet.
    ///
    /// # Errors
    /// [`Error::KeysLocked`].
    pub fn ring(&self) -> Result<Option<KeyRing>, Error> {
        let mut page = Zeroizing::new([0; Self::PAGE_BYTES]);
        self.copy_page(&mut page)?;
        Ok(KeyRing::from_page(&page).ok())
    }

    /// Returns the ring that the servers of this machine seal with while their cluster's has not come. Makes it, or its next
    /// key, if that is due. `None`: the cluster's has come meanwhile.
    fn own_ring(&self, now_s: u64) -> Result<Option<KeyRing>, Error> {
        let taken = self.with_page(|page, _| {
            if KeyRing::from_page(page).is_ok() {
                return Ok(None);
            }
            let own = &self.figures().own_ring;
            let there = own.read(now_s).map(|(ring, _)| ring);
            let mut ring = there.unwrap_or_else(|| KeyRing::new(Schedule::default()));
            match ring.due(now_s) {
                false => own.note_use(now_s),
                true => {
                    rotate_if_due(&mut ring, now_s)?;
                    own.write(&mut ring, now_s);
                }
            }
            Ok(Some(ring))
        });
        taken.ok_or_else(|| Error::KeysLocked { name: self.name().clone() })?
    }

    /// Returns the ring that the servers of this machine had before their cluster's came, and the time when one of them last
    /// sealed with it. `None` if there was none, or its last ticket has expired, by its schedule or by the cluster's.
    fn own_ring_left(
        &self,
        of_cluster: &Schedule,
        now_s: u64,
    ) -> Result<Option<(KeyRing, u64)>, Error> {
        let left = self.with_page(|_, _| self.figures().own_ring.read_or_wipe(of_cluster, now_s));
        left.ok_or_else(|| Error::KeysLocked { name: self.name().clone() })
    }

    /// The most keys in a ring after [`Self::rotate_keys`]: one place is left to the schedule.
    pub const MOST_KEYS_BY_HAND: usize = KeyRing::MOST_KEYS - 1;

    /// Makes a key, whose turn begins after the schedule's lead.
    ///
    /// # Errors
    /// [`Error::OfCluster`], [`Error::KeysLocked`], [`Error::TooManyKeys`], and a lack of random numbers.
    pub fn rotate_keys(&self, now_s: u64) -> Result<KeyId, Error> {
        self.is_own()?;
        self.change_ring(|ring| {
            ring.remove_expired(now_s);
            let keys = ring.list(now_s).count();
            if keys < Self::MOST_KEYS_BY_HAND {
                rotate(ring, now_s)
            } else {
                Err(Error::TooManyKeys { keys })
            }
        })?
    }

    /// Replaces the ring by the cluster's ring of this version, for the agent.
    ///
    /// # Errors
    /// [`Error::KeysLocked`].
    pub fn adopt_ring(&self, newer: &KeyRing, version: u64) -> Result<(), Error> {
        self.change_ring(|ring| ring.clone_from(newer))?;
        self.figures().ring_version.store(version, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the version of the ring that was adopted last; 0 if none was.
    pub fn ring_version(&self) -> u64 {
        self.figures().ring_version.load(Ordering::Relaxed)
    }

    /// Removes a key, from all servers within a second, and from their key file with the next
    /// ticket. Returns true if it was there.
    ///
    /// # Errors
    /// [`Error::OfCluster`], [`Error::KeysLocked`].
    pub fn retire_key(&self, id: &KeyId) -> Result<bool, Error> {
        self.is_own()?;
        self.change_ring(|ring| ring.retire(id))
    }

    /// Fails if the keys are those of a cluster.
    fn is_own(&self) -> Result<(), Error> {
        let of_cluster = || Error::OfCluster { name: self.name().clone() };
        if self.mailbox().is_none() { Ok(()) } else { Err(of_cluster()) }
    }

    /// Returns the counts of tickets of all servers, by name.
    pub fn ticket_counters(&self) -> [(&'static str, u64); TicketEvent::ALL.len()] {
        TicketEvent::ALL
            .map(|event| (event.name(), self.tickets()[event as usize].load(Ordering::Relaxed)))
    }

    fn tickets(&self) -> &[AtomicU64; TicketEvent::ALL.len()] {
        &self.figures().tickets
    }

    /// Changes the ring under the page's lock. A page that holds no ring counts as an empty one.
    fn change_ring<T>(&self, change: impl FnOnce(&mut KeyRing) -> T) -> Result<T, Error> {
        let changed = self.with_page(|page, _| {
            let there = KeyRing::from_page(page);
            let mut ring = there.unwrap_or_else(|_| KeyRing::new(Schedule::default()));
            let result = change(&mut ring);
            ring.to_page(page);
            result
        });
        changed.ok_or_else(|| Error::KeysLocked { name: self.name().clone() })
    }

    /// Copies the page to the caller's, which is the only copy: one that is returned would stay behind on the stack.
    fn copy_page(&self, to: &mut Page) -> Result<(), Error> {
        let copied = self.with_page(|page, _| to.copy_from_slice(page));
        copied.ok_or_else(|| Error::KeysLocked { name: self.name().clone() })
    }
}

/// Returns true if a ring has no key.
fn is_empty(ring: &KeyRing, now_s: u64) -> bool {
    ring.list(now_s).next().is_none()
}

fn mark(page: &Page) -> &[u8; MARK_BYTES] {
    page.last_chunk().expect("a page is longer")
}

/// Makes the change that is due, if one is.
pub(crate) fn rotate_if_due(ring: &mut KeyRing, now_s: u64) -> Result<(), Error> {
    if ring.due(now_s) {
        with_fresh(|fresh| ring.rotate_due(now_s, fresh))?;
    }
    Ok(())
}

/// Makes a key before one is due.
pub(crate) fn rotate(ring: &mut KeyRing, now_s: u64) -> Result<KeyId, Error> {
    with_fresh(|fresh| ring.rotate(now_s, fresh))
}

/// Lends random bytes for a key. Bytes that are returned would stay behind on the stack.
fn with_fresh<T>(
    make: impl FnOnce(&mut [u8; SECRET_BYTES]) -> Result<T, rejoin_tickets::Error>,
) -> Result<T, Error> {
    let mut fresh = Zeroizing::new([0; SECRET_BYTES]);
    fill_at_random(&mut *fresh)?;
    Ok(make(&mut fresh)?)
}
