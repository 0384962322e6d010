//! The sessions that a cache is given, and its answers about them.

use std::fmt;

use crate::history::History;
use crate::id::{ContextTag, SessionId};

/// A session to be stored.
#[derive(Clone, Copy)]
pub struct NewSession<'a> {
    /// Under what it will be looked up.
    pub id: SessionId,
    /// The serialised session.
    pub value: &'a [u8],
    /// When its lifetime is over, on the cache's clock, to the second below.
    pub expires_ms: u64,
    /// The session-id context it was made in.
    pub context: ContextTag,
    /// What is known of its client.
    pub history: History,
    /// The application's word on when the client comes back, in milliseconds from now.
    pub hint_ms: Option<u64>,
    /// Whether another session of the same connection is the one to expect back.
    pub sibling: bool,
    /// When its client was heard of last, where another machine had the session and the client comes for it
    /// now. What is older than [`REACHES_BACK_MS`](crate::REACHES_BACK_MS) counts as that. Its place is weighed as anybody's who comes now.
    pub seen_ms: Option<u64>,
}

impl fmt::Debug for NewSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, value, expires_ms, context, history, hint_ms, sibling, seen_ms } = self;
        f.debug_struct("NewSession")
            .field("id", id)
            .field("value", &format_args!("{} bytes", value.len()))
            .field("expires_ms", expires_ms)
            .field("context", context)
            .field("history", history)
            .field("hint_ms", hint_ms)
            .field("sibling", sibling)
            .field("seen_ms", seen_ms)
            .finish()
    }
}

/// A session was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// How many others had to go: at most one per block that the value needs.
    pub evicted: u32,
}

/// A client came with a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrival {
    /// Whether its session was found: its value is in the caller's buffer.
    pub found: bool,
    /// What is known of the client, this visit included.
    pub history: History,
}

/// What is kept of a session, beside its value. Times are of the cache's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// When its lifetime is over, to the second below.
    pub expires_ms: u64,
    /// What is known of its client.
    pub history: History,
    /// When its client was heard of last.
    pub seen_ms: u64,
    /// When its client is expected. `None`: not at all.
    pub returns_ms: Option<u64>,
}
