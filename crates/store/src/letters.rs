//! The letters of servers to a cluster's agent, in a ring of lines.

use rejoin_cache::{ContextTag, Line, SessionId};

use crate::desk::Asker;

/// A letter from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    /// The session that it is about.
    pub id: SessionId,
    /// The context that the session was made in.
    pub context: ContextTag,
    /// The event, or the request.
    pub says: Says,
}

/// An event in the life of a session, or a request for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// The session is in the cache, new or changed.
    Stored,
    /// The session's client was here.
    Seen,
    /// The session's client holds a newer one.
    Retired,
    /// The session must not be resumed any more, anywhere.
    Removed,
    /// The session is missing here, and an asker waits for it.
    Wanted(Asker),
    /// Like [`Self::Wanted`], for a single use: afterwards no other machine may have it.
    Taken(Asker),
}

/// A letter as it lies in the ring: a line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Written {
    says: u32,
    context: u32,
    seat: u32,
    word: u32,
    id_length: u32,
    unused: [u32; 3],
    id: [u8; SessionId::LONGEST],
}

/// The ends of the ring, in the line before it.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Ends {
    pub(crate) read: u32,
    pub(crate) written: u32,
    unused: [u32; 14],
}

/// Letters that the ring has room for.
const LETTERS: usize = 4_096;

/// Lines that the ring takes, with its ends.
pub(crate) const LINES: usize = 1 + LETTERS;

impl Ends {
    /// Returns the number of letters in the ring, or more if the ends were written over.
    pub(crate) fn waiting(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }
}

/// Divides the lines into the ends and the ring, and empties the ring if its ends make no sense.
pub(crate) fn parts(lines: &mut [Line], torn: bool) -> (&mut Ends, &mut [Line]) {
    let (first, ring) = lines.split_first_mut().expect("as long as a mailbox");
    let ends: &mut Ends = bytemuck::cast_mut(first);
    if torn || ends.waiting() > ring.len() {
        ends.read = ends.written;
    }
    (ends, ring)
}

impl Written {
    pub(crate) fn of(letter: &Letter) -> Self {
        let (says, asker) = match letter.says {
            Says::Stored => (1, None),
            Says::Seen => (2, None),
            Says::Removed => (3, None),
            Says::Wanted(asker) => (4, Some(asker)),
            Says::Taken(asker) => (5, Some(asker)),
            Says::Retired => (6, None),
        };
        let Asker { seat, word } = asker.unwrap_or_default();
        let bytes = letter.id.as_bytes();
        let mut id = [0; SessionId::LONGEST];
        id[..bytes.len()].copy_from_slice(bytes);
        let ContextTag(context) = letter.context;
        Self { says, context, seat, word, id_length: bytes.len() as u32, unused: [0; 3], id }
    }

    /// Returns the letter, or `None` if the line holds none.
    pub(crate) fn letter(&self) -> Option<Letter> {
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

const _: () = assert!(size_of::<Written>() == size_of::<Line>());
const _: () = assert!(size_of::<Ends>() == size_of::<Line>());
