//! Values of ours for OpenSSL's objects, in tables of our own. OpenSSL only tells when it frees an object.
//!
//! Programs write and read extra data under indices that they never asked for: FreeRADIUS 3.2 does so under 1, and under
//! 10 to 16, of an `SSL`. So nothing of ours is in an object's extra data, where a program could replace it, or follow it
//! as a pointer of its own. OpenSSL calls the function of an index for each object of a class that it frees,
//! whatever the object has under the index (`CRYPTO_get_ex_new_index(3)`).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use libc::{c_int, c_long, c_void};
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX};

use crate::ffi::{self, ExData};
use crate::guard::guard;

/// A class of OpenSSL's objects that have extra data.
///
/// # Safety
/// The class is that of the type: OpenSSL calls the class's functions before it frees such an object.
pub unsafe trait Parent: Sized {
    /// The class's number in `crypto.h`.
    const CLASS: c_int;
}

// SAFETY: `SSL_free(3)` frees the extra data of `CRYPTO_EX_INDEX_SSL`.
unsafe impl Parent for SSL {
    const CLASS: c_int = ffi::CRYPTO_EX_INDEX_SSL;
}

// SAFETY: `SSL_CTX_free(3)` frees the extra data of `CRYPTO_EX_INDEX_SSL_CTX`.
unsafe impl Parent for SSL_CTX {
    const CLASS: c_int = ffi::CRYPTO_EX_INDEX_SSL_CTX;
}

/// A boxed `T` for each `P` that has one. The box is dropped with the object, and goes to no copy of it.
#[derive(Debug)]
pub struct Extra<P, T> {
    table: Table,
    /// True if OpenSSL tells when it frees a `P`, false if it was out of memory.
    is_told: OnceLock<bool>,
    /// The number of values that were taken or replaced.
    gone: AtomicUsize,
    types: PhantomData<fn(*mut P) -> T>,
}

impl<P: Parent + 'static, T: 'static> Extra<P, T> {
    /// Returns an empty place.
    #[expect(clippy::new_without_default, reason = "it is made for statics alone")]
    pub const fn new() -> Self {
        Self {
            table: Table::new(),
            is_told: OnceLock::new(),
            gone: AtomicUsize::new(0),
            types: PhantomData,
        }
    }

    /// Has OpenSSL tell when it frees an object, and, by `made`, when it makes one, unless that was done. The first
    /// [`put`](Self::put) does so, too, without `made`. Returns false if OpenSSL is out of memory.
    pub fn register(&'static self, made: Option<ExData>) -> bool {
        *self.is_told.get_or_init(|| {
            watch_forks();
            TABLES.write().unwrap_or_else(PoisonError::into_inner).push(&self.table);
            let own = std::ptr::from_ref(self).cast_mut().cast();
            ffi::new_index(P::CLASS, made, Some(free::<P, T>), own) >= 0
        })
    }

    /// Returns the number of values that were taken or replaced so far. While it stays, so does each value: an object that
    /// is made at the address of a freed one is made after its value was taken.
    pub(crate) fn gone(&self) -> usize {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the value of an object.
    ///
    /// # Safety
    /// `parent` is valid for `'a`, during which nothing is put or taken there.
    pub unsafe fn get<'a>(&'static self, parent: *const P) -> Option<&'a T> {
        let held = self.table.get(parent.addr())?;
        // SAFETY: `put` made the box for this object; it is dropped when the value is taken or the object freed.
        Some(unsafe { held.0.cast().as_ref() })
    }

    /// Puts a value in the place of the one before, and returns it there. `None` if OpenSSL is out of memory.
    ///
    /// # Safety
    /// `parent` is valid for `'a`, during which nothing else is put or taken there, and nobody has the value before.
    pub unsafe fn put<'a>(&'static self, parent: *mut P, value: T) -> Option<&'a T> {
        if !self.register(None) {
            return None;
        }
        let own = NonNull::from(Box::leak(Box::new(value)));
        let before = self.table.insert(parent.addr(), Held(own.cast()));
        self.gone.fetch_add(usize::from(before.is_some()), Ordering::Relaxed);
        // SAFETY: a box of this function, which is in the table no more.
        drop(before.map(|before| unsafe { before.boxed::<T>() }));
        // SAFETY: the box is dropped when the value is taken or the object freed.
        Some(unsafe { own.as_ref() })
    }

    /// Takes the value from an object.
    ///
    /// # Safety
    /// `parent` is valid or being freed, and nobody has the value.
    pub unsafe fn take(&'static self, parent: *mut P) -> Option<Box<T>> {
        let held = self.table.remove(parent.addr())?;
        self.gone.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a box of `put`, which is in the table no more.
        Some(unsafe { held.boxed() })
    }
}

/// Drops the value of an object that is being freed.
unsafe extern "C" fn free<P: Parent + 'static, T: 'static>(
    parent: *mut c_void,
    _value: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    own: *mut c_void,
) {
    guard((), || {
        let own = own.cast_const().cast::<Extra<P, T>>();
        // SAFETY: the pointer that the index was registered with, to a static; and OpenSSL frees an object once.
        drop(unsafe { own.as_ref() }.and_then(|own| unsafe { own.take(parent.cast()) }));
    });
}

/// The number of shards of a table.
const SHARDS: usize = 64;

/// Boxes by the address of their object.
#[derive(Debug)]
struct Table {
    shards: [Shard; SHARDS],
}

type Boxes = HashTable<(usize, Held)>;

/// A part of a table, with a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(RwLock<Boxes>);

/// A box of a table.
#[derive(Debug, Clone, Copy)]
struct Held(NonNull<()>);

// SAFETY: the table only keeps the pointer. Whoever gets the value vouches for what threads do with it.
unsafe impl Send for Held {}
// SAFETY: as for `Send`.
unsafe impl Sync for Held {}

impl Held {
    /// # Safety
    /// The pointer is that of a leaked `Box<T>`, which nobody else has.
    unsafe fn boxed<T>(self) -> Box<T> {
        // SAFETY: the caller vouches for the box.
        unsafe { Box::from_raw(self.0.cast().as_ptr()) }
    }
}

impl Shard {
    fn read(&self) -> RwLockReadGuard<'_, Boxes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Boxes> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    const fn new() -> Self {
        Self { shards: [const { Shard(RwLock::new(HashTable::new())) }; SHARDS] }
    }

    fn get(&self, address: usize) -> Option<Held> {
        let hash = hash(address);
        let boxes = self.shard(hash).read();
        boxes.find(hash, |(known, _)| *known == address).map(|(_, held)| *held)
    }

    /// Returns the box that the object had before.
    fn insert(&self, address: usize, held: Held) -> Option<Held> {
        let hash = hash(address);
        let mut boxes = self.shard(hash).write();
        match boxes.entry(hash, |(known, _)| *known == address, |(known, _)| self::hash(*known)) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(&mut entry.get_mut().1, held)),
            Entry::Vacant(entry) => {
                entry.insert((address, held));
                None
            }
        }
    }

    fn remove(&self, address: usize) -> Option<Held> {
        let hash = hash(address);
        let mut boxes = self.shard(hash).write();
        let entry = boxes.find_entry(hash, |(known, _)| *known == address).ok()?;
        Some(entry.remove().0.1)
    }

    /// Returns the shard of a hash. The table itself takes the lowest bits and the highest.
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

/// Has fork(2) wait until no thread is inside a table of an [`Extra`]: a child would find it locked, or half changed, for
/// ever. The first value that is put does so, too. The handlers of `pthread_atfork`(3) run in the reverse order of their
/// registration, so whoever uses an `Extra` under a lock that fork(2) waits for, too, calls this first, and registers the
/// handlers of that lock afterwards.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the functions live as long as the program, because this library is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
        }
    });
}

/// The tables that are in use.
static TABLES: RwLock<Vec<&'static Table>> = RwLock::new(Vec::new());

/// The locks that a thread holds while it forks.
struct Locks {
    _tables: RwLockReadGuard<'static, Vec<&'static Table>>,
    _shards: Vec<RwLockWriteGuard<'static, Boxes>>,
}

thread_local! {
    // Not dropped with the thread: it is empty then, and a destructor could not run in every child.
    static HELD: ManuallyDrop<RefCell<Option<Locks>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

extern "C" fn before_fork() {
    let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
    let shards = tables.iter().flat_map(|table| &table.shards).map(Shard::write).collect();
    HELD.with(|held| held.replace(Some(Locks { _tables: tables, _shards: shards })));
}

extern "C" fn after_fork() {
    HELD.with(|held| drop(held.take()));
}

/// The hash of an address, by Knuth's multiplicative hashing: the high bits depend on all others, and are mixed into the
/// low ones.
fn hash(address: usize) -> u64 {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of objects of one size, as an allocator returns them, are spread over the shards.
    #[test]
    fn no_shard_has_much_more_than_its_part() {
        let table = Table::new();
        let mut counts = [0; SHARDS];
        for address in (0..64_000_usize).map(|object| 0x7f00_0000_0010 + object * 6_272) {
            let shard = std::ptr::from_ref(table.shard(hash(address))).addr();
            counts[(shard - table.shards.as_ptr().addr()) / size_of::<Shard>()] += 1;
        }
        assert!(counts.iter().all(|count| (500..2_000).contains(count)), "{counts:?}");
    }
}
