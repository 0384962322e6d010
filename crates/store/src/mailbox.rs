//! How servers tell a cluster's agent on the same machine of sessions, and ask it for those they miss.
//!
//! It lies in the cache's file: letters in a ring under a lock, and a desk of atomics where askers wait. A
//! letter holds an id and never a session: the agent finds those in the cache. Servers load no network
//! client and hold no password; an agent that is gone, stopped or slow costs them nothing but what
//! they would have been told.
//!
//! **Patience.** An asker waits for [`Mailbox::MOST_WAIT`] at most, and for what the agent says at most. Three
//! who waited in vain close the desk, for a second at first and half a minute at last; so does an agent that
//! says that Valkey does not answer, or shows no sign of life. An id that was not there is not asked for
//! again for a few seconds.
//!
//! Any process that has the cache may write here, so nothing is believed: letters are looked at, indices
//! bounded, and what the agent carries is sealed against those who can only write (`rejoin_cache::IdSeal`).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rejoin_cache::{ContextTag, Line, Region, SessionId};
use rustix::thread::futex;

use crate::division::Division;
use crate::mapping::{Mapping, Shared};
use crate::region::SharedRegion;
use crate::store::now_ms;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Mailbox {
    mapping: Arc<Mapping>,
    letters: SharedRegion,
    desk: usize,
}

/// What a server has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    /// About which session.
    pub id: SessionId,
    /// Made in which context.
    pub context: ContextTag,
    /// What about it.
    pub says: Says,
}

/// What became of a session, or is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// It is in the cache, new or another.
    Stored,
    /// Its client was here.
    Seen,
    /// Its client holds a newer one.
    Retired,
    /// It is not to be resumed any more, anywhere.
    Removed,
    /// It is missed: somebody waits.
    Wanted(Asker),
    /// As [`Self::Wanted`], for who may use it once: it is to be nowhere else afterwards.
    Taken(Asker),
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    seat: u32,
    word: u32,
}

/// What there is to know about a mailbox: counts of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxFacts {
    /// Whether the agent lives, and Valkey answers it.
    pub is_linked: bool,
    /// Sessions asked for.
    pub asked: u64,
    /// Of those, fetched in time.
    pub fetched: u64,
    /// Asked for in vain: no answer came in time.
    pub late: u64,
    /// Not asked for, for the desk was closed.
    pub skipped: u64,
    /// Letters that found no room.
    pub dropped: u64,
}

/// Where askers wait, and what all know.
#[repr(C, align(128))]
pub(crate) struct Desk {
    /// Letters so far, for the agent to sleep on.
    bell: AtomicU32,
    is_agent_asleep: AtomicU32,
    is_linked: AtomicU32,
    deadline_us: AtomicU32,
    /// The agent's last sign of life.
    beat_ms: AtomicU64,
    closed_until_ms: AtomicU64,
    late_in_a_row: AtomicU32,
    unused: AtomicU32,
    asked: AtomicU64,
    fetched: AtomicU64,
    late: AtomicU64,
    skipped: AtomicU64,
    dropped: AtomicU64,
    seats: [Seat; SEATS],
    /// Ids that were not there, by a part of their bytes: the rest of it, and until when.
    absent: [AtomicU64; ABSENT],
}

// SAFETY: atomics, all of it.
unsafe impl Shared for Desk {}

/// A word to wait on: a turn's number, and in its lowest two bits how far it is.
#[repr(C, align(64))]
struct Seat {
    word: AtomicU32,
    unused: AtomicU32,
    since_ms: AtomicU64,
}

const SEATS: usize = 128;
const ABSENT: usize = 1_024;
const FREE: u32 = 0;
const ASKED: u32 = 1;
const FETCHED: u32 = 2;
const NOT_THERE: u32 = 3;
const STATE: u32 = 3;

/// A letter as it lies in the ring: a line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Written {
    says: u32,
    context: u32,
    seat: u32,
    word: u32,
    id_length: u32,
    unused: [u32; 3],
    id: [u8; SessionId::LONGEST],
}

/// The first line of the ring.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Ends {
    read: u32,
    written: u32,
    unused: [u32; 14],
}

impl Mailbox {
    /// The lines that the ring takes.
    pub(crate) const LINES: usize = 1 + Self::LETTERS;
    const LETTERS: usize = 4_096;
    /// Nobody waits for longer, whatever the agent says.
    pub const MOST_WAIT: Duration = Duration::from_millis(50);
    /// What askers wait for unless told otherwise.
    pub const DEADLINE: Duration = Duration::from_millis(5);
    /// An agent without a sign of life for so long is gone.
    const LIVES_FOR_MS: u64 = 1_000;
    /// Who waited in vain one after the other before the desk is closed.
    const MOST_LATE: u32 = 3;
    const CLOSED_FOR_MS: u64 = 1_000;
    const CLOSED_FOR_MOST_MS: u64 = 30_000;
    const ABSENT_FOR_S: u64 = 2;
    /// A thread waits for no more than this in four times as long, or one deadline: whoever presents many
    /// sessions that are gone stops nobody.
    const MOST_WAIT_OF_THREAD: Duration = Duration::from_millis(20);

    /// `None`: the cache is not a cluster's.
    pub(crate) fn new(mapping: &Arc<Mapping>, division: &Division) -> Option<Self> {
        let place = division.mailbox.as_ref()?;
        let letters = SharedRegion::at(mapping, place.lock, place.letters, Self::LINES);
        Some(Self { mapping: Arc::clone(mapping), letters, desk: place.desk })
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

    /// Tells the agent. Not done where there is none, or no room.
    pub fn tell(&self, id: &SessionId, context: ContextTag, says: Says) {
        let desk = self.desk();
        if desk.is_agent_there(now_ms()) && !self.post(desk, &Letter { id: *id, context, says }) {
            count(&desk.dropped);
        }
    }

    /// Has the agent fetch a session from the cluster, and waits until it is in the cache, or not. Whether
    /// it is; `take` as [`Says::Taken`].
    pub fn ask(&self, id: &SessionId, context: ContextTag, take: bool) -> bool {
        let (desk, now_ms) = (self.desk(), now_ms());
        if !desk.is_open(now_ms) || !Patience::is_left(now_ms, desk.deadline()) {
            count(&desk.skipped);
            return false;
        }
        if desk.is_absent(id, now_ms) {
            return false;
        }
        let Some(asker) = desk.sit_down(now_ms) else {
            count(&desk.skipped);
            return false;
        };
        let says = if take { Says::Taken(asker) } else { Says::Wanted(asker) };
        let posted = self.post(desk, &Letter { id: *id, context, says });
        count(if posted { &desk.asked } else { &desk.dropped });
        let answer = if posted { desk.wait(asker) } else { ASKED };
        desk.stand_up(asker);
        match answer {
            FETCHED => count(&desk.fetched),
            NOT_THERE => desk.note_absent(id, now_ms),
            _ if posted => desk.was_late(now_ms),
            _ => {}
        }
        if answer == FETCHED || answer == NOT_THERE {
            desk.late_in_a_row.store(0, Ordering::Relaxed);
        }
        answer == FETCHED
    }

    /// What was said since the last call, in order, to the one agent; waits for as long at most until there is
    /// something. `is_linked` says whether Valkey answers: without it nobody asks.
    pub fn receive(&self, letters: &mut Vec<Letter>, most_wait: Duration, is_linked: bool) {
        let desk = self.desk();
        if desk.is_linked.swap(u32::from(is_linked), Ordering::Relaxed) == 0 && is_linked {
            // What made askers late is over.
            desk.late_in_a_row.store(0, Ordering::Relaxed);
            desk.closed_until_ms.store(0, Ordering::Relaxed);
        }
        desk.beat_ms.store(now_ms(), Ordering::Relaxed);
        let bell = desk.bell.load(Ordering::Acquire);
        self.empty(letters);
        if letters.is_empty() {
            desk.is_agent_asleep.store(1, Ordering::SeqCst);
            let until = most_wait.min(Duration::from_millis(Self::LIVES_FOR_MS / 4));
            let until = until.try_into().ok();
            // Woken, rung before, too late: all the same.
            let _ = futex::wait(&desk.bell, futex::Flags::empty(), bell, until.as_ref());
            desk.is_agent_asleep.store(0, Ordering::SeqCst);
            self.empty(letters);
        }
    }

    /// Tells an asker whether the session is in the cache now.
    pub fn answer(&self, asker: Asker, is_there: bool) {
        let desk = self.desk();
        let Some(seat) = desk.seats.get(asker.seat as usize) else { return };
        let answered = asker.word & !STATE | if is_there { FETCHED } else { NOT_THERE };
        // Who no longer waits is not told.
        let (asked, order) = (asker.word, Ordering::AcqRel);
        if seat.word.compare_exchange(asked, answered, order, Ordering::Relaxed).is_ok() {
            let _ = futex::wake(&seat.word, futex::Flags::empty(), 1);
        }
    }

    /// Whether an agent showed a sign of life in the last second: there is to be one.
    pub fn has_agent(&self) -> bool {
        self.desk().is_agent_there(now_ms())
    }

    /// The agent is no more.
    pub fn leave(&self) {
        let desk = self.desk();
        desk.is_linked.store(0, Ordering::Relaxed);
        desk.beat_ms.store(0, Ordering::Relaxed);
    }

    /// From now on, askers wait for so long at most.
    pub fn set_deadline(&self, deadline: Duration) {
        let us = deadline.min(Self::MOST_WAIT).as_micros() as u32;
        self.desk().deadline_us.store(us, Ordering::Relaxed);
    }

    /// What there is to know, now.
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
        // Who has the lock has it for nanoseconds, or is stopped: then the letter is lost.
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

fn parts(lines: &mut [Line], torn: bool) -> (&mut Ends, &mut [Line]) {
    let (first, ring) = lines.split_first_mut().expect("as long as a mailbox");
    let ends: &mut Ends = bytemuck::cast_mut(first);
    if torn || ends.waiting() > ring.len() {
        ends.read = ends.written;
    }
    (ends, ring)
}

impl Ends {
    fn waiting(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }
}

impl Desk {
    fn is_agent_there(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.beat_ms.load(Ordering::Relaxed)) < Mailbox::LIVES_FOR_MS
    }

    fn is_open(&self, now_ms: u64) -> bool {
        let closed_for_ms = self.closed_until_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        self.is_linked.load(Ordering::Relaxed) == 1
            && self.is_agent_there(now_ms)
            && (closed_for_ms == 0 || closed_for_ms > Mailbox::CLOSED_FOR_MOST_MS)
    }

    fn sit_down(&self, now_ms: u64) -> Option<Asker> {
        // Of one who died there nobody hears again.
        let is_left = |seat: &Seat| {
            let since_ms = now_ms.saturating_sub(seat.since_ms.load(Ordering::Relaxed));
            since_ms > 10 * Mailbox::MOST_WAIT.as_millis() as u64
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

    fn deadline(&self) -> Duration {
        match self.deadline_us.load(Ordering::Relaxed) {
            0 => Mailbox::DEADLINE,
            us => Duration::from_micros(us.into()).min(Mailbox::MOST_WAIT),
        }
    }

    /// How far it is when it is told, or too late.
    fn wait(&self, asker: Asker) -> u32 {
        let word = &self.seats[asker.seat as usize].word;
        let began = Instant::now();
        let until = began + self.deadline();
        loop {
            let now = word.load(Ordering::Acquire);
            let left = until.saturating_duration_since(Instant::now());
            if now != asker.word || left.is_zero() {
                Patience::used(began.elapsed());
                return if now & !STATE == asker.word & !STATE { now & STATE } else { ASKED };
            }
            let left = left.try_into().ok();
            let _ = futex::wait(word, futex::Flags::empty(), asker.word, left.as_ref());
        }
    }

    fn stand_up(&self, asker: Asker) {
        let Seat { word, since_ms, .. } = &self.seats[asker.seat as usize];
        // Whoever sits down next is not taken for somebody who left, until it has said since when.
        since_ms.store(u64::MAX, Ordering::Relaxed);
        let now = word.load(Ordering::Relaxed);
        if now & !STATE == asker.word & !STATE {
            let free = now & !STATE | FREE;
            let _ = word.compare_exchange(now, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn was_late(&self, now_ms: u64) {
        count(&self.late);
        let late = self.late_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(times) = late.checked_sub(Mailbox::MOST_LATE) {
            let closed_for_ms = Mailbox::CLOSED_FOR_MS << times.min(5);
            let closed_for_ms = closed_for_ms.min(Mailbox::CLOSED_FOR_MOST_MS);
            self.closed_until_ms.store(now_ms.saturating_add(closed_for_ms), Ordering::Relaxed);
        }
    }

    fn note_absent(&self, id: &SessionId, now_ms: u64) {
        let (at, mark) = absent(id);
        let until_s = (now_ms / 1_000).saturating_add(Mailbox::ABSENT_FOR_S);
        self.absent[at].store(mark << 32 | until_s & u64::from(u32::MAX), Ordering::Relaxed);
    }

    fn is_absent(&self, id: &SessionId, now_ms: u64) -> bool {
        let (at, mark) = absent(id);
        let noted = self.absent[at].load(Ordering::Relaxed);
        let left_s = (noted & u64::from(u32::MAX)).saturating_sub(now_ms / 1_000);
        noted >> 32 == mark && (1..=Mailbox::ABSENT_FOR_S).contains(&left_s)
    }
}

/// How long this thread waited lately: since when, and how long.
struct Patience;

thread_local! {
    static WAITED: Cell<(u64, Duration)> = const { Cell::new((0, Duration::ZERO)) };
}

impl Patience {
    fn is_left(now_ms: u64, deadline: Duration) -> bool {
        let most = Mailbox::MOST_WAIT_OF_THREAD.max(deadline);
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

/// Ids are random, or were refused before.
fn absent(id: &SessionId) -> (usize, u64) {
    let mut bytes = [0; 8];
    let known = id.as_bytes().len().min(8);
    bytes[..known].copy_from_slice(&id.as_bytes()[..known]);
    let number = u64::from_le_bytes(bytes);
    (number as usize % ABSENT, number >> 32)
}

impl Written {
    fn of(letter: &Letter) -> Self {
        let (says, asker) = match letter.says {
            Says::Stored => (1, None),
            Says::Seen => (2, None),
            Says::Removed => (3, None),
            Says::Wanted(asker) => (4, Some(asker)),
            Says::Taken(asker) => (5, Some(asker)),
            Says::Retired => (6, None),
        };
        let Asker { seat, word } = asker.unwrap_or(Asker { seat: 0, word: 0 });
        let bytes = letter.id.as_bytes();
        let mut id = [0; SessionId::LONGEST];
        id[..bytes.len()].copy_from_slice(bytes);
        let ContextTag(context) = letter.context;
        Self { says, context, seat, word, id_length: bytes.len() as u32, unused: [0; 3], id }
    }

    fn letter(&self) -> Option<Letter> {
        let asker = Asker { seat: self.seat, word: self.word };
        let says = match self.says {
            1 => Says::Stored,
            2 => Says::Seen,
            3 => Says::Removed,
            4 => Says::Wanted(asker),
            5 => Says::Taken(asker),
            6 => Says::Retired,
            _ => return None,
        };
        let id = SessionId::new(self.id.get(..self.id_length as usize)?).ok()?;
        Some(Letter { id, context: ContextTag(self.context), says })
    }
}

fn count(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

const _: () = assert!(size_of::<Written>() == size_of::<Line>());
const _: () = assert!(size_of::<Ends>() == size_of::<Line>());
