//! The settings of a store, as a C structure.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_char, size_t};
use rejoin_cache::{Capacity, Fairness, Policy, Settings, SourceBy};
use rejoin_store::{CacheName, Store};

use super::failure::Failure;
use super::sized;

/// `policy`: evict the session whose client is expected back last.
pub const REJOIN_POLICY_PREDICTIVE: u64 = 0;

/// `policy`: evict the session that was least recently used.
pub const REJOIN_POLICY_LRU: u64 = 1;

/// The settings of a store. Zero is a valid value of every other field, so
/// `{.struct_size = sizeof(rejoin_settings)}` is enough.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinSettings {
    /// `sizeof(rejoin_settings)`. It tells the library which version the program was compiled with.
    pub struct_size: size_t,
    /// The store's name: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, the first not a dot. Null:
    /// `default`.
    pub name: *const c_char,
    /// The folder of the stores. Null: `/dev/shm`.
    pub folder: *const c_char,
    /// The store's size in bytes. 0: the store must exist already, and keeps its own settings.
    pub capacity_bytes: u64,
    /// The session to evict when the store is full: `REJOIN_POLICY_PREDICTIVE` or `REJOIN_POLICY_LRU`.
    /// Ignored without a capacity.
    pub policy: u64,
    /// The most that the clients of one source can take of the store, in percent, 1 to 100. 0: no bound. Ignored without
    /// a capacity.
    pub source_percent: u64,
    /// The data by which sources are told apart: `REJOIN_SOURCE_ADDRESS`, `REJOIN_SOURCE_CERTIFICATE` or
    /// `REJOIN_SOURCE_NAME`.
    pub source_by: u64,
}

/// `source_by`: the client's network, 24 bits of an IPv4 address, 48 of an IPv6 address. The connection's socket must be
/// known to libssl (`SSL_set_fd`).
pub const REJOIN_SOURCE_ADDRESS: u64 = 0;

/// `source_by`: the client's certificate.
pub const REJOIN_SOURCE_CERTIFICATE: u64 = 1;

/// `source_by`: the name of the host that the client asks for.
pub const REJOIN_SOURCE_NAME: u64 = 2;

impl RejoinSettings {
    const ZERO: Self = Self {
        struct_size: 0,
        name: std::ptr::null(),
        folder: std::ptr::null(),
        capacity_bytes: 0,
        policy: REJOIN_POLICY_PREDICTIVE,
        source_percent: 0,
        source_by: REJOIN_SOURCE_ADDRESS,
    };

    /// Copies the program's structure. Fields that it was compiled without are zero.
    ///
    /// # Safety
    /// `given` is null, or points to as many bytes as its `struct_size` says.
    pub(super) unsafe fn read(given: *const Self) -> Result<Self, Failure> {
        // SAFETY: the caller vouches for `given`; any bytes are valid numbers and pointers.
        unsafe { sized::read(given, Self::ZERO, "settings", "rejoin_settings") }
    }

    /// Opens the store.
    ///
    /// # Safety
    /// Each text is null or ends in a 0.
    pub(super) unsafe fn open(&self) -> Result<Store, Failure> {
        // SAFETY: the caller vouches for the name.
        let name = unsafe { text(self.name) }.unwrap_or(b"default");
        // SAFETY: the caller vouches for the folder.
        let folder = unsafe { text(self.folder) }.unwrap_or(Store::FOLDER.as_bytes());
        let name: CacheName = String::from_utf8_lossy(name).parse()?;
        let settings = self.settings()?;
        Ok(Store::open(Path::new(OsStr::from_bytes(folder)), &name, settings.as_ref())?)
    }

    fn settings(&self) -> Result<Option<Settings>, Failure> {
        let policy = match self.policy {
            REJOIN_POLICY_PREDICTIVE => Policy::Predictive,
            REJOIN_POLICY_LRU => Policy::Lru,
            policy => return Err(Failure::bad(format!("policy = {policy}: no such policy"))),
        };
        let by = match self.source_by {
            REJOIN_SOURCE_ADDRESS => SourceBy::Address,
            REJOIN_SOURCE_CERTIFICATE => SourceBy::Certificate,
            REJOIN_SOURCE_NAME => SourceBy::Name,
            by => return Err(Failure::bad(format!("source_by = {by}: no such data"))),
        };
        let fairness = match self.source_percent {
            0 => None,
            percent @ 1..=100 => Some(Fairness { by, percent: percent as u32 }),
            percent => {
                return Err(Failure::bad(format!("source_percent = {percent}: write 0 to 100")));
            }
        };
        let capacity = (self.capacity_bytes > 0).then_some(Capacity::Bytes(self.capacity_bytes));
        Ok(capacity.map(|capacity| Settings { policy, fairness, ..Settings::new(capacity) }))
    }
}

/// Borrows a text, if it is not null.
///
/// # Safety
/// `text` is null, or ends in a 0 and lives for `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for `text`, which is not null.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_share() {
        let given = RejoinSettings { capacity_bytes: 1 << 20, ..RejoinSettings::ZERO };
        let fairness = |source_percent, source_by| {
            let settings = RejoinSettings { source_percent, source_by, ..given }.settings();
            settings.ok().flatten().map(|settings| settings.fairness)
        };
        let of = |by, percent| Some(Some(Fairness { by, percent }));
        assert_eq!(fairness(0, REJOIN_SOURCE_ADDRESS), Some(None));
        assert_eq!(fairness(1, REJOIN_SOURCE_ADDRESS), of(SourceBy::Address, 1));
        assert_eq!(fairness(10, REJOIN_SOURCE_CERTIFICATE), of(SourceBy::Certificate, 10));
        assert_eq!(fairness(100, REJOIN_SOURCE_NAME), of(SourceBy::Name, 100));
        assert_eq!(fairness(101, REJOIN_SOURCE_NAME), None);
        assert_eq!(fairness(10, 3), None);
    }
}
