//! The promises of a [`Visit`], for any sessions, periods and order of events.

use std::collections::BTreeSet;

use rejoin_cache::Visit;
use rejoin_cache::{Cache, Capacity, ContextTag, Counters, History, Inserted, Issued, NewSession};
use rejoin_cache::{
    Policy, Prediction, REACHES_BACK_MS, Refusal, SecretBytes, SessionId, Settings, TICK_MS,
};

use rejoin_testkit::random::Random;

const CONTEXT: ContextTag = ContextTag(7);
const DAY_MS: u64 = 86_400_000;

fn cache_of(sessions: u64) -> Cache {
    let settings = Settings { shards: Some(1), ..Settings::new(Capacity::Sessions(sessions)) };
    Cache::new(&settings, [9; 16], 0).expect("settings make a cache")
}

fn id(number: u64) -> SessionId {
    SessionId::new(&number.to_be_bytes()).expect("eight bytes")
}

fn issued(number: u64) -> Issued {
    let value = SecretBytes::from(number.to_le_bytes().to_vec());
    Issued { id: id(number), value, expires_ms: u64::MAX, context: CONTEXT }
}

/// Returns true if a session is in the cache, and leaves no trace.
fn is_stored(cache: &Cache, number: u64) -> bool {
    cache.peek(0, &id(number), CONTEXT, &mut SecretBytes::default())
}

/// Stores a session outside any visit, whose client returns in `interval_ms`.
fn newcomer(cache: &Cache, now_ms: u64, number: u64, interval_ms: u64) -> Result<u32, Refusal> {
    let new = NewSession {
        hint_ms: Some(interval_ms),
        ..NewSession::new(id(number), &[], u64::MAX, CONTEXT)
    };
    cache.insert(now_ms, &new).map(|inserted| inserted.evicted)
}

/// A client that always presents its newest session.
struct Client {
    first_ms: u64,
    period_ms: u64,
    session: Option<u64>,
}

impl Client {
    fn new(random: &mut Random) -> Self {
        let period_ms = (1 + random.of_any_size(26)) * TICK_MS;
        Self { first_ms: random.below(60_000) * TICK_MS, period_ms, session: None }
    }

    /// Presents its session, and gets a few new ones.
    fn connect(&mut self, cache: &Cache, now_ms: u64, random: &mut Random, next_id: &mut u64) {
        let (mut visit, mut value) = (Visit::default(), SecretBytes::default());
        if let Some(session) = self.session {
            let found = if random.once_in(2) {
                visit.look_up(cache, now_ms, &id(session), CONTEXT, &mut value)
            } else {
                visit.take(cache, now_ms, &id(session), CONTEXT, &mut value)
            };
            assert!(found && *value == session.to_le_bytes());
        }
        for _ in 0..random.below(7) {
            *next_id += 1;
            if random.once_in(3) {
                visit.issue(cache, now_ms, &issued(*next_id));
            } else {
                visit.issue_later(cache, now_ms, issued(*next_id));
            }
        }
        // Sessions issued at once have overtaken the waiting ones: make a waiting one the newest.
        *next_id += 1;
        visit.issue_later(cache, now_ms, issued(*next_id));
        visit.finish(cache, now_ms);
        self.session = Some(*next_id);
    }
}

#[test]
fn history_follows_the_client_over_changing_ids() {
    const VISITS: u64 = 6;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let cache = cache_of(20_000);
        let mut clients: Vec<Client> = (0..20).map(|_| Client::new(&mut random)).collect();
        let times = |(at, client): (usize, &Client)| {
            let Client { first_ms, period_ms, .. } = *client;
            (0..VISITS).map(move |visit| (first_ms + visit * period_ms, at))
        };
        let connections: BTreeSet<_> = clients.iter().enumerate().flat_map(times).collect();
        let mut next_id = 0;
        for (now_ms, at) in connections {
            clients[at].connect(&cache, now_ms, &mut random, &mut next_id);
        }
        for Client { first_ms, period_ms, session } in clients {
            // An absence of this length says nothing about a client with a habit: the expectation
            // follows from the visits before.
            let now_ms = first_ms + (VISITS + 4) * period_ms;
            let session = id(session.expect("connected"));
            let arrival = cache.get(now_ms, &session, CONTEXT, &mut SecretBytes::default());
            let (learned, kept) = arrival.history.interval().expect("two gaps");
            let learned = learned.as_ms();
            assert!(arrival.found && kept && learned >= period_ms);
            assert!(learned - period_ms <= period_ms / 8 + 4, "{learned} for {period_ms}");
        }
    }
}

#[test]
fn an_evicted_client_is_known_when_it_comes_back() {
    let cache = cache_of(2);
    let mut visit = Visit::default();
    visit.issue(&cache, 0, &issued(1));
    assert_eq!(newcomer(&cache, 0, 2, 1), Ok(0));
    assert_eq!(newcomer(&cache, 0, 3, 1), Ok(1), "of the first nothing is known");
    let value = &mut SecretBytes::default();
    let mut visit = Visit::default();
    assert!(!visit.look_up(&cache, 30_000, &id(1), CONTEXT, value));
    visit.issue(&cache, 30_000, &issued(4));
    let arrival = cache.get(60_000, &id(4), CONTEXT, value);
    let learned = arrival.history.interval().map(|(gap, kept)| (gap.as_ms(), kept));
    assert_eq!(learned, Some((30_720, true)), "the second gap agrees with the first");
    assert_eq!(cache.counters().wanted_after_eviction, 1);
}

/// A connection that makes two sessions, of which neither has a place.
#[test]
fn a_client_without_a_place_is_remembered_once() {
    let cache = cache_of(1);
    assert_eq!(newcomer(&cache, 0, 1, 10_000), Ok(0));
    let mut visit = Visit::default();
    [2, 3].into_iter().for_each(|number| visit.issue(&cache, 1_000, &issued(number)));
    assert_eq!(cache.counters().refused_returns_later, 2);
    let wanted = |number| {
        cache.get(2_000, &id(number), CONTEXT, &mut SecretBytes::default());
        cache.counters().wanted_after_eviction
    };
    assert_eq!([2, 3].map(wanted), [0, 1], "the newest only");
}

#[test]
fn siblings_are_evicted_first() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut sizes: Vec<u64> = (0..1 + random.below(12)).map(|_| 1 + random.below(5)).collect();
        sizes.push(2);
        let cache = cache_of(sizes.iter().sum());
        let (mut newest, mut siblings) = (Vec::new(), BTreeSet::new());
        for (visited, size) in (1..).zip(sizes) {
            let mut visit = Visit::default();
            let ids = visited * 100..visited * 100 + size;
            ids.clone().for_each(|number| visit.issue_later(&cache, 0, issued(number)));
            visit.hint(&cache, 0, 1 + random.below(DAY_MS));
            newest.push(ids.end - 1);
            siblings.extend(ids.start..ids.end - 1);
        }
        let late_ms = 5 * DAY_MS;
        for number in 0..siblings.len() as u64 {
            assert_eq!(newcomer(&cache, 0, number, late_ms), Ok(1));
            assert!(newest.iter().all(|number| is_stored(&cache, *number)));
        }
        assert!(siblings.iter().all(|number| !is_stored(&cache, *number)));
        assert_eq!(newcomer(&cache, 0, 99, late_ms), Err(Refusal::ReturnsLater));
        assert_eq!(cache.counters().evicted_latest, siblings.len() as u64);
    }
}

#[test]
fn a_sibling_finds_no_place_in_a_full_cache() {
    let cache = cache_of(1);
    let mut visit = Visit::default();
    visit.issue_later(&cache, 0, issued(1));
    visit.issue_later(&cache, 0, issued(2));
    visit.hint(&cache, 0, 5 * DAY_MS);
    assert!(is_stored(&cache, 2) && !is_stored(&cache, 1));
    assert_eq!(cache.counters().refused_returns_later, 1);
}

/// The least recently used goes first, and of sessions made at once that is not the newest, which a client offers.
#[test]
fn of_sessions_that_waited_an_lru_keeps_the_newest() {
    for (capacity, kept) in [(1, vec![4]), (2, vec![3, 4]), (3, vec![2, 3, 4])] {
        let settings =
            Settings { policy: Policy::Lru, ..Settings::new(Capacity::Sessions(capacity)) };
        let settings = Settings { shards: Some(1), ..settings };
        let cache = Cache::new(&settings, [9; 16], 0).expect("settings make a cache");
        let mut visit = Visit::default();
        (1..=4).for_each(|number| visit.issue_later(&cache, 0, issued(number)));
        visit.hint(&cache, 0, DAY_MS);
        let stored = (1..=4).filter(|number| is_stored(&cache, *number));
        assert_eq!(stored.collect::<Vec<u64>>(), kept);
        visit.forget(&cache);
        assert_eq!(cache.counters().sessions, 0);
    }
}

#[test]
fn the_consumed_session_is_retired() {
    for later in [false, true] {
        let cache = cache_of(3);
        assert_eq!(newcomer(&cache, 0, 1, 3 * DAY_MS), Ok(0));
        assert_eq!(newcomer(&cache, 0, 2, 1), Ok(0));
        let mut visit = Visit::default();
        assert!(visit.look_up(&cache, 1, &id(2), CONTEXT, &mut SecretBytes::default()));
        if later {
            visit.issue_later(&cache, 1, issued(3));
            visit.hint(&cache, 1, 4 * DAY_MS);
        } else {
            visit.issue(&cache, 1, &issued(3));
            visit.hint(&cache, 1, 4 * DAY_MS);
        }
        assert!((1..=3).all(|number| is_stored(&cache, number)), "there is room to spare");
        assert_eq!(newcomer(&cache, 1, 4, 5 * DAY_MS), Ok(1));
        let left: Vec<bool> = (1..=4).map(|number| is_stored(&cache, number)).collect();
        assert_eq!(left, [true, false, true, true]);
    }
}

/// Returns how far from its expectation a session was found.
fn error_ms(cache: &Cache, now_ms: u64, number: u64) -> Option<u64> {
    let before = cache.counters();
    assert!(cache.get(now_ms, &id(number), CONTEXT, &mut SecretBytes::default()).found);
    let Counters { predictions, prediction_error_ms, .. } = cache.counters();
    (predictions > before.predictions).then(|| prediction_error_ms - before.prediction_error_ms)
}

#[test]
fn a_hint_reaches_the_session_that_waits_or_the_one_stored() {
    let mut random = Random::new(5);
    for _ in 0..500 {
        let cache = cache_of(16);
        let interval_ms = 1 + random.of_any_size(31);
        let mut visit = Visit::default();
        let waiting = 1 + random.below(4);
        if random.once_in(3) {
            visit.issue(&cache, 0, &issued(waiting));
        } else {
            (1..=waiting).for_each(|number| visit.issue_later(&cache, 0, issued(number)));
            assert_eq!(cache.counters().stored, 0);
        }
        visit.hint(&cache, 0, interval_ms);
        let error = error_ms(&cache, interval_ms, waiting).expect("predicted");
        assert!(error <= interval_ms / 8 + 2 * TICK_MS, "{error} off {interval_ms}");
        for sibling in 1..waiting {
            assert!(!is_stored(&cache, sibling) || error_ms(&cache, 1, sibling).is_none());
        }
    }
}

#[test]
fn more_than_may_wait_are_stored_at_once() {
    let cache = cache_of(16);
    let mut visit = Visit::default();
    (1..=5).for_each(|number| visit.issue_later(&cache, 0, issued(number)));
    assert_eq!(cache.counters().stored, 4);
    visit.hint(&cache, 0, 1_000);
    assert_eq!(cache.counters().stored, 5);
    assert_eq!(error_ms(&cache, 1_000, 4), None, "retired by the fifth");
    assert!(error_ms(&cache, 1_000, 5).expect("predicted") <= 125 + TICK_MS);
}

#[test]
fn a_client_hello_read_twice_is_one_arrival() {
    let cache = cache_of(4);
    Visit::default().issue(&cache, 0, &issued(1));
    let (mut visit, mut value) = (Visit::default(), SecretBytes::default());
    assert!(visit.look_up(&cache, 1_000, &id(1), CONTEXT, &mut value));
    value.clear();
    assert!(visit.look_up(&cache, 1_004, &id(1), CONTEXT, &mut value));
    assert_eq!(*value, 1_u64.to_le_bytes());
    assert_eq!(cache.counters().hits, 1);
    let first = cache.look(1_004, &id(1), CONTEXT, &mut value).expect("there");
    assert_eq!(first.seen_ms, 1_000, "the first reading, not the second");
}

#[test]
fn forget_removes_all_sessions_of_the_visit_and_no_other() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let cache = cache_of(64);
        (1..=8).for_each(|number| Visit::default().issue(&cache, 0, &issued(number)));
        let (mut visit, mut touched) = (Visit::default(), BTreeSet::new());
        let presented = 1 + random.below(8);
        if random.once_in(2) {
            assert!(visit.look_up(&cache, 1, &id(presented), CONTEXT, &mut SecretBytes::default()));
            touched.insert(presented);
        }
        for number in 100..100 + random.below(8) {
            match random.below(4) {
                0 => visit.issue(&cache, 1, &issued(number)),
                _ => visit.issue_later(&cache, 1, issued(number)),
            }
            touched.insert(number);
            if random.once_in(6) {
                visit.hint(&cache, 1, random.below(DAY_MS));
            }
        }
        visit.forget(&cache);
        visit.finish(&cache, 2);
        assert!(touched.iter().all(|number| !is_stored(&cache, *number)), "seed {seed}");
        let others = (1..=8).filter(|number| !touched.contains(number));
        assert_eq!(
            others.filter(|number| is_stored(&cache, *number)).count() as u64,
            8 - touched.range(1..=8).count() as u64
        );
    }
}

/// Checks that a history from a ticket counts for the session stored next, as if seen here.
#[test]
fn a_recalled_history_predicts() {
    let mut elsewhere = Visit::default();
    (0..2).for_each(|_| elsewhere.recall(elsewhere.history(), Some(60_000)));
    let carried = History::from_bytes(elsewhere.history().to_bytes());
    let predictions = |away_ms: Option<u64>, history: History| {
        let cache = cache_of(4);
        let mut visit = Visit::default();
        visit.recall(history, away_ms);
        visit.issue(&cache, 0, &issued(1));
        let value = &mut SecretBytes::default();
        assert!(Visit::default().look_up(&cache, 60_000, &id(1), CONTEXT, value));
        let Counters { predictions, prediction_error_ms, .. } = cache.counters();
        (predictions, prediction_error_ms < 10_000)
    };
    assert_eq!(predictions(None, History::default()).0, 0, "nothing was known");
    assert_eq!(predictions(Some(60_000), History::default()), (1, true));
    assert_eq!(predictions(None, carried), (1, true));
    assert_eq!(carried.interval().map(|(_, agreed)| agreed), Some(true));
}

/// Checks a session whose client was seen elsewhere before this machine started: room is made at the
/// present time, not at that one.
#[test]
fn a_session_from_elsewhere_keeps_its_gap_and_finds_who_is_overdue() {
    let hints = Settings { prediction: Prediction::Hint, ..Settings::new(Capacity::Sessions(2)) };
    let made_ms = REACHES_BACK_MS + 60_000;
    let cache = Cache::new(&hints, [9; 16], made_ms).expect("settings make a cache");
    newcomer(&cache, made_ms, 1, DAY_MS).expect("there is room");
    newcomer(&cache, made_ms, 2, 10 * DAY_MS).expect("there is room");
    let (now_ms, gap_ms) = (made_ms + 2 * DAY_MS, 3 * DAY_MS);
    let fetched = NewSession {
        hint_ms: Some(15 * DAY_MS),
        seen_ms: Some(now_ms - gap_ms),
        ..NewSession::new(id(3), &[], u64::MAX, CONTEXT)
    };
    assert_eq!(cache.insert(now_ms, &fetched), Ok(Inserted { evicted: 1 }));
    assert!(!is_stored(&cache, 1) && is_stored(&cache, 2));
    let arrival = cache.get(now_ms, &id(3), CONTEXT, &mut SecretBytes::default());
    let (gap, _) = arrival.history.interval().expect("one gap");
    assert!(gap.as_ms().abs_diff(gap_ms) <= gap_ms / 8, "{gap:?}");
}
