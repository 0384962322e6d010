//! Eviction inside Valkey compared with a machine's cache, and the speed of one client's operations. Prints one
//! line for each figure. The exit code is 1 if a figure misses its bound.
//!
//! ```sh
//! cargo bench --package rejoin-cluster
//! ```

#![expect(clippy::print_stdout, reason = "a benchmark prints figures")]

use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rejoin_cache::{ContextTag, SecretBytes, SessionId};
use rejoin_cluster::Sessions;
use rejoin_cluster::sessions::{Bounds, Entry, Past, Put};
use rejoin_testkit::cluster::{link, replay};
use rejoin_testkit::valkey::Valkey;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

const MOST_POINTS_APART: f64 = 0.5;
const LEAST_OPERATIONS_A_SECOND: f64 = 25_000.0;
const MOST_P99_MS: f64 = 2.0;

/// Lookups and stores under way at once.
const TASKS: u64 = 64;
const OPERATIONS: u64 = 300_000;
/// Half of [`LEAST_OPERATIONS_A_SECOND`].
const PACED_A_SECOND: u64 = 12_500;
const PACED_FOR: Duration = Duration::from_secs(10);
const BOUNDS: Bounds =
    Bounds { shards: Bounds::SHARDS, sessions: 65_536, bytes: 1 << 30, grace_ms: 2_000 };
/// The length of an OpenSSL session without a client certificate.
const VALUE_BYTES: usize = 150;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let enough = runtime.expect("a runtime").block_on(async {
        [hit_rates().await, round_trips().await, speed().await, latency().await]
    });
    if enough.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn hit_rates() -> bool {
    let valkey = Valkey::start(&[]);
    let link = link(&valkey).await;
    let mut apart = 0.0_f64;
    for (devices, seconds) in [(5_000, 3_600), (20_000, 1_800)] {
        let (events, capacity) = replay::devices(devices, seconds);
        let sessions = replay::one_shard(link.clone(), &devices.to_string(), capacity);
        let (hits, _) = replay::in_valkey(&sessions, &events).await;
        let there = replay::in_process(&events, capacity);
        println!(
            "hits of {devices} devices, {capacity} sessions: {hits:.2} % in Valkey, {there:.2} % in a machine"
        );
        apart = apart.max((hits - there).abs());
    }
    apart <= MOST_POINTS_APART
}

/// Counts Valkey's commands while sessions are stored and others are evicted.
async fn round_trips() -> bool {
    let load = Load::new().await;
    load.fill().await;
    load.valkey.say("CONFIG RESETSTAT");
    let (puts, mut evicting) = (10_000, 0);
    for number in 0..puts {
        evicting += u64::from(load.put_at(Load::FILL + number).await > 0);
    }
    let scripts = load.valkey.calls("evalsha");
    println!("commands for {puts} puts, of which {} evicted: {scripts}", evicting);
    scripts == puts && evicting > puts / 2
}

async fn speed() -> bool {
    let load = Load::new().await;
    load.fill().await;
    let began = Instant::now();
    load.repeat(OPERATIONS, |load, number| async move { load.operate(number).await }).await;
    let a_second = OPERATIONS as f64 / began.elapsed().as_secs_f64();
    println!("operations a second, {TASKS} at a time: {a_second:.0}");
    a_second >= LEAST_OPERATIONS_A_SECOND
}

async fn latency() -> bool {
    let load = Load::new().await;
    load.fill().await;
    let gets = Arc::new(Mutex::new(Histogram::<u64>::new(3).expect("three digits")));
    let (mut due, mut tasks) = (paced(), JoinSet::new());
    while let Some((number, due)) = due.recv().await {
        let (load, gets) = (load.clone(), gets.clone());
        // Started on time, even if earlier ones are still running.
        tasks.spawn(async move {
            load.operate(number).await;
            if number.is_multiple_of(2) {
                let micros = due.elapsed().as_micros() as u64;
                gets.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
            }
        });
        while tasks.try_join_next().is_some() {}
    }
    tasks.join_all().await;
    let gets = gets.lock().unwrap_or_else(PoisonError::into_inner);
    let ms = |quantile| gets.value_at_quantile(quantile) as f64 / 1_000.0;
    println!(
        "a get at {} operations a second: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
        PACED_A_SECOND,
        ms(0.5),
        ms(0.99),
        ms(0.999)
    );
    ms(0.99) < MOST_P99_MS
}

/// Sends each operation when it is due, from a thread, because the runtime's timers are too coarse.
fn paced() -> UnboundedReceiver<(u64, Instant)> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let began = Instant::now();
        for number in 0..PACED_A_SECOND * PACED_FOR.as_secs() {
            let due = began + Duration::from_secs(number) / PACED_A_SECOND as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send((number, due)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sessions of clients that visit once each and are expected back within 400 seconds. Each operation advances the
/// time by a millisecond.
struct Load {
    valkey: Valkey,
    sessions: Sessions,
    value: SecretBytes,
}

impl Load {
    const FILL: u64 = 2 * BOUNDS.sessions;

    async fn new() -> Arc<Self> {
        let valkey = Valkey::start(&[]);
        let link = link(&valkey).await;
        let sessions = Sessions::new(link, "bench", &[3; 32], BOUNDS, &replay::ring(1));
        let value = SecretBytes::from(vec![7; VALUE_BYTES]);
        Arc::new(Self { valkey, sessions: sessions.expect("in range"), value })
    }

    async fn fill(self: &Arc<Self>) {
        let put = |load: Arc<Self>, number| async move {
            load.put_at(number).await;
        };
        self.repeat(Self::FILL, put).await;
    }

    /// Runs an operation this many times, [`TASKS`] at a time.
    async fn repeat<O>(self: &Arc<Self>, times: u64, operation: fn(Arc<Self>, u64) -> O)
    where
        O: Future<Output = ()> + Send + 'static,
    {
        let (next, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for _ in 0..TASKS {
            let (load, next) = (self.clone(), next.clone());
            let numbers = move || Some(next.fetch_add(1, Relaxed)).filter(|number| *number < times);
            tasks.spawn(async move {
                while let Some(number) = numbers() {
                    operation(load.clone(), number).await;
                }
            });
        }
        tasks.join_all().await;
    }

    /// Stores a session if the number is odd; looks up a recently stored one if it is even.
    async fn operate(&self, number: u64) {
        let number = Self::FILL + number;
        if !number.is_multiple_of(2) {
            self.put_at(number).await;
            return;
        }
        let id = id(number - 2 * TASKS - 1);
        let found = self.sessions.get(replay::BEGAN_MS + number, &id).await.expect("an answer");
        assert!(found.is_none_or(|found| found.value.len() == VALUE_BYTES));
    }

    async fn put_at(&self, number: u64) -> u32 {
        let now_ms = replay::BEGAN_MS + number;
        let entry = Entry {
            id: &id(number),
            context: ContextTag(0),
            value: &self.value,
            expires_ms: now_ms + 3_600_000,
            past: Past::default(),
            // Any order will do.
            returns_ms: now_ms + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 400_000,
        };
        match self.sessions.put(now_ms, &entry).await.expect("an answer") {
            Put::Stored { evicted } => evicted,
            Put::Refused(_) | Put::Taken => 0,
        }
    }
}

fn id(number: u64) -> SessionId {
    SessionId::new(&number.to_be_bytes().repeat(4)).expect("32 bytes")
}
