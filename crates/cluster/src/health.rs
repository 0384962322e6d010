//! The counters of an agent, for whoever watches it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::sessions::Misses;

/// The counters of an agent since it started. Any thread may read them while it runs.
#[derive(Debug, Default)]
pub struct Health {
    is_linked: AtomicBool,
    /// True if the agent stood still for so long that servers took it for gone, until that is taken note of.
    stood_still: AtomicBool,
    last_answer_s: AtomicU64,
    answered: AtomicU64,
    answered_us: AtomicU64,
    unanswered: AtomicU64,
    sent: [AtomicU64; 3],
    fetched: [AtomicU64; 4],
    uncertain: AtomicU64,
    rekey_step: AtomicU64,
    misses: Mutex<Misses>,
    /// The last time that Valkey refused to store or find a session.
    refused: Mutex<Option<Instant>>,
    /// 0 where the own site is the home, 1 while the home does not answer, 2 while it does.
    home: AtomicU8,
    sought: [AtomicU64; 6],
    removals: [AtomicU64; 2],
}

/// A reading of [`Health`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthFacts {
    /// True if Valkey answered the last time.
    pub is_linked: bool,
    /// The Unix time of Valkey's last answer.
    pub last_answer_s: Option<u64>,
    /// Times that Valkey answered when the agent read the ring, once a second.
    pub answered: u64,
    /// The time that these answers took.
    pub answered_within: Duration,
    /// Times that it did not answer.
    pub unanswered: u64,
    /// Sessions sent to Valkey and stored there.
    pub stored: u64,
    /// Sessions sent and not stored, because all others return sooner, or because they expire or are too large.
    pub refused: u64,
    /// Sessions that Valkey did not take, because it did not answer or is full.
    pub unsent: u64,
    /// True if Valkey answered in the last five minutes that it does not store a session, or does not find one.
    pub is_refused: bool,
    /// Sessions fetched for a server of this machine.
    pub found: u64,
    /// Fetches for which Valkey had no session that this machine can use.
    pub absent: u64,
    /// Sessions fetched that did not fit into the machine's cache.
    pub unfit: u64,
    /// Fetches that Valkey did not answer in time.
    pub unfetched: u64,
    /// Sessions taken for a server of this machine that might have been taken before: early data that comes with them is
    /// rejected.
    pub uncertain: u64,
    /// The steps of [`RekeyStep`](crate::RekeyStep) that the agent has taken: none, one or two; none again after the third.
    pub rekey_step: u64,
    /// The fetches without a session, by kind.
    pub misses: Misses,
    /// True if the site that is the ring's home answered the last time. `None` if that is the machine's own site.
    pub is_home_linked: Option<bool>,
    /// The sessions that other sites were asked for, after handshakes without them.
    pub sought: SoughtFacts,
}

/// The sessions that other sites were asked for, and told to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SoughtFacts {
    /// Sessions that were found and are in the own site now.
    pub found: u64,
    /// Sessions that no site has.
    pub absent: u64,
    /// Sessions that were found and belong to another context, found no room, or left the own site a moment ago.
    pub unfit: u64,
    /// Sessions that were not found, while a site did not answer.
    pub failed: u64,
    /// Sessions not asked for, because too many others waited.
    pub dropped: u64,
    /// Sessions not asked for, because they were asked for in the last seconds.
    pub lately: u64,
    /// Sessions that were removed in all other sites.
    pub removed: u64,
    /// Sessions that may still be in another site, although they were removed in their own.
    pub unremoved: u64,
}

/// The end of asking other sites for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sought {
    Found,
    Absent,
    Unfit,
    Failed,
    Dropped,
    Lately,
}

/// The end of sending a session to Valkey.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sent {
    Stored,
    Refused,
    Failed,
}

/// The end of fetching a session from Valkey.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fetched {
    Found,
    Absent,
    Unfit,
    Failed,
}

impl Health {
    /// The time for which a refusal counts.
    const REFUSED_FOR: Duration = Duration::from_secs(300);

    /// Returns the counters of now.
    pub fn read(&self) -> HealthFacts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let [stored, refused, unsent] = self.sent.each_ref().map(read);
        let [found, absent, unfit, unfetched] = self.fetched.each_ref().map(read);
        HealthFacts {
            is_linked: self.is_linked(),
            last_answer_s: Some(read(&self.last_answer_s)).filter(|at_s| *at_s > 0),
            answered: read(&self.answered),
            answered_within: Duration::from_micros(read(&self.answered_us)),
            unanswered: read(&self.unanswered),
            stored,
            refused,
            unsent,
            is_refused: lock(&self.refused)
                .is_some_and(|at: Instant| at.elapsed() < Self::REFUSED_FOR),
            found,
            absent,
            unfit,
            unfetched,
            uncertain: read(&self.uncertain),
            rekey_step: read(&self.rekey_step),
            misses: *lock(&self.misses),
            is_home_linked: match self.home.load(Relaxed) {
                0 => None,
                home => Some(home == 2),
            },
            sought: self.sought(),
        }
    }

    fn sought(&self) -> SoughtFacts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let [found, absent, unfit, failed, dropped, lately] = self.sought.each_ref().map(read);
        let [unremoved, removed] = self.removals.each_ref().map(read);
        SoughtFacts { found, absent, unfit, failed, dropped, lately, removed, unremoved }
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.is_linked.load(Relaxed)
    }

    pub(crate) fn note_answer(&self, now_s: u64, after: Duration) {
        self.is_linked.store(true, Relaxed);
        self.last_answer_s.store(now_s, Relaxed);
        self.answered.fetch_add(1, Relaxed);
        self.answered_us.fetch_add(after.as_micros() as u64, Relaxed);
    }

    pub(crate) fn note_home(&self, is_linked: bool) {
        self.home.store(1 + u8::from(is_linked), Relaxed);
    }

    pub(crate) fn note_sought(&self, sought: Sought) {
        self.sought[sought as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_removal(&self, is_done: bool) {
        self.removals[usize::from(is_done)].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_silence(&self) {
        self.is_linked.store(false, Relaxed);
        self.unanswered.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_standstill(&self) {
        self.stood_still.store(true, Relaxed);
    }

    /// Returns true once after a standstill.
    pub(crate) fn take_standstill(&self) -> bool {
        self.stood_still.swap(false, Relaxed)
    }

    pub(crate) fn note_sent(&self, sent: Sent) {
        self.sent[sent as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_fetched(&self, fetched: Fetched) {
        self.fetched[fetched as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_uncertain(&self) {
        self.uncertain.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_rekey_step(&self, step: u64) {
        self.rekey_step.store(step, Relaxed);
    }

    pub(crate) fn note_misses(&self, misses: Misses) {
        *lock(&self.misses) = misses;
    }

    /// Notes the error of a command for sessions. A Valkey that is away is known otherwise.
    pub(crate) fn note_error(&self, error: &Error) {
        if matches!(error, Error::Valkey(_)) && !error.is_away() {
            *lock(&self.refused) = Some(Instant::now());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
