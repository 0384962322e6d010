//! `rejoin stats --serve`: what it shows a browser and Prometheus, and whom it refuses.

use crate::REJOIN;
use rejoin_testkit::serve::{interrupt, scratch};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::shown::{Shown, number, text_of};
use rejoin_cache::{Capacity, ContextTag, Counters, NewSession, SecretBytes, SessionId, Settings};
use rejoin_store::{CacheName, SharedKeys, Store, now_ms};
use rejoin_tickets::{KeySource, TicketEvent};
use serde_json::Value;

const CONTEXT: ContextTag = ContextTag(1);
/// Until a client comes back that comes back late.
const LONG_MS: u64 = 30_000_000;

/// A cache of known contents, in a folder of its own.
pub(crate) struct Cached {
    folder: PathBuf,
    name: CacheName,
    store: Store,
}

impl Cached {
    pub(crate) fn new() -> Self {
        static CACHES: AtomicU32 = AtomicU32::new(0);
        let number = CACHES.fetch_add(1, Ordering::Relaxed);
        let folder = scratch(&format!("stats-{}-{number}", std::process::id()));
        let name: CacheName = "web".parse().expect("a name");
        let store = Self::make(&folder, &name);
        Self { folder, name, store }
    }

    fn make(folder: &Path, name: &CacheName) -> Store {
        let settings = Settings::new(Capacity::Sessions(2_000));
        Store::open(folder, name, Some(&settings)).expect("made")
    }

    pub(crate) fn shown(&self) -> Shown {
        let folder = self.folder.to_str().expect("UTF-8");
        Shown::start(&["web", "--folder", folder])
    }

    fn again(&self) -> Arc<Store> {
        Arc::new(Store::open(&self.folder, &self.name, None).expect("it is there"))
    }

    /// Twelve hundred sessions of a second ago, none of which becomes overdue while a test runs;
    /// hits, misses and the rest.
    pub(crate) fn fill(&self) {
        let store = &self.store;
        let stored_ms = now_ms() - 1_000;
        let hints_ms = [0, 500_000, 3_000_000, LONG_MS];
        for client in 0..1_200 {
            let hint_ms = hints_ms.get(client as usize % 9).copied();
            let new = NewSession { hint_ms, sibling: client % 9 == 8, ..session(client) };
            store.insert(stored_ms, &new).expect("there is room");
        }
        for client in (7..).step_by(9).take(37) {
            look_up(store, client, CONTEXT);
            store.hint(now_ms(), &session(client).id, LONG_MS);
        }
        (5_000..5_013).for_each(|client| look_up(store, client, CONTEXT));
        (0..5).for_each(|client| look_up(store, client, ContextTag(2)));
        (0..7).for_each(|_| store.record_forged());
        (0..3).for_each(|_| store.record_rejected());
        (0..55).for_each(|number| store.record_handshake(number < 34));
        let keys = SharedKeys::open(self.again(), None, None, 0, |_| {});
        let keys = keys.expect("keys");
        for (times, event) in TicketEvent::ALL.into_iter().enumerate() {
            (0..=times).for_each(|_| keys.record(event));
        }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn session(client: u32) -> NewSession<'static> {
    let id = SessionId::new(&client.to_le_bytes()).expect("four bytes");
    NewSession::new(id, &[1; 100], u64::MAX, CONTEXT)
}

fn look_up(store: &Store, client: u32, context: ContextTag) {
    store.get(now_ms(), &session(client).id, context, &mut SecretBytes::default());
}

/// A metric of the cache `web`; with a label of its own, if it is not empty.
fn metric(text: &str, name: &str, label: &str) -> u64 {
    let name = format!("rejoin_cache_{name}{{cache=\"web\"{label}}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

#[test]
fn prometheus_shows_what_was_counted() {
    counts_are_shown(false);
}

#[test]
#[ignore = "slow: needs Chromium; make test-all"]
fn the_page_shows_what_was_counted() {
    counts_are_shown(true);
}

fn counts_are_shown(on_page: bool) {
    let cached = Cached::new();
    cached.fill();
    let shown = cached.shown();
    let metrics = shown.get("/metrics");
    let counters = cached.store.counters();
    let Counters { hits, misses, forged, rejected, foreign_context, .. } = counters;
    assert_eq!((hits, misses, forged, rejected, foreign_context), (37, 18, 7, 3, 5));
    let page = on_page.then(|| shown.drawn(&cached.folder));
    let tickets = cached.store.ticket_counters();
    assert_eq!(tickets.map(|(_, count)| count), [1, 2, 3, 4, 5, 6]);
    let counts = counters.named().into_iter().chain(tickets);
    for (name, count) in counts.filter(|(name, _)| !name.ends_with("_ms")) {
        let (metric_name, label) = match name {
            "sessions" => (name.to_owned(), ""),
            "full_handshakes" => ("handshakes_total".to_owned(), ",kind=\"full\""),
            "resumed_handshakes" => ("handshakes_total".to_owned(), ",kind=\"resumed\""),
            _ => (format!("{name}_total"), ""),
        };
        assert_eq!(metric(&metrics, &metric_name, label), count, "{name}");
        let on_page = page.as_ref().map(|page| number(page, &name.replace('_', "-")));
        assert!(on_page.is_none_or(|on_page| on_page == count), "{name}: {on_page:?}, not {count}");
    }
    let returns = cached.store.occupancy(now_ms()).named();
    assert_eq!(returns.iter().map(|(_, count)| count).sum::<u64>(), 1_200);
    for (name, count) in returns {
        let label = format!(",returns=\"{name}\"");
        assert_eq!(metric(&metrics, "sessions_by_return", &label), count, "{name}");
        let on_page =
            page.as_ref().map(|page| number(page, &format!("returns-{}", name.replace('_', "-"))));
        assert!(on_page.is_none_or(|on_page| on_page == count), "{name}: {on_page:?}, not {count}");
    }
    let Some(page) = page else { return };
    assert_eq!(number(&page, "resumed-handshakes"), 34);
    assert_eq!(text_of(&page, "resumed-percent"), "61.8 %");
    assert_eq!(number(&page, "capacity-sessions"), 2_000);
    assert_eq!((text_of(&page, "name"), text_of(&page, "notice")), ("web", ""));
    assert!(text_of(&page, "state").starts_with("Made "));
}

/// The history of the last seconds has the handshakes made while the page is open.
#[test]
fn what_is_resumed_now_is_told_apart() {
    let cached = Cached::new();
    cached.fill();
    let shown = cached.shown();
    shown.wait("sampled", |stats| {
        stats["history"]["resumed"].as_array().is_some_and(|of| of.len() > 1)
    });
    (0..25).for_each(|number| cached.store.record_handshake(number < 19));
    let sum = |stats: &Value, of: &str| -> u64 {
        let counts = stats["history"][of].as_array().expect("counts");
        counts.iter().filter_map(Value::as_u64).sum()
    };
    shown.wait("noticed", |stats| (sum(stats, "handshakes"), sum(stats, "resumed")) == (25, 19));
}

#[test]
fn answers_are_what_they_say_and_load_nothing_from_elsewhere() {
    let cached = Cached::new();
    let shown = cached.shown();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/?from=a-bookmark", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/script.js", "text/javascript; charset=utf-8"),
        ("/sections.js", "text/javascript; charset=utf-8"),
        ("/stats.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let answer = shown.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains(&format!("\r\nContent-Type: {content_type}\r\n")), "{path}: {head}");
        assert!(
            head.contains("\r\nContent-Security-Policy: default-src 'none'; "),
            "{path}: {head}"
        );
        assert!(!head.contains("unsafe") && !head.contains("Allow-Origin"), "{path}: {head}");
        assert!(
            head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
            "{path}: {head}"
        );
        // The name of a namespace is no address.
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains("http://") && !body.contains("https://"), "{path}");
    }
    let answer = shown.tell(b"HEAD /script.js HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(shown.get("/../../etc/passwd").starts_with("HTTP/1.1 404 "));
}

#[test]
fn what_is_not_meant_for_it_is_refused() {
    let cached = Cached::new();
    let shown = cached.shown();
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let refused: [(&[u8], &str); 9] = [
        (b"POST /stats.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", "405"),
        (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (b"GET /stats.json HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n", "421"),
        (b"GET / HTTP/1.0\r\n\r\n", "421"),
        (b"\x16\x03\x01 not http\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        (long.as_bytes(), "400"),
    ];
    for (request, status) in refused {
        let answer = shown.tell(request);
        let asked = String::from_utf8_lossy(&request[..request.len().min(60)]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{asked}: {answer}");
        assert!(!answer.contains("hits"), "{asked}: {answer}");
    }
    assert!(shown.get("/metrics").contains("rejoin_build_info"));
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let cached = Cached::new();
    let shown = cached.shown();
    let mut idle: Vec<_> = (0..400).map(|_| shown.connect()).collect();
    let asked = Instant::now();
    assert!(shown.get("/metrics").contains("rejoin_build_info"));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).expect("a socket");
        matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let open = idle.iter_mut().map(is_open).filter(|open| *open).count();
    assert!(open <= 64, "{open} of 400 are still open");
}

#[test]
fn a_cache_removed_and_made_anew_is_shown_as_such() {
    let cached = Cached::new();
    cached.fill();
    let shown = cached.shown();
    shown.wait("there", |stats| stats["removed"] == false && stats["hits"] == 37);
    assert!(Store::remove(&cached.folder, &cached.name).expect("removed"));
    shown.wait("removed", |stats| stats["removed"] == true && stats["sessions"] == 0);
    assert_eq!(metric(&shown.get("/metrics"), "removed", ""), 1);
    // One that cannot be opened is said to be there.
    let path = cached.folder.join(cached.name.file_name());
    std::fs::write(&path, b"no cache").expect("a file");
    shown.wait("complained about", |stats| stats["problem"].is_string());
    assert!(Store::remove(&cached.folder, &cached.name).expect("removed"));
    let anew = Cached::make(&cached.folder, &cached.name);
    (0..4).for_each(|client| assert!(anew.insert(now_ms(), &session(client)).is_ok()));
    shown.wait("anew", |stats| stats["removed"] == false && stats["sessions"] == 4);
    assert_eq!((&shown.stats()["problem"], &shown.stats()["hits"]), (&Value::Null, &0.into()));
}

/// Nothing is left of it for those that have it open, although its name is there.
#[test]
fn a_cache_that_is_cut_short_is_shown_as_removed() {
    let cached = Cached::new();
    cached.fill();
    let shown = cached.shown();
    shown.wait("there", |stats| stats["removed"] == false && stats["hits"] == 37);
    let path = cached.folder.join(cached.name.file_name());
    let file = std::fs::File::options().write(true).open(&path).expect("there");
    file.set_len(4_096).expect("cut");
    shown.wait("told of", |stats| stats["removed"] == true && stats["problem"].is_string());
    assert_eq!(metric(&shown.get("/metrics"), "removed", ""), 1);
    assert!(Store::remove(&cached.folder, &cached.name).expect("removed"));
    let anew = Cached::make(&cached.folder, &cached.name);
    assert!(anew.insert(now_ms(), &session(1)).is_ok());
    shown.wait("anew", |stats| stats["removed"] == false && stats["sessions"] == 1);
}

/// A server that runs on with the cache that it has shares nothing with those that start.
#[test]
fn servers_of_a_cache_that_was_replaced_are_told_of() {
    let cached = Cached::new();
    let shown = cached.shown();
    shown.wait("there", |stats| stats["removed"] == false);
    assert!(Store::remove(&cached.folder, &cached.name).expect("removed"));
    let anew = Cached::make(&cached.folder, &cached.name);
    assert!(anew.insert(now_ms(), &session(1)).is_ok());
    shown.wait("anew", |stats| stats["sessions"] == 1);
    // Nobody is known to use the last one.
    assert_eq!(shown.stats()["replaced_in_use"], false);
    assert_eq!(metric(&shown.get("/metrics"), "replaced_in_use", ""), 0);
    cached.store.record_handshake(true);
    shown.wait("told of", |stats| stats["replaced_in_use"] == true && stats["removed"] == false);
    assert_eq!(metric(&shown.get("/metrics"), "replaced_in_use", ""), 1);
}

#[test]
fn it_ends_well_when_it_is_told_to() {
    let cached = Cached::new();
    let mut shown = cached.shown();
    let _idle = shown.connect();
    interrupt(&shown.child);
    let ended = shown.child.wait().expect("our own child");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn the_command_line_shows_return_times_too() {
    let cached = Cached::new();
    cached.fill();
    let stats = |more: &[&str]| {
        let mut command = Command::new(REJOIN);
        command.args(["stats", "web", "--folder"]).arg(&cached.folder).args(more);
        command.output().expect("the program runs").stdout
    };
    let told: Value = serde_json::from_slice(&stats(&["--json"])).expect("JSON");
    for (name, count) in cached.store.occupancy(now_ms()).named() {
        assert_eq!(told["sessions_by_return"][name], count, "{name}");
    }
    assert_eq!((&told["resumed_handshakes"], &told["rejected"]), (&34.into(), &3.into()));
    let table = String::from_utf8(stats(&[])).expect("UTF-8");
    assert!(table.contains("expected back") && table.contains("within 10 min"), "{table}");
}
