//! The secrets of sessions: they are in the cache's memory only while the session is stored, and
//! never in `Debug` output.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rejoin_cache::{Cache, Capacity, ContextTag, Error, Issued, Layout, Line, Memory};
use rejoin_cache::{
    NewSession, Policy, Prediction, Refusal, SecretBytes, SessionId, Settings, Visit,
};

use rejoin_testkit::random::Random;

const CONTEXT: ContextTag = ContextTag(1);

/// Memory that shows its contents at the last use, or when it was dropped.
struct Watched {
    lines: Vec<Line>,
    window: Arc<Window>,
}

#[derive(Default)]
struct Window {
    seen: Mutex<Vec<u8>>,
    /// Makes the next use panic, under the shard's lock.
    trap: AtomicBool,
}

impl Watched {
    fn show(&self) {
        *self.window.seen.lock().expect("window") = bytemuck::cast_slice(&self.lines).to_vec();
    }
}

impl Memory for Watched {
    fn lines(&mut self) -> &mut [Line] {
        self.show();
        assert!(!self.window.trap.swap(false, Ordering::Relaxed), "trap");
        &mut self.lines
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.show();
    }
}

/// Makes a cache of one shard, and the window on its memory.
struct Glass {
    cache: Option<Cache<Mutex<Watched>>>,
    window: Arc<Window>,
}

impl Glass {
    fn new(settings: Settings) -> Result<Self, Error> {
        let settings = Settings { shards: Some(1), block_bytes: 64, ..settings };
        let window = Arc::new(Window::default());
        let memory = |layout: &Layout| Watched {
            lines: vec![Line::ZERO; layout.region_lines()],
            window: Arc::clone(&window),
        };
        let cache = Some(Cache::on(&settings, [3; 16], 0, |layout| Mutex::new(memory(layout)))?);
        Ok(Self { cache, window })
    }

    fn cache(&self) -> &Cache<Mutex<Watched>> {
        self.cache.as_ref().expect("not dropped")
    }

    /// Returns the serial numbers of all secrets of which a whole word is left in the memory.
    fn secrets(&self) -> BTreeSet<u32> {
        // The window shows the contents at the beginning of a use, so this use shows the last one's.
        let _ = self.cache.as_ref().map(Cache::counters);
        let seen = self.window.seen.lock().expect("window");
        let marked = seen.windows(8).filter(|bytes| bytes.ends_with(&MARK));
        marked.map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
    }

    fn insert(&self, now_ms: u64, serial: u32, bytes: usize) -> Result<u32, Refusal> {
        let secret = secret(serial, bytes);
        let new = NewSession { value: &secret, ..session(serial) };
        self.cache().insert(now_ms, &new).map(|inserted| inserted.evicted)
    }
}

const MARK: [u8; 4] = [0x5e, 0xc7, 0xe7, 0xa7];

/// Makes a secret that repeats the serial number and the mark.
fn secret(serial: u32, bytes: usize) -> Vec<u8> {
    let word = [serial.to_le_bytes(), MARK].concat();
    word.into_iter().cycle().take(bytes).collect()
}

fn id(client: u32) -> SessionId {
    SessionId::new(&client.to_be_bytes()).expect("four bytes")
}

fn session(client: u32) -> NewSession<'static> {
    NewSession { hint_ms: Some(10_000), ..NewSession::new(id(client), &[], 1_000_000, CONTEXT) }
}

fn glass(sessions: u64) -> Glass {
    let settings =
        Settings { prediction: Prediction::Hint, ..Settings::new(Capacity::Sessions(sessions)) };
    Glass::new(settings).expect("settings make a cache")
}

#[test]
fn the_window_shows_what_is_stored() {
    let glass = glass(16);
    assert_eq!(glass.insert(0, 1, 500), Ok(0));
    assert_eq!(glass.insert(0, 2, 8), Ok(0));
    assert_eq!(glass.secrets(), BTreeSet::from([1, 2]));
}

#[test]
fn what_is_removed_or_taken_is_wiped() {
    let glass = glass(16);
    (1..=3).for_each(|serial| assert_eq!(glass.insert(0, serial, 300), Ok(0)));
    assert!(glass.cache().remove(&id(1)));
    assert_eq!(glass.secrets(), BTreeSet::from([2, 3]));
    assert!(glass.cache().take(0, &id(2), CONTEXT, &mut SecretBytes::default()).found);
    assert_eq!(glass.secrets(), BTreeSet::from([3]));
}

#[test]
fn values_of_every_length_are_wiped_to_the_last_byte() {
    const BYTE: u8 = 0xa7;
    /// One set.
    const GHOSTS: usize = 2 * 4;
    let glass = glass(4);
    let left = || {
        let _ = glass.cache().counters();
        let seen = glass.window.seen.lock().expect("window");
        // Behind the blocks are the ghosts, eight bytes each.
        let blocks = seen.len() - 4 * 64 - GHOSTS * 8..seen.len() - GHOSTS * 8;
        seen[blocks].iter().filter(|byte| **byte == BYTE).count()
    };
    for bytes in 1..=4 * 64 {
        let new = NewSession { value: &vec![BYTE; bytes], ..session(1) };
        assert!(glass.cache().insert(0, &new).is_ok());
        assert_eq!(left(), bytes);
        assert!(glass.cache().remove(&id(1)));
        assert_eq!(left(), 0, "of {bytes}");
    }
}

#[test]
fn what_is_replaced_is_wiped_even_if_the_new_one_is_refused() {
    let glass = glass(16);
    assert_eq!(glass.insert(0, 1, 300), Ok(0));
    let new = NewSession { value: &secret(2, 8), ..session(1) };
    assert!(glass.cache().insert(0, &new).is_ok());
    assert_eq!(glass.secrets(), BTreeSet::from([2]));
    let over = NewSession { value: &secret(3, 8), expires_ms: 0, ..session(1) };
    assert_eq!(glass.cache().insert(0, &over), Err(Refusal::Expired));
    assert_eq!(glass.secrets(), BTreeSet::new());
}

#[test]
fn what_is_evicted_is_wiped() {
    let glass = glass(2);
    assert_eq!(glass.insert(0, 1, 128), Ok(0));
    assert_eq!(glass.insert(60_000, 2, 64), Ok(1), "overdue");
    assert_eq!(glass.insert(60_000, 3, 64), Ok(0));
    let sooner = NewSession { value: &secret(4, 100), hint_ms: Some(1_000), ..session(4) };
    assert_eq!(glass.cache().insert(60_000, &sooner).map(|inserted| inserted.evicted), Ok(2));
    assert_eq!(glass.secrets(), BTreeSet::from([4]));

    let lru = Settings { policy: Policy::Lru, ..Settings::new(Capacity::Sessions(1)) };
    let glass = Glass::new(lru).expect("settings make a cache");
    assert_eq!(glass.insert(0, 1, 64), Ok(0));
    assert_eq!(glass.insert(0, 2, 8), Ok(1));
    assert_eq!(glass.secrets(), BTreeSet::from([2]));
}

#[test]
fn what_is_found_expired_is_wiped() {
    let glass = glass(4);
    assert_eq!(glass.insert(0, 1, 200), Ok(0));
    assert!(!glass.cache().get(1_000_000, &id(1), CONTEXT, &mut SecretBytes::default()).found);
    assert_eq!(glass.secrets(), BTreeSet::new());
}

#[test]
fn a_dropped_cache_is_wiped() {
    let mut glass = glass(8);
    (1..=6).for_each(|serial| assert_eq!(glass.insert(0, serial, 64), Ok(0)));
    assert_eq!(glass.secrets().len(), 6);
    glass.cache = None;
    assert_eq!(glass.secrets(), BTreeSet::new());
}

#[test]
fn a_panic_under_the_lock_costs_the_sessions_and_wipes_them() {
    let glass = glass(8);
    assert_eq!(glass.insert(0, 1, 200), Ok(0));
    glass.window.trap.store(true, Ordering::Relaxed);
    let trapped = catch_unwind(AssertUnwindSafe(|| glass.cache().remove(&id(9))));
    assert!(trapped.is_err());
    assert_eq!(glass.cache().counters().sessions, 0);
    assert_eq!(glass.secrets(), BTreeSet::new());
    assert_eq!(glass.insert(0, 2, 200), Ok(0), "the shard is of use again");
    assert_eq!(glass.cache().counters().stored, 2, "and counts on");
}

/// Checks that, after any operation, the secrets in memory are those of the sessions that can be
/// found.
#[test]
fn only_stored_sessions_are_in_memory() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let glass = glass(6);
        let mut now_ms = 0;
        for serial in 1..1_500 {
            now_ms += random.of_any_size(14);
            one_change(&glass, now_ms, serial, &mut random);
            assert_eq!(glass.secrets(), stored(&glass), "serial {serial}, seed {seed}");
        }
    }
}

fn one_change(glass: &Glass, now_ms: u64, serial: u32, random: &mut Random) {
    let client = random.below(12) as u32;
    let value = &mut SecretBytes::default();
    match random.below(8) {
        0 => drop(glass.cache().remove(&id(client))),
        1 => drop(glass.cache().take(now_ms, &id(client), CONTEXT, value)),
        2 => drop(glass.cache().get(now_ms, &id(client), CONTEXT, value)),
        _ => {
            let new = NewSession {
                value: &secret(serial, 8 + random.below(200) as usize),
                expires_ms: now_ms + random.of_any_size(24),
                hint_ms: Some(random.of_any_size(20)),
                ..session(client)
            };
            // The session may be refused: only the contents of the memory count.
            let _ = glass.cache().insert(now_ms, &new);
        }
    }
}

/// Expired sessions are included: they are wiped when they are looked up or evicted.
fn stored(glass: &Glass) -> BTreeSet<u32> {
    let mut value = SecretBytes::default();
    let serial = |client| {
        let found = glass.cache().peek(0, &id(client), CONTEXT, &mut value);
        found.then(|| u32::from_le_bytes([value[0], value[1], value[2], value[3]]))
    };
    (0..12).filter_map(serial).collect()
}

#[test]
fn nothing_prints_a_secret() {
    let secret = [0xa7_u8; 40];
    let new = NewSession { value: &secret, ..session(1) };
    let issued = || Issued {
        id: id(1),
        value: SecretBytes::from(secret.to_vec()),
        expires_ms: 1_000,
        context: CONTEXT,
    };
    let cache = Cache::new(&Settings::new(Capacity::Sessions(4)), [0; 16], 0).expect("cache");
    cache.insert(0, &new).expect("there is room");
    let mut visit = Visit::default();
    visit.issue_later(&cache, 0, issued());
    let line: Line = bytemuck::cast([0xa7_u8; 64]);
    let printed = [
        format!("{new:?} {new:#?}"),
        format!("{:?} {:#?}", issued(), issued()),
        format!("{:?} {:#?}", issued().value, issued().value),
        format!("{visit:?} {visit:#?}"),
        format!("{cache:?} {cache:#?}"),
        format!("{line:?} {line:#?}"),
    ];
    let word = u64::from_le_bytes([0xa7; 8]).to_string();
    for text in printed.map(|text| text.to_lowercase()) {
        let leaks = ["167", "a7", &word].iter().any(|digits| text.contains(digits));
        assert!(!leaks, "{text}");
    }
}
