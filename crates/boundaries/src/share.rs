//! The messages of programs that use a share.

use rejoin_outlet::messages::{First, LONGEST_BYTES, Refusal, Request};

/// Parses the bytes as a first message and as a request. A refusal is one short line, and what is accepted is bounded.
pub(crate) fn check(bytes: &[u8]) {
    let short = |refusal: &Refusal| {
        let text = refusal.to_string();
        assert!(text.len() < 200 + bytes.len(), "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    };
    match First::parse(bytes) {
        Ok(First::Keys { context, .. } | First::Sessions { context }) => {
            assert!((1..=255).contains(&context.as_str().len()));
        }
        Err(refusal) => short(&refusal),
    }
    match Request::parse(bytes) {
        Ok(Request::Put(put)) => {
            assert!(put.session.len() <= LONGEST_BYTES as usize);
            assert!((1_000..=604_800_000).contains(&put.lifetime_ms));
        }
        Ok(_) => {}
        Err(refusal) => short(&refusal),
    }
}
