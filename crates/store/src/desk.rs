//! The desk where threads wait for a cluster's agent, and the state that all processes share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rejoin_cache::SessionId;
use rustix::thread::futex;

use crate::answer_time::AnswerTime;
use crate::mapping::Shared;

/// A thread that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asker {
    pub(crate) seat: u32,
    pub(crate) word: u32,
}

/// The seats of askers, and the state that all processes share.
#[repr(C, align(128))]
pub(crate) struct Desk {
    /// The count of letters so far, on which the agent sleeps.
    pub(crate) bell: AtomicU32,
    pub(crate) is_agent_asleep: AtomicU32,
    pub(crate) is_linked: AtomicU32,
    pub(crate) deadline_us: AtomicU32,
    /// The agent's last sign of life.
    pub(crate) beat_ms: AtomicU64,
    closed_until_ms: AtomicU64,
    late_in_a_row: AtomicU32,
    answer_time: AnswerTime,
    pub(crate) asked: AtomicU64,
    pub(crate) fetched: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) dropped: AtomicU64,
    seats: [Seat; SEATS],
    /// Ids that were absent, at the place that a part of their bytes gives: the rest of that part, and an end.
    absent: [AtomicU64; ABSENT],
}

// SAFETY: every field is an atomic, or an array of atomics.
unsafe impl Shared for Desk {}

/// A word to wait on: a turn's number, and in its lowest two bits the state of the turn.
#[repr(C, align(64))]
struct Seat {
    word: AtomicU32,
    /// The turn whose session was certainly not taken before, as it was asked. Older agents leave it alone.
    certain: AtomicU32,
    since_ms: AtomicU64,
}

const SEATS: usize = 128;
const ABSENT: usize = 1_024;
const FREE: u32 = 0;
pub(crate) const ASKED: u32 = 1;
pub(crate) const FETCHED: u32 = 2;
pub(crate) const NOT_THERE: u32 = 3;
const STATE: u32 = 3;

impl Desk {
    /// The longest that anybody waits, whatever the agent sets.
    pub(crate) const MOST_WAIT: Duration = Duration::from_millis(50);
    /// The longest wait if the agent sets none.
    pub(crate) const DEADLINE: Duration = Duration::from_millis(5);
    /// An agent without a sign of life for so long is gone.
    pub(crate) const LIVES_FOR_MS: u64 = 1_000;
    /// Askers in a row that wait in vain before the desk is closed.
    const MOST_LATE: u32 = 3;
    const CLOSED_FOR_MS: u64 = 1_000;
    const CLOSED_FOR_MOST_MS: u64 = 30_000;
    const ABSENT_FOR_S: u64 = 2;
    /// A thread waits for no more than this in four times as long, or one deadline: a client that presents many
    /// missing sessions cannot stop a server.
    const MOST_WAIT_OF_THREAD: Duration = Duration::from_millis(20);

    pub(crate) fn is_agent_there(&self, now_ms: u64) -> bool {
        Self::is_sign_of_life(self.beat_ms.load(Ordering::Relaxed), now_ms)
    }

    /// Returns true if a sign of life is young enough. One of the future is none: it was written over.
    pub(crate) fn is_sign_of_life(beat_ms: u64, now_ms: u64) -> bool {
        now_ms.abs_diff(beat_ms) < Self::LIVES_FOR_MS
    }

    /// Returns true if a thread may ask: the agent is there, the desk is open, and the thread has patience left.
    pub(crate) fn is_open(&self, now_ms: u64) -> bool {
        let closed_for_ms = self.closed_until_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        self.is_linked.load(Ordering::Relaxed) == 1
            && self.is_agent_there(now_ms)
            && (closed_for_ms == 0 || closed_for_ms > Self::CLOSED_FOR_MOST_MS)
            && Patience::is_left(now_ms, self.deadline())
    }

    /// Opens the desk: the cause of late answers is over.
    pub(crate) fn reopen(&self) {
        self.late_in_a_row.store(0, Ordering::Relaxed);
        self.closed_until_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn sit_down(&self, now_ms: u64) -> Option<Asker> {
        // An asker that died never leaves its seat.
        let is_left = |seat: &Seat| {
            let since_ms = now_ms.saturating_sub(seat.since_ms.load(Ordering::Relaxed));
            since_ms > 10 * Self::MOST_WAIT.as_millis() as u64
        };
        let first = self.asked.load(Ordering::Relaxed) as usize;
        (0..SEATS).find_map(|at| {
            let at = first.wrapping_add(at) % SEATS;
            let (seat, order) = (&self.seats[at], Ordering::AcqRel);
            let before = seat.word.load(Ordering::Relaxed);
            let word = (before & !STATE).wrapping_add(STATE + 1) | ASKED;
            let mine = (before & STATE == FREE || is_left(seat))
                && seat.word.compare_exchange(before, word, order, Ordering::Relaxed).is_ok();
            mine.then(|| {
                seat.since_ms.store(now_ms, Ordering::Relaxed);
                Asker { seat: at as u32, word }
            })
        })
    }

    /// Sets the longest wait, and whether askers wait for no longer than answers usually take.
    pub(crate) fn set_deadline(&self, deadline: Duration, follows_answers: bool) {
        let us = deadline.min(Self::MOST_WAIT).as_micros() as u32;
        self.deadline_us.store(us, Ordering::Relaxed);
        self.answer_time.follow(follows_answers);
    }

    fn deadline(&self) -> Duration {
        match self.deadline_us.load(Ordering::Relaxed) {
            0 => Self::DEADLINE,
            us => Duration::from_micros(us.into()).min(Self::MOST_WAIT),
        }
    }

    /// Answers an asker, if it still waits.
    pub(crate) fn answer(&self, asker: Asker, is_there: bool, is_certain: bool) {
        let Some(seat) = self.seats.get(asker.seat as usize) else { return };
        seat.certain.store(if is_certain { asker.word } else { FREE }, Ordering::Release);
        let answered = asker.word & !STATE | if is_there { FETCHED } else { NOT_THERE };
        let (asked, order) = (asker.word, Ordering::AcqRel);
        if seat.word.compare_exchange(asked, answered, order, Ordering::Relaxed).is_ok() {
            let _ = futex::wake(&seat.word, futex::Flags::empty(), 1);
        }
    }

    /// Waits for the answer, and returns the state of the turn: [`ASKED`] if none came in time. A late one may close the desk. A `take` is waited for until
    /// the deadline, because its session is in no other place meanwhile; anything else for as long as answers usually take.
    /// Calls `notice` after each sleep: the memory may be gone ([`Mapping::notice`](crate::mapping::Mapping::notice)).
    pub(crate) fn wait(&self, asker: Asker, take: bool, now_ms: u64, notice: impl Fn()) -> u32 {
        let word = &self.seats[asker.seat as usize].word;
        let began = Instant::now();
        let deadline = self.deadline();
        let most = if take { deadline } else { self.answer_time.wait(deadline) };
        loop {
            let now = word.load(Ordering::Acquire);
            let waited = began.elapsed();
            let left = most.saturating_sub(waited);
            if now != asker.word || left.is_zero() {
                Patience::used(waited);
                let is_mine = now & !STATE == asker.word & !STATE;
                let state = if is_mine { now & STATE } else { ASKED };
                match state {
                    ASKED => self.was_late(now_ms, most, deadline),
                    _ => self.was_in_time(waited),
                }
                return state;
            }
            let left = left.try_into().ok();
            let _ = futex::wait(word, futex::Flags::empty(), asker.word, left.as_ref());
            notice();
        }
    }

    /// Returns true if the answer said that the session was certainly not taken before.
    pub(crate) fn is_certain(&self, asker: Asker) -> bool {
        self.seats[asker.seat as usize].certain.load(Ordering::Acquire) == asker.word
    }

    pub(crate) fn stand_up(&self, asker: Asker) {
        let Seat { word, since_ms, .. } = &self.seats[asker.seat as usize];
        // The next asker must not be taken for one that died before it has noted its own time.
        since_ms.store(u64::MAX, Ordering::Relaxed);
        let now = word.load(Ordering::Relaxed);
        if now & !STATE == asker.word & !STATE {
            let free = now & !STATE | FREE;
            let _ = word.compare_exchange(now, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn was_in_time(&self, waited: Duration) {
        self.answer_time.note(waited);
        self.late_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Notes that no answer came in a wait of `most`. Only one that lasted until the deadline counts towards closing the desk:
    /// a shorter one lengthens the next.
    fn was_late(&self, now_ms: u64, most: Duration, deadline: Duration) {
        count(&self.late);
        self.answer_time.note(2 * most);
        if most < deadline {
            return;
        }
        let late = self.late_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(times) = late.checked_sub(Self::MOST_LATE) {
            let closed_for_ms = Self::CLOSED_FOR_MS << times.min(5);
            let closed_for_ms = closed_for_ms.min(Self::CLOSED_FOR_MOST_MS);
            self.closed_until_ms.store(now_ms.saturating_add(closed_for_ms), Ordering::Relaxed);
        }
    }

    pub(crate) fn note_absent(&self, id: &SessionId, now_ms: u64) {
        let (at, mark) = absent(id);
        let until_s = (now_ms / 1_000).saturating_add(Self::ABSENT_FOR_S);
        self.absent[at].store(mark << 32 | until_s & u64::from(u32::MAX), Ordering::Relaxed);
    }

    pub(crate) fn forget_absent(&self, id: &SessionId) {
        let (at, mark) = absent(id);
        let noted = self.absent[at].load(Ordering::Relaxed);
        if noted >> 32 == mark {
            let order = Ordering::Relaxed;
            let _ = self.absent[at].compare_exchange(noted, 0, order, order);
        }
    }

    pub(crate) fn is_absent(&self, id: &SessionId, now_ms: u64) -> bool {
        let (at, mark) = absent(id);
        let noted = self.absent[at].load(Ordering::Relaxed);
        let left_s = (noted & u64::from(u32::MAX)).saturating_sub(now_ms / 1_000);
        noted >> 32 == mark && (1..=Self::ABSENT_FOR_S).contains(&left_s)
    }
}

/// The time that this thread waited lately: the start of the period, and the sum.
struct Patience;

thread_local! {
    static WAITED: Cell<(u64, Duration)> = const { Cell::new((0, Duration::ZERO)) };
}

impl Patience {
    fn is_left(now_ms: u64, deadline: Duration) -> bool {
        let most = Desk::MOST_WAIT_OF_THREAD.max(deadline);
        let (since_ms, waited) = WAITED.get();
        if now_ms.saturating_sub(since_ms) >= 4 * most.as_millis() as u64 {
            WAITED.set((now_ms, Duration::ZERO));
            return true;
        }
        waited < most
    }

    fn used(wait: Duration) {
        let (since_ms, waited) = WAITED.get();
        WAITED.set((since_ms, waited.saturating_add(wait)));
    }
}

/// Returns the place of an id among the absent ones, and its mark there. Ids are random, or were refused before.
fn absent(id: &SessionId) -> (usize, u64) {
    let mut bytes = [0; 8];
    let known = id.as_bytes().len().min(8);
    bytes[..known].copy_from_slice(&id.as_bytes()[..known]);
    let number = u64::from_le_bytes(bytes);
    (number as usize % ABSENT, number >> 32)
}

/// Adds one to a count.
pub(crate) fn count(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
