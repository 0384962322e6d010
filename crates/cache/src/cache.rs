//! The cache: shards, each used by one at a time.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use crate::check::{Checked, Inconsistency};
use crate::counters::{Counters, EarlyCounters};
use crate::error::{Error, Refusal};
use crate::id::{ContextTag, Key, SessionId};
use crate::interval::Interval;
use crate::layout::Layout;
use crate::ledger::{EarlyData, Ledger};
use crate::occupancy::Occupancy;
use crate::region::{HeapMemory, Region};
use crate::return_time::Clientele;
use crate::secret::SecretBytes;
use crate::session::{Admission, Arrival, Inserted, Kept, NewSession};
use crate::settings::{Policy, Settings};
use crate::shard::{Common, Shard};
use crate::source::{Fairness, Source};

/// A session cache: by default on the heap, for any number of threads. Every operation has the
/// session id's shard to itself, for well under a microsecond; an eviction takes several where
/// clients of every interval and trust mix. The table of return times takes
/// [`ReturnTimes::BYTES`](crate::ReturnTimes::BYTES) beside the shards.
///
/// If a shard cannot be locked ([`Region::with`]), an operation answers as if its session were not
/// there.
pub struct Cache<R: Region = Mutex<HeapMemory>> {
    shards: Box<[Placed<R>]>,
    common: Common<R::Ledger>,
    policy: Policy,
    fairness: Option<Fairness>,
}

/// A shard's region, on cache lines of its own, so that the locks of neighbours do not share one.
#[repr(align(128))]
pub(crate) struct Placed<R> {
    layout: Layout,
    region: R,
}

impl<R> Placed<R> {
    pub(crate) fn slots(&self) -> u32 {
        self.layout.slots
    }
}

impl Cache {
    /// Makes a cache on the heap. `hash_key` must be random, so that nobody can choose ids that fall
    /// on one place of the index. Memory is touched when it is first used.
    ///
    /// # Errors
    /// Returns an error if no cache can have these settings, or if memory is short.
    pub fn new(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Result<Self, Error> {
        Self::on_heap(settings, hash_key, now_ms, Mutex::new)
    }
}

impl Cache<RefCell<HeapMemory>> {
    /// Makes a cache on the heap for a single thread, which needs no locks.
    ///
    /// # Errors
    /// Returns the errors of [`Cache::new`].
    pub fn unshared(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Result<Self, Error> {
        Self::on_heap(settings, hash_key, now_ms, RefCell::new)
    }
}

impl<R: Region<Ledger = Box<Ledger>>> Cache<R> {
    /// Makes a cache on regions of zeros that the caller provides, one per layout.
    ///
    /// # Errors
    /// Returns an error if no cache can have these settings.
    pub fn on(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        mut region: impl FnMut(&Layout) -> R,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?;
        let regions = layouts.iter().map(&mut region).collect();
        let cache = Self::assemble(settings, hash_key, bytemuck::zeroed_box(), layouts, regions);
        cache.format(now_ms);
        Ok(cache)
    }

    fn on_heap(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        region: impl Fn(HeapMemory) -> R,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?;
        let made = layouts.iter().map(|layout| Ok(region(HeapMemory::new(layout.region_lines())?)));
        let regions = made.collect::<Result<_, Error>>()?;
        let cache = Self::assemble(settings, hash_key, bytemuck::zeroed_box(), layouts, regions);
        cache.format(now_ms);
        Ok(cache)
    }
}

impl<R: Region> Cache<R> {
    /// Makes a cache on regions and a ledger that the caller provides. They are as another cache
    /// with these settings and this key left them, or all zeros; a cache on zeros needs
    /// [`Self::format`] before any other call.
    ///
    /// # Errors
    /// Returns an error if no cache can have these settings.
    pub fn over(
        settings: &Settings,
        hash_key: [u8; 16],
        ledger: R::Ledger,
        region: impl FnMut(&Layout) -> R,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?;
        let regions = layouts.iter().map(region).collect();
        Ok(Self::assemble(settings, hash_key, ledger, layouts, regions))
    }

    fn assemble(
        settings: &Settings,
        hash_key: [u8; 16],
        ledger: R::Ledger,
        layouts: Vec<Layout>,
        regions: Vec<R>,
    ) -> Self {
        let sessions = layouts.iter().map(Layout::sessions).sum();
        let clients = layouts.iter().map(Layout::clients).sum();
        let clientele = Clientele::new(sessions, clients, Interval::from_ms(settings.prior_ms));
        let shards = layouts.into_iter().zip(regions);
        let shards = shards.map(|(layout, region)| Placed { layout, region }).collect();
        let common = Common { hash_key, ledger, clientele };
        Self { shards, common, policy: settings.policy, fairness: settings.fairness }
    }

    /// Turns regions and a ledger of zeros into an empty cache.
    pub fn format(&self, now_ms: u64) {
        for Placed { layout, region } in &self.shards {
            region.with(|lines, _| Shard::<R>::format(lines, layout, now_ms));
        }
        self.common.return_times().format();
    }

    /// Looks up the session that a client presents as `id` in `context`. Copies a session found to
    /// `value`, and predicts its client's next return from its history, until [`Self::hint`] says
    /// more.
    pub fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        self.with(id, |shard, key| shard.get(now_ms, key, context, value)).unwrap_or_default()
    }

    /// Copies a session to `value` again for the client that just presented it. Leaves no trace.
    pub fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        self.with(id, |shard, key| shard.peek(now_ms, key, context, value)).unwrap_or_default()
    }

    /// Copies a session as [`Self::peek`] does and returns what else is stored with it, for callers
    /// that carry sessions to other machines.
    pub fn look(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Option<Kept> {
        self.with(id, |shard, key| shard.look(now_ms, key, context, value))?
    }

    /// Looks up a session as [`Self::get`] does and removes it, so that nobody gets it twice. Nothing happens to a cache on
    /// the heap; whoever shares memory asks its store whether that is certain.
    pub fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        let arrival = self.with(id, |shard, key| shard.take(now_ms, key, context, value));
        let arrival = arrival.unwrap_or_default();
        Arrival { is_certain: arrival.found && R::PRIVATE, ..arrival }
    }

    /// Stores a session and evicts others as the policy allows. Replaces a session of the same id.
    ///
    /// # Errors
    /// Returns the reason if the session is not stored.
    pub fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        self.insert_if(now_ms, new, Admission::IfWorth)
    }

    /// Stores a session as [`Self::insert`] does, for a cache in front of a larger one, through which sessions come and go:
    /// no session is refused because every stored one returns sooner, unless it is a
    /// [sibling](NewSession::sibling). One goes then whose client was not seen for long.
    ///
    /// # Errors
    /// Those of [`Self::insert`].
    pub fn admit(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        self.insert_if(now_ms, new, Admission::Always)
    }

    fn insert_if(
        &self,
        now_ms: u64,
        new: &NewSession<'_>,
        admission: Admission,
    ) -> Result<Inserted, Refusal> {
        let inserted = self.with(&new.id, |shard, key| shard.insert(now_ms, key, new, admission));
        inserted.unwrap_or(Err(Refusal::Unavailable))
    }

    /// Records the application's hint that the client of this session returns in `interval_ms`.
    /// Returns true if the session is there.
    pub fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        self.with(id, |shard, key| shard.hint(now_ms, key, interval_ms)).unwrap_or_default()
    }

    /// Marks a session whose client holds a newer one: it stays only while there is room to spare, and is forgotten if it has
    /// no place. Under the policy `lru` it keeps its place.
    pub fn retire(&self, id: &SessionId) {
        self.with(id, |shard, key| shard.retire(key));
    }

    /// Removes a session and wipes it. Returns true if it was there.
    pub fn remove(&self, id: &SessionId) -> bool {
        self.with(id, |shard, key| shard.remove(key)).unwrap_or_default()
    }

    /// Returns the policy by which sessions are evicted.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the bound on what one source can take, if there is one.
    pub fn fairness(&self) -> Option<Fairness> {
        self.fairness
    }

    /// Returns the source of clients of which a server knows this: the bytes of a network, certificate or name, by which
    /// [`Fairness::by`] tells sources apart. Sources are those of one cache, and mean nothing in another.
    pub fn source(&self, known: &[u8]) -> Source {
        self.fairness.map_or(Source::UNKNOWN, |_| Source::of(known, &self.common.hash_key))
    }

    /// Returns the counts that belong to no single shard.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.common.ledger
    }

    /// Counts a forged id, which was refused before it reached the cache.
    pub fn record_forged(&self) {
        self.common.ledger.record_forged();
    }

    /// Counts a session that was found but that the TLS library then declined to resume, for
    /// instance because its cipher is no longer allowed.
    pub fn record_rejected(&self) {
        self.common.ledger.record_rejected();
    }

    /// Counts a handshake that a server with this cache has finished.
    pub fn record_handshake(&self, resumed: bool) {
        self.common.ledger.record_handshake(resumed);
    }

    /// Counts the early data of a client.
    pub fn record_early(&self, early: EarlyData) {
        self.common.ledger.record_early(early);
    }

    /// Returns the counts of early data.
    pub fn early_counters(&self) -> EarlyCounters {
        self.common.ledger.early()
    }

    /// Returns the counts of all shards. They are not of one instant: shards are read one after the
    /// other, and a shard that cannot be locked is left out.
    pub fn counters(&self) -> Counters {
        let counters = |shard| self.in_shard(shard, |shard| shard.counters());
        let of_shards = self.shards.iter().filter_map(counters);
        of_shards.fold(self.common.ledger.counters(), |sum, shard| sum.plus(&shard))
    }

    /// Counts the sessions by when their clients are expected back. It reads every session, so it
    /// takes longer the more there are, but it holds a shard's lock for a few thousand at a time
    /// only. Like [`Self::counters`], the result is not of one instant: a session that comes or goes
    /// meanwhile may be counted or not.
    pub fn occupancy(&self, now_ms: u64) -> Occupancy {
        const SLOTS_A_TURN: u32 = 4_096;
        let mut sum = Occupancy::default();
        for placed in &self.shards {
            for from in (0..placed.layout.slots).step_by(SLOTS_A_TURN as usize) {
                let part = |shard: &mut Shard<'_, R>| shard.occupancy(now_ms, from, SLOTS_A_TURN);
                match self.in_shard(placed, part).flatten() {
                    Some(part) => sum = sum.plus(&part),
                    None => break,
                }
            }
        }
        sum
    }

    /// Returns how often a shard was emptied because its contents could not be trusted: a process
    /// was interrupted in the middle of an operation, or another one wrote to the memory.
    pub fn emptied(&self) -> u64 {
        let emptied = |shard| self.in_shard(shard, |shard| shard.emptied());
        self.shards.iter().filter_map(emptied).fold(0, u64::saturating_add)
    }

    /// Removes and wipes every session. The counts and the learned return times stay.
    pub fn clear(&self) {
        for shard in &self.shards {
            self.in_shard(shard, |shard| shard.clear());
        }
    }

    /// Resets every count but the number of stored sessions.
    pub fn reset_counters(&self) {
        self.common.ledger.reset_counters();
        for shard in &self.shards {
            self.in_shard(shard, |shard| shard.reset_counters());
        }
    }

    /// Checks that every shard is consistent and returns the results in the order of the shards.
    /// Each shard stays locked while all its sessions are read. An inconsistent shard may be emptied
    /// for that, as by any other operation.
    pub fn check(&self) -> Vec<Result<Checked, Inconsistency>> {
        let check = |shard| self.in_shard(shard, |shard| shard.check());
        self.shards.iter().map(|shard| check(shard).unwrap_or(Err(Inconsistency::Locked))).collect()
    }

    /// Returns how many sessions of up to one block fit.
    pub fn capacity_sessions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.layout.sessions()).sum()
    }

    /// Returns the size of all regions in bytes, which bounds what the cache holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.layout.region_bytes() as u64).sum()
    }

    fn with<T>(
        &self,
        id: &SessionId,
        operation: impl FnOnce(&mut Shard<'_, R>, &Key<'_>) -> T,
    ) -> Option<T> {
        let hash = id.hash_with(&self.common.hash_key);
        let at = ((hash >> 48) * self.shards.len() as u64) >> 16;
        let shard = &self.shards[at as usize];
        let done = self.in_shard(shard, |shard| operation(shard, &Key { id, hash }));
        if self.common.ledger.waits.is_due() {
            self.common.return_times().learn();
        }
        done
    }

    /// Returns the shards, for [`Self::in_shard`].
    pub(crate) fn placed(&self) -> &[Placed<R>] {
        &self.shards
    }

    #[inline]
    pub(crate) fn in_shard<T>(
        &self,
        placed: &Placed<R>,
        operation: impl FnOnce(&mut Shard<'_, R>) -> T,
    ) -> Option<T> {
        let Placed { layout, region } = placed;
        let (done, is_emptied) = region.with(|lines, torn| {
            let astray = Cell::new(false);
            let mut shard = Shard::view(lines, layout, &self.common, &astray);
            if torn {
                shard.reborrow().start_over();
            }
            let done = operation(&mut shard);
            let is_astray = shard.is_astray();
            if is_astray {
                shard.reborrow().start_over();
            }
            (done, torn | is_astray)
        })?;
        if is_emptied {
            region.emptied();
        }
        Some(done)
    }
}

impl<R: Region> Drop for Cache<R> {
    fn drop(&mut self) {
        if !R::OUTLIVES_CACHE {
            for shard in &self.shards {
                self.in_shard(shard, |shard| shard.wipe());
            }
        }
    }
}

impl<R: Region> std::fmt::Debug for Cache<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.capacity_bytes();
        f.debug_struct("Cache").field("capacity_bytes", &bytes).finish_non_exhaustive()
    }
}
