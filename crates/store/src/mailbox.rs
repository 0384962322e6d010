//! The mailbox, through which servers tell a cluster's agent on the same machine of their sessions, and ask it for
//! sessions that they miss.
//!
//! It lies in the cache's file: letters in a ring under a lock, and a desk of atomics where askers wait. A
//! letter holds an id and never a session: the agent finds sessions in the cache. Servers load no network
//! client and hold no password. An agent that is gone, stopped or slow costs them only the sessions of the cluster.
//!
//! **Patience.** An asker waits for [`Mailbox::MOST_WAIT`] at most, and never longer than the agent sets or, if the agent
//! wants that, than answers usually take. The desk closes when three askers in a row waited in vain until the deadline, for a second at first and half a minute at last. It also closes
//! when the agent reports that Valkey does not answer, or shows no sign of life. An absent id is not asked for
//! again for a few seconds.
//!
//! Any process that has the cache may write here, so nothing is trusted: letters are checked, indices are
//! bounded, and the sessions that the agent carries are sealed against processes that can only write
//! (`rejoin_cache::IdSeal`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_cache::{ContextTag, Region, SessionId};
use rustix::thread::futex;

use crate::clock::now_ms;
use crate::desk::{ASKED, Asker, Desk, FETCHED, NOT_THERE, count};
use crate::division::Division;
use crate::letters::{self, Letter, Says, Written, parts};
use crate::mapping::Mapping;
use crate::region::SharedRegion;

/// The mailbox of a cluster's cache.
#[derive(Debug, Clone)]
pub struct Mailbox {
    mapping: Arc<Mapping>,
    letters: SharedRegion,
    desk: usize,
    /// The last sign of life that this process gave as the agent.
    own_beat_ms: Arc<AtomicU64>,
}

/// The state of a mailbox, with counts of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxFacts {
    /// True if the agent lives, and Valkey answers it.
    pub is_linked: bool,
    /// Sessions asked for.
    pub asked: u64,
    /// Sessions asked for and fetched in time.
    pub fetched: u64,
    /// Sessions asked for without an answer in time.
    pub late: u64,
    /// Sessions not asked for, because the desk was closed.
    pub skipped: u64,
    /// Letters that found no room.
    pub dropped: u64,
}

/// The fate of a session that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is not in the cache.
    Missing,
    /// It is not in the cache, and the cluster did not say that it has none: it was not asked, or did not answer in time.
    Unanswered,
    /// It is in the cache now.
    Fetched,
    /// It is in the cache now, was taken from the cluster, and certainly never before.
    Certain,
}

impl Asked {
    /// Returns true if the session is in the cache now.
    pub fn is_there(self) -> bool {
        matches!(self, Self::Fetched | Self::Certain)
    }
}

impl Mailbox {
    /// The longest that an asker waits, whatever the agent sets.
    pub const MOST_WAIT: Duration = Desk::MOST_WAIT;
    /// The longest that an asker waits if the agent sets nothing.
    pub const DEADLINE: Duration = Desk::DEADLINE;

    /// Returns the mailbox, or `None` if the cache is not a cluster's.
    pub(crate) fn new(mapping: &Arc<Mapping>, division: &Division) -> Option<Self> {
        let place = division.mailbox.as_ref()?;
        let letters = SharedRegion::at(mapping, place.lock, place.letters, letters::LINES);
        let own_beat_ms = Arc::default();
        Some(Self { mapping: Arc::clone(mapping), letters, desk: place.desk, own_beat_ms })
    }

    pub(crate) fn format(&self) {
        self.letters.lock().initialise();
    }

    pub(crate) fn wipe(&self) {
        self.letters.with(|lines, _| lines.fill(bytemuck::Zeroable::zeroed()));
    }

    fn desk(&self) -> &Desk {
        self.mapping.notice();
        self.mapping.at(self.desk)
    }

    /// Tells the agent of an event. Does nothing if there is no agent, or no room.
    pub fn tell(&self, id: &SessionId, context: ContextTag, says: Says) {
        let desk = self.desk();
        if desk.is_agent_there(now_ms()) && !self.post(desk, &Letter { id: *id, context, says }) {
            count(&desk.dropped);
        }
    }

    /// Asks the agent to fetch a session from the cluster, and waits for the answer. `take` asks by [`Says::Taken`].
    pub fn ask(&self, id: &SessionId, context: ContextTag, take: bool) -> Asked {
        let (desk, now_ms) = (self.desk(), now_ms());
        if !desk.is_open(now_ms) {
            count(&desk.skipped);
            return Asked::Unanswered;
        }
        if desk.is_absent(id, now_ms) {
            return Asked::Missing;
        }
        let Some(asker) = desk.sit_down(now_ms) else {
            count(&desk.skipped);
            return Asked::Unanswered;
        };
        let says = if take { Says::Taken(asker) } else { Says::Wanted(asker) };
        let posted = self.post(desk, &Letter { id: *id, context, says });
        count(if posted { &desk.asked } else { &desk.dropped });
        let answer =
            if posted { desk.wait(asker, take, now_ms, || self.mapping.notice()) } else { ASKED };
        let is_certain = desk.is_certain(asker);
        desk.stand_up(asker);
        match answer {
            FETCHED => count(&desk.fetched),
            NOT_THERE => desk.note_absent(id, now_ms),
            _ => {}
        }
        match (answer, is_certain) {
            (FETCHED, true) => Asked::Certain,
            (FETCHED, false) => Asked::Fetched,
            (NOT_THERE, _) => Asked::Missing,
            _ => Asked::Unanswered,
        }
    }

    /// Receives the letters since the last call, in order, for the one agent. Waits for up to `most_wait` until there
    /// is one. `is_linked` is true if Valkey answers; otherwise no server asks.
    pub fn receive(&self, letters: &mut Vec<Letter>, most_wait: Duration, is_linked: bool) {
        let desk = self.desk();
        if desk.is_linked.swap(u32::from(is_linked), Ordering::Relaxed) == 0 && is_linked {
            desk.reopen();
        }
        let now_ms = now_ms();
        desk.beat_ms.store(now_ms, Ordering::Relaxed);
        self.own_beat_ms.store(now_ms, Ordering::Relaxed);
        let bell = desk.bell.load(Ordering::Acquire);
        self.empty(letters);
        if letters.is_empty() {
            desk.is_agent_asleep.store(1, Ordering::SeqCst);
            let until = most_wait.min(Duration::from_millis(Desk::LIVES_FOR_MS / 4));
            let until = until.try_into().ok();
            // The reason for the end of the wait does not matter.
            let _ = futex::wait(&desk.bell, futex::Flags::empty(), bell, until.as_ref());
            // The file may have been cut short meanwhile.
            let desk = self.desk();
            desk.is_agent_asleep.store(0, Ordering::SeqCst);
            self.empty(letters);
        }
    }

    /// Answers an asker.
    pub fn answer(&self, asker: Asker, asked: Asked) {
        self.desk().answer(asker, asked.is_there(), asked == Asked::Certain);
    }

    /// Counts a letter that was received, and for which the agent has no room.
    pub fn note_dropped(&self) {
        count(&self.desk().dropped);
    }

    /// Notes that the cluster has a session now that was missing before: whoever wants it asks for it.
    pub fn note_arrived(&self, id: &SessionId) {
        self.desk().forget_absent(id);
    }

    /// Returns true if an agent showed a sign of life in the last second.
    pub fn has_agent(&self) -> bool {
        self.desk().is_agent_there(now_ms())
    }

    /// Makes this process the agent, with a first sign of life. Returns false if an agent showed one in the last second. Of
    /// several processes at the same time one becomes the agent.
    pub fn become_agent(&self) -> bool {
        let desk = self.desk();
        let before = desk.beat_ms.load(Ordering::Relaxed);
        let now_ms = now_ms();
        let order = Ordering::Relaxed;
        let is_agent = !Desk::is_sign_of_life(before, now_ms)
            && desk.beat_ms.compare_exchange(before, now_ms, order, order).is_ok();
        if is_agent {
            self.own_beat_ms.store(now_ms, order);
            // One that was killed may have left it set, and it is not known yet whether Valkey answers.
            desk.is_linked.store(0, order);
        }
        is_agent
    }

    /// Returns true if the last sign of life is another process's, and not older than a second: this one stood still, and is
    /// the agent no more. To be asked before each [`Self::receive`], which is a sign of life.
    pub fn has_other_agent(&self) -> bool {
        let last_ms = self.desk().beat_ms.load(Ordering::Relaxed);
        let is_own = last_ms == self.own_beat_ms.load(Ordering::Relaxed);
        !is_own && Desk::is_sign_of_life(last_ms, now_ms())
    }

    /// Notes that the agent ends.
    pub fn leave(&self) {
        let desk = self.desk();
        desk.is_linked.store(0, Ordering::Relaxed);
        desk.beat_ms.store(0, Ordering::Relaxed);
    }

    /// Sets the longest that askers wait from now on; with `follows_answers` no longer than answers usually take.
    pub fn set_deadline(&self, deadline: Duration, follows_answers: bool) {
        self.desk().set_deadline(deadline, follows_answers);
    }

    /// Returns the current state.
    pub fn facts(&self) -> MailboxFacts {
        let desk = self.desk();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        MailboxFacts {
            is_linked: desk.is_linked.load(Ordering::Relaxed) == 1 && desk.is_agent_there(now_ms()),
            asked: count(&desk.asked),
            fetched: count(&desk.fetched),
            late: count(&desk.late),
            skipped: count(&desk.skipped),
            dropped: count(&desk.dropped),
        }
    }

    pub(crate) fn reset_counts(&self) {
        let Desk { asked, fetched, late, skipped, dropped, .. } = self.desk();
        for count in [asked, fetched, late, skipped, dropped] {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn post(&self, desk: &Desk, letter: &Letter) -> bool {
        let written = Written::of(letter);
        // The lock is held for nanoseconds, unless its holder is stopped: then the letter is lost.
        let posted = self.letters.with_soon(|lines, torn| {
            let (ends, ring) = parts(lines, torn);
            let free = ends.waiting() < ring.len();
            if free {
                ring[ends.written as usize % ring.len()] = bytemuck::cast(written);
                ends.written = ends.written.wrapping_add(1);
            }
            free
        });
        desk.bell.fetch_add(1, Ordering::SeqCst);
        if desk.is_agent_asleep.load(Ordering::SeqCst) == 1 {
            let _ = futex::wake(&desk.bell, futex::Flags::empty(), 1);
        }
        posted == Some(true)
    }

    fn empty(&self, letters: &mut Vec<Letter>) {
        self.letters.with(|lines, torn| {
            let (ends, ring) = parts(lines, torn);
            for _ in 0..ends.waiting() {
                let line = ring[ends.read as usize % ring.len()];
                letters.extend(bytemuck::cast::<_, Written>(line).letter());
                ends.read = ends.read.wrapping_add(1);
            }
        });
    }
}
