//! A ring as one page of bytes, for memory that processes share and for a file.
//!
//! ```text
//!  0  "rejoinSK", 8 bytes      | version, 4 | number of keys, 4
//! 16  rotate_every_s, 8        | ticket_lifetime_s, 8 | lead_s, 8
//! 40  keys, each 48 bytes: created_s, 8 | encrypts_from_s, 8 | secret, 32
//!     zeros
//! 4064  SHA-256 of all before, 32
//! ```
//! Numbers are little-endian. The checksum tells a page that was written to its end from one that
//! was not; it is no protection from somebody who can write it.

use aws_lc_rs::digest;
use zeroize::Zeroize;

use crate::error::Error;
use crate::key::{RingKey, SECRET_BYTES};
use crate::ring::KeyRing;
use crate::schedule::Schedule;
use crate::secret::Secret;
use crate::timeline::Timed;

/// The size of a ring as a page, in bytes.
pub const PAGE_BYTES: usize = 4_096;

const MAGIC: [u8; 8] = *b"rejoinSK";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 32;
const CHECKED_BYTES: usize = PAGE_BYTES - CHECKSUM_BYTES;
const KEYS_AT: usize = 40;
const KEY_BYTES: usize = 16 + SECRET_BYTES;
const _: () = assert!(KEYS_AT + KeyRing::MOST_KEYS * KEY_BYTES <= CHECKED_BYTES);

impl KeyRing {
    /// Writes the ring over the whole page, which then holds its secrets: wipe it after use.
    pub fn to_page(&self, page: &mut [u8; PAGE_BYTES]) {
        page.zeroize();
        let schedule = self.schedule();
        let mut writer = Writer { rest: page };
        writer.put(&MAGIC);
        writer.put(&VERSION.to_le_bytes());
        writer.put(&(self.timeline.keys.len() as u32).to_le_bytes());
        writer.put(&schedule.rotate_every_s().to_le_bytes());
        writer.put(&schedule.ticket_lifetime_s().to_le_bytes());
        writer.put(&schedule.lead_s().to_le_bytes());
        for Timed { key, created_s, encrypts_from_s } in &self.timeline.keys {
            writer.put(&created_s.to_le_bytes());
            writer.put(&encrypts_from_s.to_le_bytes());
            writer.put(key.secret().bytes());
        }
        let checksum = digest::digest(&digest::SHA256, &page[..CHECKED_BYTES]);
        page[CHECKED_BYTES..].copy_from_slice(checksum.as_ref());
    }

    /// Reads the ring on a page.
    ///
    /// # Errors
    /// [`Error::BadPage`] for a page that [`Self::to_page`] would not write, [`Error::UnknownVersion`]
    /// for a later version, and those of [`Schedule::new`].
    pub fn from_page(page: &[u8; PAGE_BYTES]) -> Result<Self, Error> {
        let mut reader = Reader { rest: page };
        if reader.take()? != MAGIC {
            return Err(bad("it does not begin as one"));
        }
        let version = u32::from_le_bytes(reader.take()?);
        if version != VERSION {
            return Err(Error::UnknownVersion { version, known: VERSION });
        }
        let checksum = digest::digest(&digest::SHA256, &page[..CHECKED_BYTES]);
        if checksum.as_ref() != &page[CHECKED_BYTES..] {
            return Err(bad("its checksum is wrong"));
        }
        let keys = u32::from_le_bytes(reader.take()?) as usize;
        if keys > Self::MOST_KEYS {
            return Err(bad("it has too many keys"));
        }
        let mut ring =
            Self::new(Schedule::new(reader.number()?, reader.number()?, reader.number()?)?);
        (0..keys).try_for_each(|_| ring.push(reader.key()?))?;
        if page[KEYS_AT + keys * KEY_BYTES..CHECKED_BYTES].iter().any(|byte| *byte != 0) {
            return Err(bad("something follows its keys"));
        }
        Ok(ring)
    }

    fn push(&mut self, key: Timed<RingKey>) -> Result<(), Error> {
        let keys = &mut self.timeline.keys;
        if keys.iter().any(|other| other.key.id() == key.key.id()) {
            return Err(bad("it has a key twice"));
        }
        if keys.last().is_some_and(|before| before.encrypts_from_s > key.encrypts_from_s) {
            return Err(bad("its keys are out of order"));
        }
        keys.push(key);
        Ok(())
    }
}

fn bad(reason: &'static str) -> Error {
    Error::BadPage { reason }
}

/// The rest of a page that is written.
struct Writer<'p> {
    rest: &'p mut [u8],
}

impl Writer<'_> {
    /// Writes bytes. There is room for the largest ring, as is asserted above.
    fn put(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
    }
}

/// The rest of a page that is read.
struct Reader<'p> {
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    fn take_ref<const BYTES: usize>(&mut self) -> Result<&'p [u8; BYTES], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| bad("it ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Error> {
        self.take_ref().copied()
    }

    fn number(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn key(&mut self) -> Result<Timed<RingKey>, Error> {
        let (created_s, encrypts_from_s) = (self.number()?, self.number()?);
        let key = RingKey::new(Secret::copy_of(self.take_ref()?))
            .map_err(|_| bad("one of its keys is all zeros"))?;
        Ok(Timed { key, created_s, encrypts_from_s })
    }
}
