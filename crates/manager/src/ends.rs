//! How connections ended: a program reads an end of file either way, and asks here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::protocol::{End, Token};

/// The connections that stand, and the last that ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whose each is, and how it ended.
    connections: HashMap<Token, (u32, End)>,
    /// Those that ended, and when, the oldest first.
    ended: VecDeque<(Token, u64)>,
}

impl Ends {
    const MOST: usize = 4_096;
    const KEPT_MS: u64 = 10 * 60 * 1_000;

    pub(crate) fn open(&self, token: Token, uid: u32) {
        self.with(|inner| inner.connections.insert(token, (uid, End::Open)));
    }

    /// The server has said that this was all; the program may still send.
    pub(crate) fn server_is_done(&self, token: Token) {
        self.with(|inner| {
            if let Some((_, known)) = inner.connections.get_mut(&token) {
                *known = End::Clean;
            }
        });
    }

    /// The connection is over.
    pub(crate) fn end(&self, token: Token, end: End, now_ms: u64) {
        self.with(|inner| {
            if let Some((_, known)) = inner.connections.get_mut(&token) {
                *known = end;
                inner.ended.push_back((token, now_ms));
            }
            inner.forget(now_ms);
        });
    }

    /// Of the same user's connections only.
    pub(crate) fn of(&self, token: Token, uid: u32, now_ms: u64) -> End {
        self.with(|inner| {
            inner.forget(now_ms);
            let known = inner.connections.get(&token);
            known.filter(|(owner, _)| *owner == uid).map_or(End::Unknown, |(_, end)| *end)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn forget(&mut self, now_ms: u64) {
        while let Some((token, ended_ms)) = self.ended.front() {
            if self.ended.len() <= Ends::MOST && now_ms < ended_ms + Ends::KEPT_MS {
                break;
            }
            self.connections.remove(token);
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_its_users_and_is_forgotten() {
        let ends = Ends::default();
        let token = |of: u16| Token([of.to_be_bytes(); 8].concat().try_into().unwrap());
        ends.open(token(1), 7);
        assert_eq!(ends.of(token(1), 7, 0), End::Open);
        ends.end(token(1), End::Truncated, 0);
        assert_eq!(ends.of(token(1), 7, 0), End::Truncated);
        assert_eq!(ends.of(token(1), 8, 0), End::Unknown);
        assert_eq!(ends.of(token(1), 7, Ends::KEPT_MS), End::Unknown);
        for other in 2..Ends::MOST as u16 + 10 {
            ends.open(token(other), 7);
            ends.end(token(other), End::Clean, 1);
        }
        assert_eq!(ends.of(token(2), 7, 1), End::Unknown);
        assert_eq!(ends.of(token(100), 7, 1), End::Clean);
        ends.with(|inner| assert_eq!(inner.connections.len(), Ends::MOST));
    }
}
