//! Memory that a process shares with all processes that it forks: its family.
//!
//! A server makes its contexts, and then forks its workers, or a process for each connection. One of them learns in a
//! handshake what the next one needs in its first.
//!
//! The memory is made with the first context, and has no name in any folder. Any process of the family may write
//! anything there at any time: everything is an atomic, and nothing is followed as an address. Its start is the
//! [`Board`], which the owner and root may read from outside.

use std::hash::Hash;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rejoin_store::fill_at_random;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};
use rustix::process::{Resource, getrlimit};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::board::Board;

/// The memory, as one process has it.
#[derive(Debug)]
pub(crate) struct Family {
    shared: &'static Shared,
    /// The secret of keys, which was drawn before any process was forked.
    secret: [u8; 16],
    /// The claim of this process on the board. The kernel makes it 0 in a process that is forked; `None` where it cannot.
    noted: Option<&'static AtomicU64>,
}

/// The shared memory, which begins as zeros.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    board: Board,
    table: [[Entry; WAYS]; SETS],
    /// The number of entries that took the place of others.
    replaced: AtomicU64,
}

/// The places of one value.
const WAYS: usize = 4;
/// 128 KiB in all, of which the kernel gives what is used.
const SETS: usize = 1_024;

/// A value and its mark, which is the key changed by the value. A value that two processes wrote at the same time fits
/// no key.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    mark: [AtomicU64; 2],
    value: [AtomicU64; 2],
}

/// A value: 16 bytes.
pub(crate) type Value = [u8; 16];

/// The key of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u64; 2]);

/// Returns 16 random bytes, which no other process has. (Not OpenSSL's: it may be initialising itself.)
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Once it has started, the kernel always has some.
    let _ = fill_at_random(&mut bytes);
    bytes
}

static FAMILY: OnceLock<Option<Family>> = OnceLock::new();

/// Makes the memory, unless it is there. To be called before processes are forked.
pub(crate) fn make() {
    FAMILY.get_or_init(|| Family::new().ok());
}

/// Returns the memory, or `None` if it was not made, or the kernel had none: then forked processes make full handshakes
/// where they could have resumed.
pub(crate) fn family() -> Option<&'static Family> {
    FAMILY.get()?.as_ref()
}

impl Family {
    /// The memory's name in `/proc/PID/maps`.
    pub(crate) const MAPPING: &str = "/memfd:rejoin (deleted)";
    const NAME: &str = "rejoin";

    pub(crate) fn new() -> Result<Self, Errno> {
        const BYTES: usize = size_of::<Shared>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = match Self::file(BYTES) {
            // SAFETY: a new mapping, at no address that is in use.
            Ok(file) => unsafe {
                mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0)
            },
            // SAFETY: a new mapping, at no address that is in use.
            Err(_) => unsafe {
                mmap_anonymous(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED)
            },
        }?;
        // SAFETY: a mapping of this size, aligned to a page, which is never unmapped. Every value is valid, and every
        // field an atomic.
        let shared = unsafe { &*mapped.cast::<Shared>() };
        shared.board.begin();
        Ok(Self { shared, secret: random(), noted: Self::forgotten_in_forks().ok() })
    }

    /// Returns a number of this process alone, which is 0 in processes that it forks.
    fn forgotten_in_forks() -> Result<&'static AtomicU64, Errno> {
        const BYTES: usize = size_of::<AtomicU64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping, at no address that is in use.
        let mapped = unsafe { mmap_anonymous(nowhere, BYTES, protection, MapFlags::PRIVATE) }?;
        // SAFETY: the mapping above, which nobody else has.
        unsafe { madvise(mapped, BYTES, Advice::LinuxWipeOnFork) }?;
        // SAFETY: a mapping of a page, which is never unmapped. Every value of an atomic is valid.
        Ok(unsafe { &*mapped.cast::<AtomicU64>() })
    }

    pub(crate) fn board(&self) -> &Board {
        &self.shared.board
    }

    /// Returns the claim of this process on the board, which is 0 if it has none.
    pub(crate) fn noted(&self) -> Option<&AtomicU64> {
        self.noted
    }

    /// Returns a digest of a context's identity, which is never 0.
    pub(crate) fn mark(&self, identity: &[u8; 16]) -> u64 {
        let Key([_, mark]) = self.key(identity);
        mark
    }

    /// Makes a file in memory, which nobody can cut short.
    fn file(bytes: usize) -> Result<std::os::fd::OwnedFd, Errno> {
        // Beyond this limit the kernel would not only refuse, but send a signal (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|longest| longest < bytes as u64) {
            return Err(Errno::FBIG);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = |flags| memfd_create(Self::NAME, flags);
        // Older kernels know no `NOEXEC_SEAL`.
        let file = made(flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| made(flags))?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Returns the key of what is hashed. Keys differ between families, and clients cannot choose two that are the same.
    pub(crate) fn key(&self, of: &impl Hash) -> Key {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        of.hash(&mut hasher);
        let hash = hasher.finish128();
        // No key is 0, as an empty entry's is.
        Key([hash.h1, hash.h2 | 1])
    }

    /// Returns the value of a key, if any process of the family has put one.
    pub(crate) fn get(&self, key: Key) -> Option<Value> {
        self.entries(key).iter().find_map(|entry| entry.get(key))
    }

    /// Puts a value in the place of the key's earlier one, of none, or of another's.
    pub(crate) fn put(&self, key: Key, value: Value) {
        let entries = self.entries(key);
        let mut of_key = entries.iter().filter(|entry| entry.get(key).is_some());
        let place = of_key.next().or_else(|| entries.iter().find(|entry| entry.is_empty()));
        // Two processes may have put the same key.
        of_key.for_each(Entry::clear);
        let another =
            || &entries[self.shared.replaced.fetch_add(1, Ordering::Relaxed) as usize % WAYS];
        place.unwrap_or_else(another).put(key, value);
    }

    fn entries(&self, Key([low, _]): Key) -> &[Entry; WAYS] {
        &self.shared.table[low as usize % SETS]
    }
}

impl Entry {
    fn get(&self, key: Key) -> Option<Value> {
        let [mark, value] = [&self.mark, &self.value]
            .map(|words| words.each_ref().map(|word| word.load(Ordering::Relaxed)));
        (mark == changed(key, value)).then(|| bytes(value))
    }

    fn put(&self, key: Key, value: Value) {
        let value = words(value);
        let store = |to: &[AtomicU64; 2], words: [u64; 2]| {
            to.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        };
        store(&self.value, value);
        store(&self.mark, changed(key, value));
    }

    fn is_empty(&self) -> bool {
        self.mark.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    fn clear(&self) {
        self.mark.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Changes a key by a value, so that neither half of the mark fits another value.
fn changed(Key([low, high]): Key, [first, second]: [u64; 2]) -> [u64; 2] {
    [low ^ first ^ second.rotate_left(31), high ^ second ^ first.rotate_left(17)]
}

fn words(bytes: Value) -> [u64; 2] {
    let number = u128::from_ne_bytes(bytes);
    [number as u64, (number >> 64) as u64]
}

fn bytes([low, high]: [u64; 2]) -> Value {
    (u128::from(low) | u128::from(high) << 64).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(of: u64) -> Value {
        bytes([of.wrapping_mul(0x9e37_79b9_7f4a_7c15), !of])
    }

    #[test]
    fn the_last_value_of_a_key_is_had_by_a_forked_process_too() {
        let family = Family::new().expect("memory");
        for of in 0..50_u64 {
            assert_eq!(family.get(family.key(&of)), None);
            family.put(family.key(&of), value(of + 1));
            family.put(family.key(&of), value(of));
        }
        assert!((0..50_u64).all(|of| family.get(family.key(&of)) == Some(value(of))));
        // SAFETY: the child changes shared memory, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            family.put(family.key(&7_u64), value(700));
            // SAFETY: it ends this process, and runs nothing of the parent's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: it waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(family.get(family.key(&7_u64)), Some(value(700)));
    }

    #[test]
    fn many_keys_take_the_places_of_others_and_none_is_mistaken() {
        let family = Family::new().expect("memory");
        let many = 20 * (SETS * WAYS) as u64;
        (0..many).for_each(|of| family.put(family.key(&of), value(of)));
        let had = (0..many).filter(|of| {
            let found = family.get(family.key(of));
            assert!(found.is_none_or(|found| found == value(*of)));
            found.is_some()
        });
        assert!(had.count() > SETS * WAYS * 9 / 10);
    }

    #[test]
    fn values_that_were_torn_are_none() {
        let family = Family::new().expect("memory");
        let (one, other) = (family.key(&1), family.key(&2));
        let entry = &family.entries(one)[0];
        for [first, second] in [[value(1), value(2)], [[0; 16], value(2)], [value(1), [0; 16]]] {
            let (mark, of) = (changed(one, words(first)), words(second));
            for torn in [[of[0], of[1]], [of[0], words(first)[1]], [words(first)[0], of[1]]] {
                (0..2).for_each(|at| entry.mark[at].store(mark[at], Ordering::Relaxed));
                (0..2).for_each(|at| entry.value[at].store(torn[at], Ordering::Relaxed));
                assert_eq!((family.get(one), family.get(other)), (None, None));
            }
        }
    }
}
