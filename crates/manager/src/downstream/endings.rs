//! The ends of connections, clean or truncated: a program reads an end of file in both cases, and asks here which
//! it was.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::clock::Clock;
use crate::protocol::{End, Token};

/// The open connections, and those that ended last.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    connections: HashMap<Token, Connection>,
    /// Each user's ended connections and when they ended, the oldest first.
    ended: HashMap<u32, VecDeque<(Token, u64)>>,
    all_ended: usize,
    /// The time until which a program may ask how its connection ended.
    asks_until_ms: u64,
}

#[derive(Debug)]
struct Connection {
    uid: u32,
    end: End,
    /// True if its program is expected to ask how it ended, and has not.
    asks: bool,
}

impl Endings {
    const MOST: usize = 4_096;
    const KEPT_MS: u64 = 10 * 60 * 1_000;
    /// The time in which programs ask how a connection ended.
    const ASKED_MS: u64 = 5_000;

    /// Registers a user's connection, which is open until the returned value is dropped. `asks`: its program is expected
    /// to ask how it ended.
    pub(crate) fn open<'a>(
        &'a self,
        token: Token,
        (uid, asks): (u32, bool),
        clock: &'a Clock,
    ) -> OpenConnection<'a> {
        let opened = Connection { uid, end: End::Open, asks };
        self.with(|inner| inner.connections.insert(token, opened));
        OpenConnection { endings: self, clock, token, end: End::Truncated }
    }

    fn end(&self, token: Token, end: End, now_ms: u64) {
        self.with(|inner| {
            let Some(known) = inner.connections.get_mut(&token) else { return };
            known.end = end;
            let uid = known.uid;
            // Any other end is what a program assumes that gets no answer.
            if known.asks && end == End::Clean {
                inner.asks_until_ms = now_ms + Self::ASKED_MS;
            }
            inner.ended.entry(uid).or_default().push_back((token, now_ms));
            inner.all_ended += 1;
            inner.forget_old(uid, now_ms);
            if inner.all_ended > Self::MOST {
                inner.forget_of_the_most();
            }
        });
    }

    /// Returns how a connection ended. Connections of other users are unknown.
    pub(crate) fn of(&self, token: Token, uid: u32, now_ms: u64) -> End {
        self.with(|inner| {
            inner.forget_old(uid, now_ms);
            let known = inner.connections.get_mut(&token).filter(|known| known.uid == uid);
            let Some(known) = known else { return End::Unknown };
            known.asks = false;
            known.end
        })
    }

    /// Returns true if a program may still ask how its connection ended.
    pub(crate) fn awaits_questions(&self, now_ms: u64) -> bool {
        self.with(|inner| {
            let is_asked = |known: &Connection| known.asks && known.end == End::Clean;
            now_ms < inner.asks_until_ms && inner.connections.values().any(is_asked)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An open connection. Dropping it records the end: truncated, unless [`ended`](Self::ended) said otherwise.
#[derive(Debug)]
pub(crate) struct OpenConnection<'a> {
    endings: &'a Endings,
    clock: &'a Clock,
    token: Token,
    end: End,
}

impl OpenConnection<'_> {
    /// Records how the server's direction ended. The program may still send.
    pub(crate) fn server_ends(&self, end: End) {
        self.endings.with(|inner| {
            if let Some(known) = inner.connections.get_mut(&self.token) {
                known.end = end;
            }
        });
    }

    /// Ends the connection.
    pub(crate) fn ended(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.endings.end(self.token, self.end, self.clock.now_ms());
    }
}

impl Inner {
    fn forget_old(&mut self, uid: u32, now_ms: u64) {
        let is_old = |(_, ended_ms): &(Token, u64)| now_ms >= ended_ms + Endings::KEPT_MS;
        while self.ended.get(&uid).and_then(VecDeque::front).is_some_and(is_old) {
            self.forget_first(uid);
        }
    }

    /// Forgets the oldest entry of the user with the most entries.
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
        let (endings, clock) = (Endings::default(), Clock::default());
        let token = |of: u16| Token([of.to_be_bytes(); 8].concat().try_into().unwrap());
        let standing = endings.open(token(1), (7, true), &clock);
        assert_eq!(endings.of(token(1), 7, 0), End::Open);
        standing.server_ends(End::Clean);
        assert_eq!(endings.of(token(1), 7, 0), End::Clean);
        drop(standing);
        assert_eq!(endings.of(token(1), 7, 0), End::Truncated);
        assert_eq!(endings.of(token(1), 8, 0), End::Unknown);
        let late_ms = clock.now_ms() + Endings::KEPT_MS;
        assert_eq!(endings.of(token(1), 7, late_ms), End::Unknown);
        for other in 2..Endings::MOST as u16 + 10 {
            endings.open(token(other), (7, true), &clock).ended(End::Clean);
        }
        assert_eq!(endings.of(token(2), 7, 1), End::Unknown);
        assert_eq!(endings.of(token(100), 7, 1), End::Clean);
        endings.with(|inner| assert_eq!(inner.connections.len(), Endings::MOST));
    }

    #[test]
    fn questions_are_awaited_for_a_while_and_only_of_programs_that_ask() {
        let (endings, clock) = (Endings::default(), Clock::default());
        let now_ms = clock.now_ms();
        endings.open(Token([1; 16]), (7, false), &clock).ended(End::Clean);
        endings.open(Token([2; 16]), (7, true), &clock).ended(End::Truncated);
        assert!(!endings.awaits_questions(now_ms));
        endings.open(Token([3; 16]), (7, true), &clock).ended(End::Clean);
        assert!(endings.awaits_questions(now_ms));
        assert!(!endings.awaits_questions(clock.now_ms() + Endings::ASKED_MS));
        endings.of(Token([3; 16]), 7, now_ms);
        assert!(!endings.awaits_questions(now_ms));
    }

    #[test]
    fn whoever_has_most_ends_makes_room() {
        let (endings, clock) = (Endings::default(), Clock::default());
        let token = |of: u16| Token([of.to_be_bytes(); 8].concat().try_into().unwrap());
        for number in 0..3 * Endings::MOST as u16 {
            let uid = if number < 10 { 7 } else { 8 };
            endings.open(token(number), (uid, true), &clock).ended(End::Clean);
        }
        assert_eq!(endings.of(token(0), 7, 1), End::Clean);
        assert_eq!(endings.of(token(10), 8, 1), End::Unknown);
        endings.with(|inner| assert_eq!(inner.connections.len(), Endings::MOST));
    }
}
