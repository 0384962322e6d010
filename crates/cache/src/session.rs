//! The sessions that a cache is given, and its answers about them.

use std::fmt;

use crate::history::History;
use crate::id::{ContextTag, SessionId};
use crate::source::Source;

/// A session to be stored.
#[derive(Clone, Copy)]
pub struct NewSession<'a> {
    /// The id under which it will be looked up.
    pub id: SessionId,
    /// The serialised session.
    pub value: &'a [u8],
    /// The end of its lifetime on the cache's clock, rounded down to a second.
    pub expires_ms: u64,
    /// The session-id context it was made in.
    pub context: ContextTag,
    /// The client's history.
    pub history: History,
    /// The application's hint on when the client returns, in milliseconds from now.
    pub hint_ms: Option<u64>,
    /// True if the client is expected back with another session of the same connection.
    pub sibling: bool,
    /// The time its client was last seen, if the session comes from another machine because its
    /// client presents it now. A time further back than
    /// [`REACHES_BACK_MS`](crate::REACHES_BACK_MS) counts as that. The worth of its place is
    /// that of any client that comes now.
    pub seen_ms: Option<u64>,
    /// The source of its client.
    pub source: Source,
}

impl<'a> NewSession<'a> {
    /// Returns a session of a client of which nothing is known.
    pub fn new(id: SessionId, value: &'a [u8], expires_ms: u64, context: ContextTag) -> Self {
        let history = History::default();
        Self {
            id,
            value,
            expires_ms,
            context,
            history,
            hint_ms: None,
            sibling: false,
            seen_ms: None,
            source: Source::UNKNOWN,
        }
    }
}

impl fmt::Debug for NewSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, value, expires_ms, context, history, hint_ms, .. } = self;
        let Self { sibling, seen_ms, source, .. } = self;
        f.debug_struct("NewSession")
            .field("id", id)
            .field("value", &format_args!("{} bytes", value.len()))
            .field("expires_ms", expires_ms)
            .field("context", context)
            .field("history", history)
            .field("hint_ms", hint_ms)
            .field("sibling", sibling)
            .field("seen_ms", seen_ms)
            .field("source", source)
            .finish()
    }
}

/// The sessions that a full cache takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Those that are worth more than another one.
    IfWorth,
    /// All whose clients are expected back.
    Always,
}

/// The result of storing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The number of sessions evicted for it: at most one per block that the value needs.
    pub evicted: u32,
}

/// The result of looking up a session id that a client presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrival {
    /// True if the session was found: its value is in the caller's buffer.
    pub found: bool,
    /// The client's history, this visit included.
    pub history: History,
    /// True if the session was taken, and was certainly not taken before, whatever happened to the store. Only then may a
    /// server accept early data that comes with it.
    pub is_certain: bool,
}

/// The data stored with a session's value. Times are on the cache's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The end of its lifetime, rounded down to a second.
    pub expires_ms: u64,
    /// The client's history.
    pub history: History,
    /// The time its client was last seen.
    pub seen_ms: u64,
    /// The time its client is expected; `None` if it is not expected back. A client of which nothing is known is expected as
    /// [`Settings::prior_ms`](crate::Settings) says; under the policy `lru` every client is when it was last seen.
    pub returns_ms: Option<u64>,
}
