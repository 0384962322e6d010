//! The reader of a board that another process wrote, which may be anybody's.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    Board, Certificates, ContextSlot, Counts, Features, LAYOUT, MAGIC, NAMELESS, Outcome,
    ProcessSlot, Standing, Subject, Text,
};
use crate::family::Family;

/// The notes on a board. Texts may contain any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notes {
    /// The version of Rejoin.
    pub version: String,
    /// The state of the library. `None` if it was not posted: the program attaches contexts by the C API.
    pub standing: Option<Standing>,
    /// The settings that are on or off.
    pub features: Features,
    /// The connections that were made, as a server and as a client.
    pub connections: u64,
    /// The connections that began to shake hands as a client.
    pub connecting: u64,
    /// The connections that began to shake hands as a server, in contexts that Rejoin knows.
    pub serving: u64,
    /// The connections in contexts that were made before Rejoin came.
    pub unattached: u64,
    /// The contexts that found all slots in use, each counted once in each process that looked.
    pub refused_contexts: u64,
    /// The handshakes of all contexts, those without a slot included.
    pub handshakes: Handshakes,
    /// The handshakes of processes that lost their slot.
    pub of_other_processes: Handshakes,
    /// The contexts that have begun a connection as a server, at most 128.
    pub contexts: Vec<ContextNotes>,
    /// The processes that have shaken hands as a server, at most 256.
    pub processes: Vec<ProcessNotes>,
    texts: [String; Subject::COUNT],
}

/// The notes on a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextNotes {
    /// The common name in the server's certificate, or the first host. `None` if there is none.
    pub name: Option<String>,
    /// The outcome of its latest connection's beginning.
    pub outcome: Option<Outcome>,
    /// The connections that began attached, without a cache, with early data, and with resumption off.
    pub began: [u64; 4],
    /// The handshakes that are done.
    pub handshakes: Handshakes,
    /// The time of the last one, on the clock of caches.
    pub last_ms: u64,
    /// The sharing of the sessions of clients that it asks for certificates. `None` if it has asked nobody.
    pub certificates: Option<Certificates>,
}

/// The notes on a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessNotes {
    /// The process's id, as it sees itself.
    pub id: u64,
    /// The time of its first handshake, on the clock of caches: a process that started later is another one.
    pub since_ms: u64,
    /// The time of its last handshake, on the clock of caches.
    pub last_ms: u64,
    /// The handshakes that are done.
    pub handshakes: Handshakes,
}

/// The numbers of handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handshakes {
    /// The full ones.
    pub full: u64,
    /// The resumed ones, from the cache or from a ticket, Rejoin's or the program's own.
    pub resumed: u64,
}

/// The reason for which bytes are no board that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// They are not Rejoin's.
    Foreign,
    /// Another version of Rejoin wrote them.
    OtherVersion(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("its memory is not Rejoin's"),
            Self::OtherVersion(version) => write!(
                f,
                "it has Rejoin {version}, whose memory this version cannot read: restart it, or use that version's command"
            ),
        }
    }
}

impl Notes {
    /// The memory's name in `/proc/PID/maps`.
    pub const MAPPING: &str = Family::MAPPING;
    /// The number of bytes that are read, from the start of that memory.
    pub const BYTES: usize = size_of::<Board>();

    /// Reads a copy of a board. The bytes may be anything.
    ///
    /// # Errors
    /// The reason for which they are not a board of this version.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let board = Board::copied(bytes).ok_or(Unreadable::Foreign)?;
        if board.magic.load(Relaxed) != MAGIC {
            return Err(Unreadable::Foreign);
        }
        let version = board.version.get();
        if board.layout.load(Relaxed) != LAYOUT {
            return Err(Unreadable::OtherVersion(version));
        }
        let contexts = contexts(&board.contexts);
        let listed = contexts.iter().fold(Handshakes::default(), |sum, of| sum.and(of.handshakes));
        let is_claimed = |slot: &&ProcessSlot| slot.claim.load(Relaxed) != 0;
        Ok(Self {
            version,
            standing: standing(number(&board.standing)),
            features: Features::of_bits(number(&board.features)),
            connections: number(&board.connections),
            connecting: number(&board.connecting),
            serving: number(&board.serving),
            unattached: number(&board.unattached),
            refused_contexts: number(&board.refused),
            handshakes: listed.and(Handshakes::of(&board.earlier_contexts)),
            of_other_processes: Handshakes::of(&board.earlier_processes),
            contexts,
            processes: board.processes.iter().filter(is_claimed).map(ProcessNotes::of).collect(),
            texts: board.texts.each_ref().map(Text::get),
        })
    }

    /// Returns a text, or `None` if it is empty.
    pub fn text(&self, subject: Subject) -> Option<&str> {
        Some(self.texts[subject as usize].as_str()).filter(|text| !text.is_empty())
    }
}

impl Board {
    /// Copies a board. `None` if the bytes are too few.
    fn copied(bytes: &[u8]) -> Option<Box<Self>> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: as many bytes as a board has. It consists of integers, of which every value is valid, and the read does
        // not depend on how the bytes are aligned.
        Some(Box::new(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }))
    }
}

/// Returns the notes of contexts. One that two processes gave a slot each is still one context.
fn contexts(slots: &[ContextSlot]) -> Vec<ContextNotes> {
    let mut seen: Vec<(u64, ContextNotes)> = Vec::new();
    for slot in slots {
        let (mark, notes) = (number(&slot.mark), ContextNotes::of(slot));
        match seen.iter_mut().find(|(of, _)| *of == mark) {
            Some((_, first)) => first.add(&notes),
            None if mark != 0 => seen.push((mark, notes)),
            None => {}
        }
    }
    seen.into_iter().map(|(_, notes)| notes).collect()
}

impl ContextNotes {
    fn of(slot: &ContextSlot) -> Self {
        let outcomes = [Outcome::Attached, Outcome::NoCache, Outcome::EarlyData, Outcome::Off];
        let sharing = [Certificates::Shared, Certificates::Context, Certificates::Process];
        let (outcome, certificates) = (number(&slot.outcome), number(&slot.certificates));
        Self {
            name: Some(slot.name.get()).filter(|name| !name.is_empty() && name != NAMELESS),
            outcome: outcomes.into_iter().find(|known| *known as u64 == outcome),
            began: slot.began.each_ref().map(number),
            handshakes: Handshakes::of(&slot.handshakes),
            last_ms: number(&slot.last_ms),
            certificates: sharing.into_iter().find(|known| *known as u64 == certificates),
        }
    }

    fn add(&mut self, more: &Self) {
        let began = self.began.iter_mut().zip(more.began);
        began.for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.handshakes = self.handshakes.and(more.handshakes);
        self.last_ms = self.last_ms.max(more.last_ms);
    }
}

impl ProcessNotes {
    fn of(slot: &ProcessSlot) -> Self {
        Self {
            id: number(&slot.id),
            since_ms: number(&slot.since_ms),
            last_ms: number(&slot.last_ms),
            handshakes: Handshakes::of(&slot.handshakes),
        }
    }
}

impl Handshakes {
    fn of(counts: &Counts) -> Self {
        Self { full: number(&counts.full), resumed: number(&counts.resumed) }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let full = self.full.saturating_add(more.full);
        Self { full, resumed: self.resumed.saturating_add(more.resumed) }
    }

    /// Returns the number of all handshakes.
    pub fn all(self) -> u64 {
        self.full.saturating_add(self.resumed)
    }
}

fn number(word: &AtomicU64) -> u64 {
    word.load(Relaxed)
}

fn standing(number: u64) -> Option<Standing> {
    let known = [Standing::Ready, Standing::Open, Standing::Trying, Standing::GaveUp];
    known.into_iter().find(|known| *known as u64 == number)
}

#[cfg(test)]
mod tests {
    use super::super::{CONTEXTS, IDLE_MS, PROCESSES, Place};
    use super::*;

    fn memory() -> Family {
        Family::new().expect("memory")
    }

    fn bytes(board: &Board) -> &[u8] {
        // SAFETY: the family's memory, all of which was zero before this test wrote to it. It is read at once.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(board).cast(), Notes::BYTES) }
    }

    fn read(board: &Board) -> Notes {
        Notes::read(bytes(board)).expect("a board")
    }

    fn place(mark: usize) -> Place {
        Place::marked(mark as u64)
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let family = memory();
        let board = family.board();
        board.texts[Subject::Cache as usize].set("web");
        board.texts[Subject::Trouble as usize].set(&"ä".repeat(300));
        let slot = board.context(&place(7)).expect("a slot");
        slot.name.set("www.example.org");
        slot.outcome.store(Outcome::EarlyData as u64, Relaxed);
        slot.handshakes.count(true);
        let notes = read(board);
        assert_eq!((notes.text(Subject::Cache), notes.text(Subject::Folder)), (Some("web"), None));
        assert_eq!(notes.text(Subject::Trouble), Some(&*"ä".repeat(124)));
        let [context] = &notes.contexts[..] else { panic!("{notes:?}") };
        assert_eq!(
            (context.name.as_deref(), context.outcome),
            (Some("www.example.org"), Some(Outcome::EarlyData))
        );
        assert_eq!(notes.handshakes, Handshakes { full: 0, resumed: 1 });
        assert_eq!(notes.version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn other_bytes_are_refused_or_read_within_bounds() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let foreign: Vec<u8> = (0..Notes::BYTES).map(|_| random()).collect();
        assert_eq!(Notes::read(&foreign), Err(Unreadable::Foreign));
        assert_eq!(Notes::read(&foreign[1..]), Err(Unreadable::Foreign));
        assert_eq!(Notes::read(&[]), Err(Unreadable::Foreign));
        let mut hostile = foreign;
        let head = bytes(memory().board())[..16].to_vec();
        hostile[..16].copy_from_slice(&head);
        let notes = Notes::read(&hostile).expect("it claims to be one");
        assert!(notes.contexts.len() <= CONTEXTS && notes.processes.len() <= PROCESSES);
        hostile[8] = 99;
        assert!(matches!(Notes::read(&hostile), Err(Unreadable::OtherVersion(_))));
    }

    #[test]
    fn contexts_beyond_the_last_slot_are_counted_until_one_is_idle() {
        let family = memory();
        let board = family.board();
        let places: Vec<Place> = (1..=CONTEXTS + 1).map(place).collect();
        let found = |at: usize| board.context(&places[at]).map(std::ptr::from_ref);
        assert!((0..CONTEXTS).all(|at| found(at).is_some() && found(at) == found(at)));
        assert_eq!((found(CONTEXTS), found(CONTEXTS)), (None, None));
        board.count(&places[CONTEXTS], false, rejoin_store::now_ms());
        let notes = read(board);
        assert_eq!((notes.refused_contexts, notes.handshakes.full), (1, 1));
        let idle = &board.contexts[5];
        idle.handshakes.count(false);
        idle.last_ms.store(rejoin_store::now_ms() - IDLE_MS, Relaxed);
        assert_eq!(
            board.context(&place(1_000)).map(std::ptr::from_ref),
            Some(std::ptr::from_ref(idle))
        );
        assert_eq!(found(5), None, "its slot is another's, and all others are in use");
        assert_eq!(read(board).handshakes, Handshakes { full: 2, resumed: 0 });
    }

    #[test]
    fn a_context_that_found_no_slot_asks_again_a_minute_later() {
        let family = memory();
        let board = family.board();
        let places: Vec<Place> = (1..=CONTEXTS + 1).map(place).collect();
        let late = &places[CONTEXTS];
        assert!(places[..CONTEXTS].iter().all(|place| board.context(place).is_some()));
        assert!(board.context(late).is_none());
        let long_ago_ms = rejoin_store::now_ms() - IDLE_MS;
        late.refused_ms.store(long_ago_ms, Relaxed);
        assert!(board.context(late).is_none(), "all others are in use");
        assert_eq!(read(board).refused_contexts, 1, "it counts once");
        board.contexts[5].last_ms.store(long_ago_ms, Relaxed);
        assert!(board.context(late).is_none(), "it does not look at every handshake");
        late.refused_ms.store(long_ago_ms, Relaxed);
        board.count(late, true, rejoin_store::now_ms());
        assert_eq!(board.contexts[5].mark.load(Relaxed), late.mark);
        assert_eq!(read(board).handshakes, Handshakes { full: 0, resumed: 1 });
        assert_eq!(Handshakes::of(&board.contexts[5].handshakes).resumed, 1);
    }

    #[test]
    fn the_process_that_came_last_long_ago_loses_its_slot() {
        let family = memory();
        let board = family.board();
        let noted: Vec<AtomicU64> = (0..=PROCESSES).map(|_| AtomicU64::new(0)).collect();
        for (at, noted) in noted.iter().enumerate() {
            let slot = board.process(noted, 1_000 + at as u64).expect("a slot");
            slot.handshakes.count(at % 2 == 1);
        }
        let notes = read(board);
        assert_eq!(notes.processes.len(), PROCESSES);
        assert_eq!(notes.of_other_processes, Handshakes { full: 1, resumed: 0 });
        assert_eq!(notes.processes[0].since_ms, 1_000 + PROCESSES as u64);
        let before = noted[0].load(Relaxed);
        let again = board.process(&noted[0], 9_000).expect("a slot");
        assert!(noted[0].load(Relaxed) != before && again.since_ms.load(Relaxed) == 9_000);
    }
}
