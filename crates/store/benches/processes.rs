//! The cost of sharing: a lookup and a store in shared memory against the same on the heap, and
//! the gain of two processes.
//!
//! Run it by `cargo bench -p rejoin-store`. Times are processor times, so that other programs on the machine do not
//! count, and medians of rounds that take turns.

use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rejoin_cache::{Cache, Capacity, ContextTag, NewSession, SecretBytes, SessionId};
use rejoin_cache::{SessionStore, Settings};
use rejoin_store::{CacheName, Store, now_ms};
use rejoin_testkit::folder::Folder;
use rustix::time::{ClockId, clock_gettime};

const SESSIONS: u64 = 20_000;
const CLIENTS: u64 = 18_000;
/// The size of a serialised session of OpenSSL without a client certificate.
const VALUE_BYTES: usize = 150;
const ROUNDS: usize = 15;
const PAIRS: u64 = 200_000;
const ROLE: &str = "REJOIN_BENCH_FOLDER";
const CACHE: &str = "REJOIN_BENCH_CACHE";

fn main() {
    if let Some(folder) = std::env::var_os(ROLE) {
        return play(Path::new(&folder));
    }
    let folder = Folder::below(Path::new(Store::FOLDER));
    let (store, other) = (open(&folder, "bench"), open(&folder, "other"));
    let heap = Cache::new(&settings(), [5; 16], now_ms()).expect("settings make a cache");
    fill(&heap);
    fill(&store);
    fill(&other);
    let (mut on_heap, mut shared) = (Vec::new(), Vec::new());
    for seed in 0..ROUNDS as u64 {
        on_heap.push(pairs(&heap, seed, PAIRS));
        shared.push(pairs(&store, seed, PAIRS));
    }
    let (on_heap, shared) = (median(on_heap), median(shared));
    say(&format!("get and insert, on the heap: {on_heap:.0} ns"));
    say(&format!("get and insert, shared:      {shared:.0} ns"));
    compare_processes(&folder);
    say(&format!("{:?}", store.facts()));
}

/// Two do the same work that one does, at the same time: with one cache, and, to know the machine, with a cache each.
fn compare_processes(folder: &Path) {
    let round = || {
        let [one, two] =
            [["bench"].as_slice(), &["bench"; 2]].map(|caches| at_once(folder, caches));
        [one, two, at_once(folder, &["bench", "other"]), line_ns()]
    };
    let rounds: Vec<[f64; 4]> = (0..ROUNDS).map(|_| round()).collect();
    let of = |at: usize| median(rounds.iter().map(|round| round[at]).collect());
    say(&format!("get and insert, shared, one process alone: {:.0} ns", of(0)));
    say(&format!("and by each of two at once:                {:.0} ns", of(1)));
    say(&format!("and by each of two with a cache each:      {:.0} ns", of(2)));
    let gain = |at: usize| median(rounds.iter().map(|round| 2.0 * round[0] / round[at]).collect());
    say(&format!("two processes do {:.2} times what one does", gain(1)));
    say(&format!("with a cache each they do {:.2} times that", gain(2)));
    say(&format!("a cache line takes {:.0} ns to the other core", of(3)));
}

/// Nanoseconds that a cache line takes from one core to the other: the least of several turns, for both threads may
/// begin on one core.
fn line_ns() -> f64 {
    const WAYS: u64 = 10_000;
    const TURNS: u64 = 20;
    let (line, start) = (AtomicU64::new(0), Barrier::new(2));
    let play = |ways: Range<u64>| {
        for way in ways.step_by(2) {
            // Without a pause, which takes as long as the way.
            while line.load(Ordering::Acquire) != way {}
            line.store(way + 1, Ordering::Release);
        }
    };
    let turn = |turn: u64| {
        let began = Instant::now();
        play(turn * WAYS..(turn + 1) * WAYS);
        began.elapsed().as_nanos() as f64 / WAYS as f64
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            play(1..TURNS * WAYS);
        });
        start.wait();
        (0..TURNS).map(turn).fold(f64::INFINITY, f64::min)
    })
}

/// Nanoseconds of processor time that a lookup and a store take each process, one for each cache.
fn at_once(folder: &Path, caches: &[&str]) -> f64 {
    let start = |cache: &&str| -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.env(ROLE, folder).env(CACHE, cache);
        command.stdout(Stdio::piped()).spawn().expect("started")
    };
    let children: Vec<Child> = caches.iter().map(start).collect();
    let took = children.into_iter().map(|child| {
        let said = child.wait_with_output().expect("a child").stdout;
        let said = String::from_utf8(said).expect("text");
        said.trim().parse::<f64>().expect("nanoseconds")
    });
    took.sum::<f64>() / caches.len() as f64
}

/// Another process's part.
fn play(folder: &Path) {
    let store = open(folder, &std::env::var(CACHE).expect("a name"));
    let seed = u64::from(std::process::id());
    say(&pairs(&store, seed, 5 * PAIRS).to_string());
}

/// Nanoseconds of processor time that this process has had.
fn spent() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}

/// Nanoseconds of processor time of one lookup and one store.
fn pairs(cache: &impl SessionStore, seed: u64, pairs: u64) -> f64 {
    let before = spent();
    pairs_of(cache, seed, pairs);
    (spent() - before) / pairs as f64
}

fn pairs_of(cache: &impl SessionStore, seed: u64, pairs: u64) {
    let mut value = SecretBytes::with_capacity(256);
    let (mut found, mut state, now_ms) = (0, seed.wrapping_mul(2) + 1, now_ms());
    for pair in 0..pairs {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (new, now_ms) = (session(state % CLIENTS, now_ms), now_ms + pair / 1_000);
        found += u64::from(cache.get(now_ms, &new.id, new.context, &mut value).found);
        let _ = cache.insert(now_ms, &new);
    }
    assert!(found * 10 > pairs * 8, "{found} of {pairs} found");
}

fn session(client: u64, now_ms: u64) -> NewSession<'static> {
    let mut id = [0; SessionId::LONGEST];
    id[..8].copy_from_slice(&client.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let id = SessionId::new(&id).expect("32 bytes");
    NewSession::new(id, &[7; VALUE_BYTES], now_ms + 86_400_000, ContextTag(1))
}

fn fill(cache: &impl SessionStore) {
    (0..CLIENTS)
        .for_each(|client| assert!(cache.insert(now_ms(), &session(client, now_ms())).is_ok()));
}

fn settings() -> Settings {
    Settings { shards: Some(16), ..Settings::new(Capacity::Sessions(SESSIONS)) }
}

fn open(folder: &Path, cache: &str) -> Store {
    let name: CacheName = cache.parse().expect("a name");
    Store::open(folder, &name, Some(&settings())).expect("opened")
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

#[expect(clippy::print_stdout, reason = "it is what a bench is for")]
fn say(line: &str) {
    println!("{line}");
}
