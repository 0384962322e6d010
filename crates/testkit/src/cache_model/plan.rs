//! Random operations on one configuration, at one pace.

use std::sync::Mutex;

use rejoin_cache::{Cache, ContextTag, Layout, Memory, Region, Settings};

use super::operation::{New, Operation};
use super::twins::{Happened, Twins};
use crate::random::Random;

/// A second, a minute: sessions of the second are foreign to the first.
const CONTEXTS: [ContextTag; 2] = [ContextTag(0), ContextTag(0x0c0f_fee0)];
const DAY_MS: u64 = 86_400_000;

/// A run: its configuration, its seed and its pace.
#[derive(Debug, Clone)]
pub struct Plan {
    pub settings: Settings,
    pub seed: u64,
    pub operations: u64,
    pub clients: u16,
    /// Bits of the usual step of the clock, in milliseconds.
    pub pace_bits: u32,
    /// True if the clock may step back, and a session's client may have been heard of before.
    pub back: bool,
    /// Operations between two comparisons of the counters.
    pub counters_every: u64,
}

impl Plan {
    /// Operations between two checks that everything fits together.
    const PARTS_EVERY: u64 = 100;

    /// Runs it on memory made by `memory`. Returns the events.
    pub fn run<M: Memory>(&self, mut memory: impl FnMut(&Layout) -> M) -> Happened {
        self.run_on(|settings, hash_key, now_ms| {
            let region = |layout: &Layout| Mutex::new(memory(layout));
            Cache::on(settings, hash_key, now_ms, region).expect("settings make a cache")
        })
    }

    /// Runs it on a cache made by `cache` of settings, a hash key, and the time.
    pub fn run_on<R: Region>(
        &self,
        cache: impl FnOnce(&Settings, [u8; 16], u64) -> Cache<R>,
    ) -> Happened {
        let guard = Shown(self);
        let mut random = Random::new(self.seed);
        let mut now_ms = random.one_of(&[0, 5, 1_699_999_999_123]);
        let hash_key = bytemuck::cast([random.next(), random.next()]);
        let cache = cache(&self.settings, hash_key, now_ms);
        let mut twins = Twins::with(cache, &self.settings, hash_key, self.clients, now_ms);
        for step in 0..self.operations {
            now_ms = self.step_clock(now_ms, &mut random);
            let operation = self.operation(now_ms, &mut random);
            twins.apply(now_ms, operation);
            if step % self.counters_every == 0 {
                twins.compare_counters();
            }
            if step % Self::PARTS_EVERY == 0 {
                twins.compare_parts();
                twins.compare_occupancy(now_ms);
            }
        }
        twins.compare_all(now_ms, &CONTEXTS);
        std::mem::forget(guard);
        twins.happened()
    }

    fn step_clock(&self, now_ms: u64, random: &mut Random) -> u64 {
        let step = |random: &mut Random, more_bits: u32| {
            random.below(1_u64 << (self.pace_bits + more_bits))
        };
        if self.back && random.once_in(40) {
            let back_ms = match random.below(1_000) {
                0 => random.below(200 * DAY_MS),
                _ => step(random, 2),
            };
            return now_ms.saturating_sub(back_ms);
        }
        let forward_ms = match random.below(10_000) {
            0 => random.below(3 * DAY_MS),
            1 => random.of_any_size(5) * 49 * DAY_MS,
            2..4_000 => 0,
            4_000..8_000 => step(random, 0),
            8_000..9_700 => step(random, 4),
            9_700..9_990 => step(random, 8),
            _ => step(random, 11),
        };
        now_ms + forward_ms
    }

    fn operation(&self, now_ms: u64, random: &mut Random) -> Operation {
        let client = self.client(random);
        let context = CONTEXTS[usize::from(random.once_in(16))];
        match random.below(1_000) {
            0..360 => Operation::Get { client, context },
            360..760 => Operation::Insert { client, new: self.new_session(now_ms, random) },
            760..860 => Operation::Hint { client, interval_ms: self.interval_ms(random) },
            860..910 => Operation::Peek { client, context },
            910..940 => Operation::Take { client, context },
            940..960 => Operation::Remove { client },
            960..991 => Operation::Retire { client },
            991..995 => Operation::Handshake { resumed: random.once_in(2) },
            995..998 => Operation::Forged,
            _ => Operation::Rejected,
        }
    }

    /// One client in four comes as often as all the others.
    fn client(&self, random: &mut Random) -> u16 {
        let some = if random.once_in(2) { self.clients.div_ceil(4) } else { self.clients };
        random.below(u64::from(some)) as u16
    }

    fn new_session(&self, now_ms: u64, random: &mut Random) -> New {
        New {
            value_bytes: self.value_bytes(random),
            expires_ms: self.expires_ms(now_ms, random),
            context: CONTEXTS[usize::from(random.once_in(8))],
            hint_ms: (!random.once_in(3)).then(|| self.interval_ms(random)),
            sibling: random.once_in(8),
            seen_ms: (self.back && random.once_in(8)).then(|| self.seen_ms(now_ms, random)),
            with_history: !random.once_in(3),
            source: random.one_of(&[0, 0, 1, 1, 1, 2, 3]),
        }
    }

    /// From now to before the cache was made.
    fn seen_ms(&self, now_ms: u64, random: &mut Random) -> u64 {
        match random.below(50) {
            0 => now_ms.saturating_sub(random.below(200 * DAY_MS)),
            1 => now_ms + random.below(1_500),
            _ => now_ms.saturating_sub(random.of_any_size(self.pace_bits + 15)),
        }
    }

    /// Mostly within one block.
    fn value_bytes(&self, random: &mut Random) -> u16 {
        let block = u64::from(self.settings.block_bytes);
        let most = match random.below(100) {
            0 => u64::from(self.settings.longest_value_bytes) + 2,
            1..12 => 4 * block + 1,
            _ => block,
        };
        random.below(most.min(u64::from(u16::MAX)) + 1) as u16
    }

    fn expires_ms(&self, now_ms: u64, random: &mut Random) -> u64 {
        match random.below(20) {
            0 => now_ms.saturating_sub(random.of_any_size(20)),
            1 => now_ms + random.below(1_500),
            2..5 => now_ms + random.below(1 << (self.pace_bits + 14)),
            8 => u64::MAX,
            _ => now_ms + random.below(400 * DAY_MS),
        }
    }

    /// From nothing to beyond the longest there is, mostly around what the clients do.
    fn interval_ms(&self, random: &mut Random) -> u64 {
        match random.below(50) {
            0 => random.of_any_size(60),
            _ => random.of_any_size(self.pace_bits + 15),
        }
    }
}

/// Prints the plan when a run ends, for the output of one that failed.
struct Shown<'a>(&'a Plan);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        eprintln!("{:?}", self.0);
    }
}
