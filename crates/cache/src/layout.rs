//! The division of a shard's memory.
//!
//! A region is an array of cache lines, cut into seven parts in this order:
//!
//! | part | one per | bytes |
//! |---|---|---|
//! | header, counters, candidates | shard | 512 |
//! | lists | expectation | 16 |
//! | index | group of 5.8 sessions | 32 |
//! | slots | session | 64, of which 32 are the id |
//! | blocks | session | [`Settings::block_bytes`] |
//! | ghosts | history of an evicted client | 8 |
//! | sources, where they have shares | source | 4 |
//!
//! The division is computed from the settings, never read from the region: a region that another
//! process wrote to can confuse the engine but not lead it outside the memory. A shard that notices
//! is emptied.

use crate::candidates::{Candidates, LOOKS};
use crate::counters::Counters;
use crate::error::Error;
use crate::expectation::Expectation;
use crate::ghosts::GhostSet;
use crate::index::Group;
use crate::interval::{Interval, IntervalClass};
use crate::order::List;
use crate::region::Line;
use crate::settings::{Capacity, Policy, Prediction, Settings};
use crate::slots::{NONE, Slot};
use crate::source::Source;

/// A shard's own figures, at the start of its region.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    /// The time of tick zero, on the callers' clock.
    pub(crate) epoch_ms: u64,
    /// The time of expiry second zero. Unlike the epoch it never moves.
    pub(crate) born_ms: u64,
    /// The lists that are not empty, a bit each.
    pub(crate) occupied: [u64; Expectation::COUNT / 64],
    pub(crate) counters: Counters,
    pub(crate) candidates: Candidates,
    /// The list from which the next search looks at ends.
    pub(crate) turn: u32,
    /// The place at which the last look at slots began, in 2⁻³² of those that have been used.
    pub(crate) hand: u32,
    /// The number of slots in use, for a session or the rest of one.
    pub(crate) used: u32,
    /// The head of the list of freed slots.
    pub(crate) free: u32,
    /// The first of the slots that were never used.
    pub(crate) fresh: u32,
    pub(crate) unused: u32,
    /// How often the shard was emptied because its contents could not be trusted.
    pub(crate) emptied: u64,
}

impl Header {
    /// Makes the header of an empty shard.
    pub(crate) fn new(epoch_ms: u64, born_ms: u64) -> Self {
        let candidates = Candidates::NONE;
        Self { epoch_ms, born_ms, candidates, free: NONE, ..bytemuck::Zeroable::zeroed() }
    }
}

/// The division of one shard's region, and the shard's settings.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Sessions of up to one block.
    pub(crate) slots: u32,
    /// The number of lines in each part, in order.
    pub(crate) parts: [usize; 7],
    pub(crate) block_bytes: u32,
    pub(crate) longest_value_bytes: u32,
    pub(crate) policy: Policy,
    pub(crate) prediction: Prediction,
    pub(crate) grace_ticks: u32,
    pub(crate) prior: IntervalClass,
    /// The number of clients as which a ghost counts that an eviction looks at: it looks at one, and at [`LOOKS`] slots.
    pub(crate) ghosts_a_look: u32,
    /// The most slots of one source; `None` if there is no bound.
    pub(crate) most_of_source: Option<u32>,
}

/// The ghosts that count as one client who is waited for: what looks at sessions and ghosts find is scaled so that `S` sessions and `G`
/// ghosts count as `S + G / 4` clients. That was found by trial. If all ghosts counted fully, a flood that claims the interval of honest
/// clients would take a point more of their places; if none, clients that come seldom would lose as much.
const GHOSTS_A_CLIENT: u64 = 4;

impl Layout {
    /// The most slots of a shard: twenty-four bits of an index entry name the slot.
    const MOST_SLOTS: u64 = (1 << 24) - 2;
    pub(crate) const HEADER_LINES: usize = size_of::<Header>().div_ceil(Line::BYTES);
    /// The most shards of a cache.
    const MOST_SHARDS: u64 = 4_096;
    /// The fewest ghosts of a cache that learns, unless [`Self::LEAST_GHOSTS_A_SESSION`] for each session are fewer. In a small cache ghosts
    /// for as many clients as it has sessions would be gone before these come back.
    const LEAST_GHOSTS: u64 = 1_536;
    /// If there were more, a very small cache would learn late that clients do not come back.
    const LEAST_GHOSTS_A_SESSION: u64 = 12;
    /// The sessions below which a second shard would cost more in evenness than it brings.
    const SESSIONS_PER_SHARD: u64 = 8_192;

    /// Returns one layout per shard. Together they take exactly the capacity's sessions, or at most
    /// its bytes.
    ///
    /// # Errors
    /// Returns an error for a capacity below one session, or a setting out of range.
    pub fn for_cache(settings: &Settings) -> Result<Vec<Self>, Error> {
        check(settings)?;
        let one = Self::with_slots(settings, 1, 1);
        let sessions = match settings.capacity {
            Capacity::Sessions(0) => return Err(Error::NoSessions),
            Capacity::Sessions(sessions) => sessions,
            Capacity::Bytes(bytes) => {
                let needed_bytes = one.region_bytes() as u64;
                if bytes < needed_bytes {
                    return Err(Error::CapacityTooSmall { capacity_bytes: bytes, needed_bytes });
                }
                bytes / Self::bytes_per_slot(settings)
            }
        };
        let fitting = (sessions / Self::SESSIONS_PER_SHARD).clamp(1, 64);
        let fitting = (1 << fitting.ilog2()).max(sessions.div_ceil(Self::MOST_SLOTS));
        let shards = settings.shards.map_or(fitting, u64::from).min(sessions);
        if shards > Self::MOST_SHARDS {
            let most = Self::MOST_SHARDS * Self::MOST_SLOTS;
            return Err(Error::OutOfRange { name: "capacity", value: sessions, least: 1, most });
        }
        if let Capacity::Bytes(capacity_bytes) = settings.capacity {
            let needed_bytes = shards * one.region_bytes() as u64;
            if capacity_bytes < needed_bytes {
                return Err(Error::CapacityTooSmall { capacity_bytes, needed_bytes });
            }
        }
        (0..shards).map(|shard| Self::for_shard(settings, shard, shards)).collect()
    }

    fn for_shard(settings: &Settings, shard: u64, shards: u64) -> Result<Self, Error> {
        let share = |whole: u64| whole / shards + u64::from(shard < whole % shards);
        let sessions = match settings.capacity {
            Capacity::Sessions(sessions) => share(sessions),
            Capacity::Bytes(bytes) => Self::slots_within(settings, share(bytes), shards),
        };
        if sessions > Self::MOST_SLOTS {
            return Err(Error::ShardTooLarge { sessions, limit: Self::MOST_SLOTS });
        }
        Ok(Self::with_slots(settings, sessions as u32, shards))
    }

    /// Returns the layout of one shard of so many.
    fn with_slots(settings: &Settings, slots: u32, shards: u64) -> Self {
        let least =
            match settings.ghosts_percent > 0 && learns(settings.policy, settings.prediction) {
                true => Self::LEAST_GHOSTS
                    .div_ceil(shards)
                    .min(Self::LEAST_GHOSTS_A_SESSION * u64::from(slots)),
                false => 0,
            };
        let ghosts = u64::from(slots) * u64::from(settings.ghosts_percent) / 100;
        let ghosts = ghosts.max(least).next_multiple_of(GhostSet::GHOSTS as u64);
        let block_bytes = settings.block_bytes.next_multiple_of(8);
        Self {
            slots,
            parts: Self::divide(
                [lists(settings), sources(settings)],
                slots as usize,
                ghosts as usize,
                block_bytes as usize,
            ),
            block_bytes,
            longest_value_bytes: settings.longest_value_bytes,
            policy: settings.policy,
            prediction: settings.prediction,
            grace_ticks: Interval::from_ms(settings.grace_ms).ticks(),
            prior: IntervalClass::holding(Interval::from_ms(settings.prior_ms)),
            ghosts_a_look: ((u64::from(LOOKS) * ghosts / u64::from(slots.max(1))) as u32).max(1),
            most_of_source: settings.fairness.map(|fair| share(slots, fair.percent)),
        }
    }

    /// Returns the most slots whose region fits in `bytes`. One slot must fit.
    fn slots_within(settings: &Settings, bytes: u64, shards: u64) -> u64 {
        let layout = |slots: u64| Self::with_slots(settings, slots as u32, shards);
        let fits = |slots| layout(slots).region_bytes() as u64 <= bytes;
        let (mut fit, mut too_many) = (1, (bytes / 64 + 2).min(Self::MOST_SLOTS + 2));
        while fit + 1 < too_many {
            let middle = fit.midpoint(too_many);
            if fits(middle) { fit = middle } else { too_many = middle }
        }
        fit
    }

    /// Returns the bytes that one more session takes in a cache of many, everything included.
    fn bytes_per_slot(settings: &Settings) -> u64 {
        let many = Self::LEAST_GHOSTS as u32 * 100;
        let bytes = |slots| Self::with_slots(settings, slots, 1).region_bytes() as u64;
        (bytes(many + 1_000) - bytes(many)).div_ceil(1_000)
    }

    /// Returns the number of slots that a value of so many bytes takes.
    #[inline]
    pub(crate) fn slots_for(&self, value_bytes: usize) -> u32 {
        let block_bytes = self.block_bytes as usize;
        if value_bytes <= block_bytes { 1 } else { value_bytes.div_ceil(block_bytes) as u32 }
    }

    /// Returns true if the engine learns by itself when clients return.
    pub(crate) fn learns(&self) -> bool {
        learns(self.policy, self.prediction)
    }

    /// Returns the number of lines that a shard needs.
    pub fn region_lines(&self) -> usize {
        self.parts.iter().sum()
    }

    /// Returns the number of bytes that a shard needs.
    pub fn region_bytes(&self) -> usize {
        self.region_lines() * Line::BYTES
    }

    /// Returns how many sessions of up to one block fit.
    pub fn sessions(&self) -> u64 {
        u64::from(self.slots)
    }

    /// Returns how many clients a full shard waits for: those of its sessions, and its ghosts, as far as they count.
    pub(crate) fn clients(&self) -> u64 {
        self.sessions() + (self.ghost_sets() * GhostSet::GHOSTS) as u64 / GHOSTS_A_CLIENT
    }

    /// Returns the number of sets of ghosts, of which each takes a line.
    #[inline]
    pub(crate) fn ghost_sets(&self) -> usize {
        let [.., ghosts, _] = self.parts;
        ghosts
    }

    fn divide(
        [lists, sources]: [usize; 2],
        slots: usize,
        ghosts: usize,
        block_bytes: usize,
    ) -> [usize; 7] {
        [
            Self::HEADER_LINES,
            lines::<List>(lists),
            lines::<Group>(Group::count(slots)),
            lines::<Slot>(slots),
            (slots * block_bytes).div_ceil(Line::BYTES),
            ghosts.div_ceil(GhostSet::GHOSTS),
            lines::<u32>(sources),
        ]
    }
}

/// Returns the number of lists. Trust matters only where return times are learned.
fn lists(settings: &Settings) -> usize {
    match learns(settings.policy, settings.prediction) {
        true => Expectation::COUNT,
        false => IntervalClass::COUNT,
    }
}

/// Returns true if return times are learned.
fn learns(policy: Policy, prediction: Prediction) -> bool {
    policy == Policy::Predictive && prediction != Prediction::Hint
}

/// Returns the number of sources that are counted.
fn sources(settings: &Settings) -> usize {
    if settings.fairness.is_some() { Source::COUNT } else { 0 }
}

/// Returns so many percent of the slots, at least one.
fn share(slots: u32, percent: u32) -> u32 {
    (u64::from(slots) * u64::from(percent) / 100).max(1) as u32
}

const fn lines<T>(count: usize) -> usize {
    (count * size_of::<T>()).div_ceil(Line::BYTES)
}

fn check(settings: &Settings) -> Result<(), Error> {
    let range = |name, value: u32, least: u64, most: u64| {
        let value = u64::from(value);
        let inside = (least..=most).contains(&value);
        inside.then_some(()).ok_or(Error::OutOfRange { name, value, least, most })
    };
    range("block_bytes", settings.block_bytes, 8, 65_528)?;
    range("longest_value_bytes", settings.longest_value_bytes, 1, 65_535)?;
    range("ghosts_percent", settings.ghosts_percent, 0, 1_000)?;
    range("fairness", settings.fairness.map_or(1, |fair| fair.percent), 1, 100)?;
    range("shards", settings.shards.unwrap_or(1), 1, Layout::MOST_SHARDS)
}

const _: () = {
    assert!(size_of::<GhostSet>() == 64);
    assert!(size_of::<List>() == 16);
    assert!(Layout::HEADER_LINES * Line::BYTES == 512);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_exact_and_used() {
        for bytes in [20_000, 24_000, 1 << 20, (1 << 20) + 1, 64 << 20] {
            let layouts = Layout::for_cache(&Settings::new(Capacity::Bytes(bytes))).expect("fits");
            let taken: u64 = layouts.iter().map(|l| l.region_bytes() as u64).sum();
            let spare = bytes - taken;
            let slack = layouts.len() as u64
                * (Layout::bytes_per_slot(&Settings::new(Capacity::Bytes(0))) + 4 * 64);
            assert!(taken <= bytes && spare <= slack, "{bytes}: {spare} of {slack} unused");
        }
    }

    #[test]
    fn sessions_are_exact() {
        for sessions in [1, 2, 5_000, 204_800, 2_000_003] {
            let layouts =
                Layout::for_cache(&Settings::new(Capacity::Sessions(sessions))).expect("fits");
            assert_eq!(layouts.iter().map(Layout::sessions).sum::<u64>(), sessions);
        }
    }

    #[test]
    fn a_ghost_that_is_looked_at_stands_for_as_many_as_a_session() {
        for (percent, clients, ghosts_a_look) in
            [(0, 16_000, 1), (10, 16_400, 1), (50, 18_000, 8), (100, 20_000, 16), (200, 24_000, 32)]
        {
            let settings =
                Settings { ghosts_percent: percent, ..Settings::new(Capacity::Sessions(0)) };
            let layout = Layout::with_slots(&settings, 16_000, 1);
            assert_eq!((layout.clients(), layout.ghosts_a_look), (clients, ghosts_a_look));
        }
        let few = Layout::with_slots(&Settings::new(Capacity::Sessions(0)), 10, 1);
        assert_eq!((few.clients(), few.ghosts_a_look), (40, 192), "120 ghosts");
    }

    #[test]
    fn a_small_cache_has_more_ghosts_than_sessions() {
        for (sessions, percent, shards, ghosts) in [
            (10, 100, None, 120),
            (200, 100, None, 1_536),
            (1_536, 100, None, 1_536),
            (1_544, 100, None, 1_544),
            (200, 0, None, 0),
            (200, 100, Some(2), 1_536),
            (2_000, 100, Some(2), 2_000),
            (8_000, 50, Some(4_096), 8 * 4_096),
        ] {
            let settings = Settings {
                ghosts_percent: percent,
                shards,
                ..Settings::new(Capacity::Sessions(sessions))
            };
            let layouts = Layout::for_cache(&settings).expect("settings make a cache");
            let sets = layouts.iter().map(Layout::ghost_sets).sum::<usize>();
            assert_eq!(sets * GhostSet::GHOSTS, ghosts, "{sessions}, {percent} %, {shards:?}");
        }
        let lru = Settings { policy: Policy::Lru, ..Settings::new(Capacity::Sessions(200)) };
        assert_eq!(
            Layout::for_cache(&lru).expect("a cache")[0].ghost_sets(),
            200 / GhostSet::GHOSTS
        );
    }

    #[test]
    fn too_little_is_said() {
        let refused = |capacity| Layout::for_cache(&Settings::new(capacity)).unwrap_err();
        assert_eq!(refused(Capacity::Sessions(0)), Error::NoSessions);
        let Error::CapacityTooSmall { needed_bytes, .. } = refused(Capacity::Bytes(100)) else {
            panic!("a hundred bytes were enough");
        };
        assert!(Layout::for_cache(&Settings::new(Capacity::Bytes(needed_bytes))).is_ok());
        assert!(Layout::for_cache(&Settings::new(Capacity::Bytes(needed_bytes - 1))).is_err());
        let (capacity_bytes, shards) = (100_000, Some(64));
        let many = Settings { shards, ..Settings::new(Capacity::Bytes(capacity_bytes)) };
        let needed_bytes = 64 * needed_bytes;
        let too_small = Error::CapacityTooSmall { capacity_bytes, needed_bytes };
        assert_eq!(Layout::for_cache(&many).unwrap_err(), too_small);
        let enough = Settings { capacity: Capacity::Bytes(needed_bytes), ..many };
        assert_eq!(Layout::for_cache(&enough).map(|shards| shards.len()).ok(), Some(64));
        let mut huge = Settings::new(Capacity::Sessions(1 << 25));
        huge.shards = Some(1);
        assert!(matches!(Layout::for_cache(&huge), Err(Error::ShardTooLarge { .. })));
    }
}
