//! Sessions whose bytes follow from their number.

use rejoin_cache::{ContextTag, NewSession, SecretBytes, SessionId, SessionStore};
use rejoin_store::{Store, now_ms};

pub(crate) const CONTEXT: ContextTag = ContextTag(3);

pub(crate) fn id(number: u64) -> SessionId {
    SessionId::new(&number.to_le_bytes()).expect("eight bytes")
}

/// Returns a session without a value.
pub(crate) fn new(number: u64) -> NewSession<'static> {
    NewSession::new(id(number), &[], now_ms() + 1_000_000, CONTEXT)
}

/// Returns a value of one block, or of several.
fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number as usize % 60)
}

pub(crate) fn insert(store: &impl SessionStore, number: u64) -> bool {
    store.insert(now_ms(), &NewSession { value: &value(number), ..new(number) }).is_ok()
}

/// Returns true if the session is there. Panics if it differs from what was stored.
pub(crate) fn find(store: &Store, number: u64) -> bool {
    let mut found = SecretBytes::default();
    let is_there = store.cache().get(now_ms(), &id(number), CONTEXT, &mut found).found;
    assert!(!is_there || *found == *value(number), "another session's bytes");
    is_there
}
