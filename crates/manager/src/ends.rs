//! How connections ended: a program reads an end of file either way, and asks here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::clock::Clock;
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
    /// Each user's that ended, and when, the oldest first.
    ended: HashMap<u32, VecDeque<(Token, u64)>>,
    all_ended: usize,
}

impl Ends {
    const MOST: usize = 4_096;
    const KEPT_MS: u64 = 10 * 60 * 1_000;

    /// A user's connection stands, until what this returns is dropped.
    pub(crate) fn open<'a>(&'a self, token: Token, uid: u32, clock: &'a Clock) -> Standing<'a> {
        self.with(|inner| inner.connections.insert(token, (uid, End::Open)));
        Standing { ends: self, clock, token, end: End::Truncated }
    }

    fn end(&self, token: Token, end: End, now_ms: u64) {
        self.with(|inner| {
            let Some((uid, known)) = inner.connections.get_mut(&token) else { return };
            let uid = *uid;
            *known = end;
            inner.ended.entry(uid).or_default().push_back((token, now_ms));
            inner.all_ended += 1;
            inner.forget_old(uid, now_ms);
            if inner.all_ended > Self::MOST {
                inner.forget_of_the_most();
            }
        });
    }

    /// Of the same user's connections only.
    pub(crate) fn of(&self, token: Token, uid: u32, now_ms: u64) -> End {
        self.with(|inner| {
            inner.forget_old(uid, now_ms);
            let known = inner.connections.get(&token);
            known.filter(|(owner, _)| *owner == uid).map_or(End::Unknown, |(_, end)| *end)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection that stands. When this is dropped it has ended: truncated, unless something else
/// was said.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    ends: &'a Ends,
    clock: &'a Clock,
    token: Token,
    end: End,
}

impl Standing<'_> {
    /// The server's direction has ended so; the program may still send.
    pub(crate) fn server_ends(&self, end: End) {
        self.ends.with(|inner| {
            if let Some((_, known)) = inner.connections.get_mut(&self.token) {
                *known = end;
            }
        });
    }

    /// The connection is over.
    pub(crate) fn ends(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.ends.end(self.token, self.end, self.clock.now_ms());
    }
}

impl Inner {
    fn forget_old(&mut self, uid: u32, now_ms: u64) {
        let is_old = |(_, ended_ms): &(Token, u64)| now_ms >= ended_ms + Ends::KEPT_MS;
        while self.ended.get(&uid).and_then(VecDeque::front).is_some_and(is_old) {
            self.forget_first(uid);
        }
    }

    /// Whoever has most makes room.
    fn forget_of_the_most(&mut self) {
        let most = self.ended.iter().max_by_key(|(_, ended)| ended.len());
        if let Some(uid) = most.map(|(uid, _)| *uid) {
            self.forget_first(uid);
        }
    }

    fn forget_first(&mut self, uid: u32) {
        let Some(ended) = self.ended.get_mut(&uid) else { return };
        if let Some((token, _)) = ended.pop_front() {
            self.connections.remove(&token);
            self.all_ended -= 1;
        }
        if ended.is_empty() {
            self.ended.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_its_users_and_is_forgotten() {
        let (ends, clock) = (Ends::default(), Clock::default());
        let token = |of: u16| Token([of.to_be_bytes(); 8].concat().try_into().unwrap());
        let standing = ends.open(token(1), 7, &clock);
        assert_eq!(ends.of(token(1), 7, 0), End::Open);
        standing.server_ends(End::Clean);
        assert_eq!(ends.of(token(1), 7, 0), End::Clean);
        drop(standing);
        assert_eq!(ends.of(token(1), 7, 0), End::Truncated);
        assert_eq!(ends.of(token(1), 8, 0), End::Unknown);
        let late_ms = clock.now_ms() + Ends::KEPT_MS;
        assert_eq!(ends.of(token(1), 7, late_ms), End::Unknown);
        for other in 2..Ends::MOST as u16 + 10 {
            ends.open(token(other), 7, &clock).ends(End::Clean);
        }
        assert_eq!(ends.of(token(2), 7, 1), End::Unknown);
        assert_eq!(ends.of(token(100), 7, 1), End::Clean);
        ends.with(|inner| assert_eq!(inner.connections.len(), Ends::MOST));
    }

    #[test]
    fn whoever_has_most_ends_makes_room() {
        let (ends, clock) = (Ends::default(), Clock::default());
        let token = |of: u16| Token([of.to_be_bytes(); 8].concat().try_into().unwrap());
        for number in 0..3 * Ends::MOST as u16 {
            let uid = if number < 10 { 7 } else { 8 };
            ends.open(token(number), uid, &clock).ends(End::Clean);
        }
        assert_eq!(ends.of(token(0), 7, 1), End::Clean);
        assert_eq!(ends.of(token(10), 8, 1), End::Unknown);
        ends.with(|inner| assert_eq!(inner.connections.len(), Ends::MOST));
    }
}
