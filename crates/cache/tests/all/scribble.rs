//! A cache whose memory is overwritten. Whatever is written, no operation panics or runs for ever,
//! no session is found under another id or in another context, and the cache works again at once.
//!
//! A session's own bytes need not be as they were stored: the cache cannot tell.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rejoin_cache::{Cache, Capacity, ContextTag, Layout, Line, Memory, NewSession, Policy};
use rejoin_cache::{Prediction, SecretBytes, SessionId, Settings};

use rejoin_testkit::random::Random;

const ROUNDS: u64 = 20_000;
const CLIENTS: u64 = 60;
/// As in the table of [`Layout`]'s module.
const HEADER_LINES: u64 = 512 / 64;
const CONTEXTS: [ContextTag; 2] = [ContextTag(0x1234_5678), ContextTag(0x9abc_def0)];

/// Memory that is overwritten before it is used.
struct Scribbled {
    lines: Vec<Line>,
    random: Random,
    /// The number of writes before the next use.
    writes: Arc<AtomicU32>,
}

impl Memory for Scribbled {
    fn lines(&mut self) -> &mut [Line] {
        for _ in 0..self.writes.swap(0, Ordering::Relaxed) {
            self.scribble();
        }
        &mut self.lines
    }
}

impl Scribbled {
    /// Overwrites a byte, a word of four, or a whole line. Small numbers, which pass for links, are
    /// more frequent, and the first lines, which are the header, as frequent as all the rest.
    fn scribble(&mut self) {
        let random = &mut self.random;
        let all = self.lines.len() as u64;
        let lines = random.one_of(&[HEADER_LINES, all]);
        let line = random.below(lines) as usize;
        let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.lines[line..=line]);
        let word = &mut words[random.below(16) as usize];
        match random.below(8) {
            0 => words.fill_with(|| random.next() as u32),
            1 => *word = u32::MAX - random.below(2) as u32,
            2 => *word ^= 1 << random.below(32),
            3 => *word ^= (random.next() as u32 & 0xff) << (8 * random.below(4)),
            4 => *word = random.next() as u32,
            _ => *word = random.below(80) as u32,
        }
    }
}

fn id(client: u64) -> SessionId {
    let mut random = Random::new(client);
    let bytes: [u64; 4] = std::array::from_fn(|_| random.next());
    SessionId::new(bytemuck::bytes_of(&bytes)).expect("32 bytes")
}

/// Makes a word that names its session, and that no overwriting makes of another's word.
fn word(client: u64, context: ContextTag) -> u64 {
    Random::new(client << 32 | u64::from(context.0)).next()
}

/// Checks that no word in a value is another session's.
fn check_value(value: &[u8], client: u64, context: ContextTag) {
    for found in value.chunks_exact(8) {
        let found = u64::from_ne_bytes(found.try_into().expect("eight bytes"));
        let mut all = (0..CLIENTS).flat_map(|client| CONTEXTS.map(|context| (client, context)));
        let owner = all.find(|(client, context)| word(*client, *context) == found);
        assert!(owner.is_none_or(|owner| owner == (client, context)), "{owner:?} for {client}");
    }
}

struct Cached {
    cache: Cache<Mutex<Scribbled>>,
    writes: Arc<AtomicU32>,
    now_ms: u64,
    value: SecretBytes,
}

impl Cached {
    fn new(settings: &Settings, random: &mut Random) -> Self {
        let writes = Arc::new(AtomicU32::new(0));
        let region = |layout: &Layout| {
            Mutex::new(Scribbled {
                lines: vec![Line::ZERO; layout.region_lines()],
                random: Random::new(random.next()),
                writes: Arc::clone(&writes),
            })
        };
        let cache = Cache::on(settings, [7; 16], 0, region).expect("settings make a cache");
        Self { cache, writes, now_ms: 0, value: SecretBytes::default() }
    }

    fn operate(&mut self, random: &mut Random) {
        let Self { cache, now_ms, value, .. } = self;
        let (client, context) = (random.below(CLIENTS), random.one_of(&CONTEXTS));
        *now_ms += random.of_any_size(12);
        let found = match random.below(10) {
            0..3 => cache.get(*now_ms, &id(client), context, value).found,
            3 => cache.take(*now_ms, &id(client), context, value).found,
            4 => cache.peek(*now_ms, &id(client), context, value),
            5 => {
                cache.hint(*now_ms, &id(client), random.of_any_size(30));
                false
            }
            6 => {
                cache.remove(&id(client));
                cache.occupancy(*now_ms);
                false
            }
            _ => {
                let words = random.below(40) as usize;
                let bytes = word(client, context).to_ne_bytes().repeat(words);
                let new = NewSession {
                    hint_ms: Some(random.of_any_size(20)),
                    sibling: random.once_in(8),
                    ..NewSession::new(id(client), &bytes, *now_ms + 1_000_000, context)
                };
                let _ = cache.insert(*now_ms, &new);
                if random.once_in(4) {
                    cache.retire(&id(client));
                }
                false
            }
        };
        if found {
            check_value(value, client, context);
        }
    }

    fn is_of_use(&mut self) {
        let Self { cache, now_ms, value, .. } = self;
        cache.clear();
        assert!(cache.check().iter().all(Result::is_ok));
        *now_ms += 1;
        let new = NewSession::new(id(1), b"whole", *now_ms + 1_000_000, CONTEXTS[0]);
        assert!(cache.insert(*now_ms, &new).is_ok());
        assert!(cache.get(*now_ms, &id(1), CONTEXTS[0], value).found);
        assert_eq!(&**value, b"whole");
    }
}

fn scribble(policy: Policy, prediction: Prediction) {
    let capacity = Capacity::Sessions(40);
    let settings = Settings {
        policy,
        prediction,
        block_bytes: 64,
        shards: Some(1),
        ..Settings::new(capacity)
    };
    let mut random = Random::new(1);
    let mut cached = Cached::new(&settings, &mut random);
    for round in 0..ROUNDS {
        (0..60).for_each(|_| cached.operate(&mut random));
        cached.writes.store(1 + random.below(3) as u32, Ordering::Relaxed);
        (0..60).for_each(|_| cached.operate(&mut random));
        let _ = cached.cache.check();
        let _ = cached.cache.counters();
        if round % 8 == 0 {
            cached.is_of_use();
        }
    }
    assert!(cached.cache.emptied() > ROUNDS / 20, "{} times only", cached.cache.emptied());
}

#[test]
fn nothing_comes_of_it_where_hints_count() {
    scribble(Policy::Predictive, Prediction::Hint);
}

#[test]
fn nothing_comes_of_it_where_is_learned() {
    scribble(Policy::Predictive, Prediction::Both);
}

#[test]
fn nothing_comes_of_it_under_lru() {
    scribble(Policy::Lru, Prediction::Both);
}

/// Memory in which lists are marked as not empty that are.
struct Marked {
    lines: Vec<Line>,
    /// Set if they are to be marked before the next use.
    mark: Arc<AtomicBool>,
}

impl Memory for Marked {
    fn lines(&mut self) -> &mut [Line] {
        if self.mark.swap(false, Ordering::Relaxed) {
            // The marks begin behind two words.
            let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.lines[..2]);
            words[3..5].fill(u64::MAX);
        }
        &mut self.lines
    }
}

#[test]
fn marks_of_empty_lists_keep_nobody_out() {
    let settings = Settings { block_bytes: 64, ..Settings::new(Capacity::Sessions(200)) };
    let mark = Arc::new(AtomicBool::new(false));
    let region = |layout: &Layout| {
        let lines = vec![Line::ZERO; layout.region_lines()];
        Mutex::new(Marked { lines, mark: Arc::clone(&mark) })
    };
    let cache = Cache::on(&settings, [7; 16], 0, region).expect("settings make a cache");
    let stored = |clients: std::ops::Range<u64>| {
        let store = |client: &u64| {
            let (now_ms, expires_ms) = (client * 1_000, 9_000_000);
            let new = NewSession::new(id(*client), b"value", expires_ms, CONTEXTS[0]);
            cache.insert(now_ms, &new).is_ok()
        };
        clients.filter(store).count()
    };
    assert_eq!(stored(0..200), 200);
    mark.store(true, Ordering::Relaxed);
    let after = stored(200..1_000);
    assert_eq!(cache.emptied(), 1);
    assert!(after > 600, "{after}");
}
