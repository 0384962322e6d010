//! Evictions by the worth of places: mostly a cache of one session, and a newcomer.

use rejoin_cache::{Cache, Capacity, ContextTag, History, NewSession, Prediction, Refusal};
use rejoin_cache::{SecretBytes, SessionId, Settings, TICK_MS};

const CONTEXT: ContextTag = ContextTag(0);
const SECOND_MS: u64 = 1_000;
const HOUR_MS: u64 = 3_600 * SECOND_MS;
const TEN_SECONDS_MS: u64 = 10 * SECOND_MS;
/// The age at which a place that is kept for a client of ten seconds is worth most.
const NEARLY_TEN_SECONDS_MS: u64 = 9_900;

fn cache_of(sessions: u64, prediction: Prediction) -> Cache {
    let settings = Settings { prediction, ..Settings::new(Capacity::Sessions(sessions)) };
    Cache::new(&settings, [4; 16], 0).expect("settings make a cache")
}

fn id(client: u64) -> SessionId {
    SessionId::new(&client.to_be_bytes()).expect("eight bytes")
}

fn is_stored(cache: &Cache, client: u64) -> bool {
    cache.peek(0, &id(client), CONTEXT, &mut SecretBytes::default())
}

fn insert(
    cache: &Cache,
    now_ms: u64,
    client: u64,
    history: History,
    hint_ms: Option<u64>,
) -> Result<u32, Refusal> {
    let new =
        NewSession { history, hint_ms, ..NewSession::new(id(client), &[], u64::MAX, CONTEXT) };
    cache.insert(now_ms, &new).map(|inserted| inserted.evicted)
}

/// Makes the history of a client that came three times, with these gaps between.
fn history(gaps_ms: [u64; 2]) -> History {
    let cache = cache_of(1, Prediction::Learned);
    assert_eq!(insert(&cache, 0, 1, History::default(), None), Ok(0));
    let visit = |now_ms| cache.get(now_ms, &id(1), CONTEXT, &mut SecretBytes::default()).history;
    visit(gaps_ms[0]);
    visit(gaps_ms[0] + gaps_ms[1])
}

fn habit(interval_ms: u64) -> History {
    history([interval_ms; 2])
}

#[test]
fn who_is_overdue_goes_before_who_is_about_to_return() {
    let cache = cache_of(2, Prediction::Learned);
    assert_eq!(insert(&cache, 0, 1, habit(TEN_SECONDS_MS), None), Ok(0));
    assert_eq!(insert(&cache, 0, 2, habit(60 * SECOND_MS), None), Ok(0));
    assert_eq!(insert(&cache, 55 * SECOND_MS, 3, History::default(), None), Ok(1));
    assert!(!is_stored(&cache, 1) && is_stored(&cache, 2));
    assert_eq!(cache.counters().evicted_overdue, 1);
}

#[test]
fn who_has_long_to_wait_goes_though_not_overdue() {
    let cache = cache_of(1, Prediction::Learned);
    assert_eq!(insert(&cache, 0, 1, habit(HOUR_MS), None), Ok(0));
    assert_eq!(insert(&cache, SECOND_MS, 2, habit(TEN_SECONDS_MS), None), Ok(1));
    assert_eq!(cache.counters().evicted_latest, 1);
    let before = insert(&cache, 2 * SECOND_MS, 3, habit(HOUR_MS), None);
    assert_eq!(before, Err(Refusal::ReturnsLater));
}

#[test]
fn nobody_buys_a_place_by_claiming_to_be_back_sooner_than_ever() {
    let cache = cache_of(1, Prediction::Both);
    assert_eq!(insert(&cache, 0, 1, habit(TEN_SECONDS_MS), Some(TEN_SECONDS_MS)), Ok(0));
    let (slow, claimed) = (history([90 * SECOND_MS, 60 * SECOND_MS]), Some(100));
    let refused = Err(Refusal::ReturnsLater);
    assert_eq!(insert(&cache, NEARLY_TEN_SECONDS_MS, 2, slow, claimed), refused);
    let unknown = History::default();
    assert_eq!(
        insert(&cache, NEARLY_TEN_SECONDS_MS, 3, unknown, claimed),
        Ok(1),
        "nothing says no"
    );
}

#[test]
fn who_has_kept_its_word_is_worth_more_than_who_gives_it() {
    let cache = cache_of(2, Prediction::Both);
    assert_eq!(insert(&cache, 0, 1, habit(TEN_SECONDS_MS), Some(TEN_SECONDS_MS)), Ok(0));
    assert_eq!(insert(&cache, 0, 2, History::default(), Some(TEN_SECONDS_MS)), Ok(0));
    assert_eq!(insert(&cache, NEARLY_TEN_SECONDS_MS, 3, History::default(), Some(100)), Ok(1));
    assert!(is_stored(&cache, 1) && !is_stored(&cache, 2));
}

/// Plays thirty clients that come every ten seconds, as they announce, in a cache with room for
/// thirty. In between come two hundred that announce the same and never return.
#[test]
fn of_claims_that_nobody_keeps_the_cache_learns() {
    let cache = cache_of(30, Prediction::Both);
    let (mut hits, mut visits) = (0, 0);
    for step in 0..200 * 60 {
        let now_ms = step * 50;
        let _ = insert(&cache, now_ms, 1_000 + step, History::default(), Some(TEN_SECONDS_MS));
        if step % 200 < 30 {
            let client = step % 200;
            let arrival = cache.get(now_ms, &id(client), CONTEXT, &mut SecretBytes::default());
            if arrival.found {
                cache.hint(now_ms, &id(client), TEN_SECONDS_MS);
            } else {
                let _ = insert(&cache, now_ms, client, arrival.history, Some(TEN_SECONDS_MS));
            }
            hits += u64::from(arrival.found && step >= 200 * 30);
            visits += u64::from(step >= 200 * 30);
        }
    }
    assert!(hits * 10 > visits * 9, "{hits} of {visits}");
}

#[test]
fn a_clock_that_steps_back_makes_room_for_others() {
    let cache = cache_of(1, Prediction::Both);
    assert_eq!(insert(&cache, HOUR_MS, 1, History::default(), Some(TEN_SECONDS_MS)), Ok(0));
    assert_eq!(insert(&cache, 0, 2, History::default(), Some(TEN_SECONDS_MS)), Ok(1));
}

#[test]
fn a_client_evicted_before_the_clock_stepped_back_has_been_away_for_no_time() {
    let cache = cache_of(1, Prediction::Learned);
    assert_eq!(insert(&cache, HOUR_MS, 1, habit(TEN_SECONDS_MS), None), Ok(0));
    assert!(insert(&cache, HOUR_MS, 2, History::default(), None).is_err());
    let back = cache.get(HOUR_MS - SECOND_MS, &id(2), CONTEXT, &mut SecretBytes::default());
    let gap = back.history.interval().map(|(gap, _)| gap.as_ms());
    assert_eq!(gap, Some(TICK_MS), "the shortest there is");
}

#[test]
fn a_client_evicted_after_days_is_not_taken_for_one_just_seen() {
    let cache = cache_of(1, Prediction::Learned);
    const FOUR_DAYS_MS: u64 = 96 * HOUR_MS;
    assert_eq!(insert(&cache, HOUR_MS, 1, History::default(), None), Ok(0));
    assert_eq!(insert(&cache, HOUR_MS + FOUR_DAYS_MS, 2, habit(TEN_SECONDS_MS), None), Ok(1));
    let now_ms = HOUR_MS + FOUR_DAYS_MS;
    let back = cache.get(now_ms, &id(1), CONTEXT, &mut SecretBytes::default());
    assert_eq!((back.history, cache.counters().wanted_after_eviction), (History::default(), 0));
}

/// Plays a client that returns after ten minutes, as it announces. Its session expires after five.
#[test]
fn of_sessions_that_are_over_when_they_are_wanted_the_cache_learns() {
    const LIFETIME_MS: u64 = 300 * SECOND_MS;
    let cache = cache_of(1, Prediction::Both);
    let mut now_ms = 0;
    for _ in 0..300 {
        let new = NewSession {
            hint_ms: Some(2 * LIFETIME_MS),
            ..NewSession::new(id(1), &[], now_ms + LIFETIME_MS, CONTEXT)
        };
        assert_eq!(cache.insert(now_ms, &new).map(|inserted| inserted.evicted), Ok(0));
        now_ms += 2 * LIFETIME_MS;
        assert!(!cache.get(now_ms, &id(1), CONTEXT, &mut SecretBytes::default()).found);
    }
    assert_eq!(insert(&cache, now_ms, 1, History::default(), Some(2 * LIFETIME_MS)), Ok(0));
    let nearly_due_ms = now_ms + 2 * LIFETIME_MS - SECOND_MS;
    assert_eq!(insert(&cache, nearly_due_ms, 2, History::default(), None), Ok(1));
}

/// Where a cache is in front of a larger one, newcomers go through it.
#[test]
fn who_is_admitted_has_a_place_whatever_it_is_worth_and_keeps_it_for_a_while() {
    for prediction in [Prediction::Learned, Prediction::Hint] {
        let cache = cache_of(100, prediction);
        let new = |client: u64| NewSession {
            history: habit(HOUR_MS),
            ..NewSession::new(id(client), &[], u64::MAX, CONTEXT)
        };
        for client in 0..100 {
            assert_eq!(insert(&cache, client, client, habit(TEN_SECONDS_MS), Some(10_000)), Ok(0));
        }
        assert_eq!(cache.insert(200, &new(100)), Err(Refusal::ReturnsLater), "{prediction:?}");
        for client in 100..1_000 {
            let admitted = cache.admit(100 + client, &new(client));
            assert_eq!(admitted.map(|inserted| inserted.evicted), Ok(1), "{prediction:?}");
            let last_few = client.saturating_sub(10).max(100)..=client;
            assert!(last_few.clone().all(|client| is_stored(&cache, client)), "{last_few:?}");
        }
        let sibling = NewSession { sibling: true, ..new(2_000) };
        assert_eq!(cache.admit(1_200, &sibling), Err(Refusal::ReturnsLater));
        assert_eq!(cache.counters().sessions, 100);
    }
}
