//! Connections one after the other on a small cache: a session that is found is the one that was issued, a session that
//! was taken is gone, and nothing is left of a connection that is forgotten.

use arbitrary::Arbitrary;
use rejoin_cache::{Cache, ContextTag, Issued, SecretBytes, SessionId, Visit};

use super::input::{Small, Step};
use crate::structured;

/// An event on a connection. A session is identified by the number of sessions issued since.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Event {
    LookUp(u8),
    Take(u8),
    Issue,
    IssueLater,
    Hint(u32),
    Finish,
    Forget,
    Next,
}

/// The number of sessions found or issued that `forget` remembers at least.
const REMEMBERED: usize = 8;

pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = structured::<(Small, Vec<(Step, Event)>)>(bytes) else { return };
    let (small, events) = input;
    let cache = Cache::new(&small.settings(), small.hash_key, 0).expect("settings make a cache");
    let (mut visit, mut own) = (Visit::default(), Vec::new());
    let (mut now_ms, mut last) = (0, 0_u32);
    for (step, event) in events {
        now_ms = step.after(now_ms);
        let mut value = SecretBytes::default();
        match event {
            Event::LookUp(since) => {
                let number = last.saturating_sub(since.into());
                let found = visit.look_up(&cache, now_ms, &id(number), CONTEXT, &mut value);
                assert!(!found || *value == value_of(number));
                own.extend(found.then_some(number));
            }
            Event::Take(since) => {
                let number = last.saturating_sub(since.into());
                let found = visit.take(&cache, now_ms, &id(number), CONTEXT, &mut value);
                assert!(!found || *value == value_of(number));
                assert!(!is_stored(&cache, number) || !found);
                own.extend(found.then_some(number));
            }
            Event::Issue => {
                last += 1;
                visit.issue(&cache, now_ms, &issued(last, now_ms));
                own.push(last);
            }
            Event::IssueLater => {
                last += 1;
                visit.issue_later(&cache, now_ms, issued(last, now_ms));
                own.push(last);
            }
            Event::Hint(interval_ms) => visit.hint(&cache, now_ms, interval_ms.into()),
            Event::Finish => visit.finish(&cache, now_ms),
            Event::Forget => {
                visit.forget(&cache);
                let left = own.iter().any(|number| is_stored(&cache, *number));
                assert!(own.len() > REMEMBERED || !left, "{own:?}");
                own.clear();
            }
            Event::Next => {
                visit = Visit::default();
                own.clear();
            }
        }
        assert!(cache.counters().sessions <= cache.capacity_sessions());
    }
}

const CONTEXT: ContextTag = ContextTag(1);

fn id(number: u32) -> SessionId {
    SessionId::new(&number.to_le_bytes()).expect("four bytes")
}

fn value_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(number as usize % 20)
}

fn issued(number: u32, now_ms: u64) -> Issued {
    let value = SecretBytes::from(value_of(number));
    Issued { id: id(number), value, expires_ms: now_ms + 100_000, context: CONTEXT }
}

fn is_stored(cache: &Cache, number: u32) -> bool {
    cache.peek(0, &id(number), CONTEXT, &mut SecretBytes::default())
}
