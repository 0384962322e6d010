//! The occupancy of a cache that is too large for the naive model.

use rejoin_cache::{Cache, Capacity, ContextTag, NewSession, Occupancy, SessionId, Settings};

const SECOND_MS: u64 = 1_000;

fn insert(cache: &Cache, client: u64, hint_ms: Option<u64>, sibling: bool) {
    let id = SessionId::new(&client.to_le_bytes()).expect("eight bytes");
    let new = NewSession::new(id, &[1; 100], 1 << 40, ContextTag(1));
    let new = NewSession { hint_ms, sibling, ..new };
    cache.insert(SECOND_MS, &new).expect("there is room");
}

#[test]
fn every_session_is_counted_once_however_many_turns_it_takes() {
    let settings = Settings { shards: Some(2), ..Settings::new(Capacity::Sessions(40_000)) };
    let cache = Cache::new(&settings, [7; 16], 0).expect("settings make a cache");
    assert_eq!(cache.occupancy(SECOND_MS), Occupancy::default());
    let hints_ms = [500, 5_000, 50_000, 500_000, 3_000_000, 30_000_000];
    for client in 0..24_000 {
        let hint_ms = hints_ms.get(client as usize % 8).copied();
        insert(&cache, client, hint_ms, client % 8 == 7);
    }
    let each = 3_000;
    let expected =
        Occupancy { overdue: 0, within: [each; 5], later: each, unknown: each, never: each };
    assert_eq!(cache.occupancy(SECOND_MS), expected);
    let minute_later = Occupancy { overdue: 3 * each, within: [0, 0, 0, each, each], ..expected };
    assert_eq!(cache.occupancy(61 * SECOND_MS), minute_later);
}
