//! Ids from the wire: parsed or refused, and recognised only when sealed.

use rejoin_cache::{ContextTag, IdSeal, SessionId};

use crate::structured;

pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = structured::<([u8; 16], Vec<u8>)>(bytes) else { return };
    let (key, bytes) = input;
    let seal = IdSeal::new(key);
    let _ = ContextTag::of(&bytes, &key);
    let Ok(id) = SessionId::new(&bytes) else {
        assert!(bytes.is_empty() || bytes.len() > SessionId::LONGEST);
        return;
    };
    assert_eq!(id.as_bytes(), bytes);
    let _ = format!("{id:?}");
    let sealed =
        bytes.first_chunk::<{ IdSeal::RANDOM }>().map(|random| seal.seal(b"one", random, None));
    assert!(sealed.is_none_or(|sealed| seal.recognises(b"one", &sealed)));
    let is_ours = seal.recognises(b"one", &id);
    assert!(!is_ours || !seal.recognises(b"two", &id));
    let _ = seal.carried(b"one", &id, 0);
}
