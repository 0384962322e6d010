//! A store's settings, as a C program gives them.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_char, size_t};
use rejoin_cache::{Capacity, Policy, Settings};
use rejoin_store::{CacheName, Store};

use super::failure::Failure;
use super::sized;

/// `policy`: whoever is expected back last goes first.
pub const REJOIN_POLICY_PREDICTIVE: u64 = 0;

/// `policy`: whoever was not there for longest goes first.
pub const REJOIN_POLICY_LRU: u64 = 1;

/// What store to open. All that is zero has a meaning, so that
/// `{.struct_size = sizeof(rejoin_settings)}` are settings.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinSettings {
    /// `sizeof(rejoin_settings)`, by which the library knows what the program was compiled with.
    pub struct_size: size_t,
    /// The store's name: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, the first not a dot. Null:
    /// `default`.
    pub name: *const c_char,
    /// Where stores lie. Null: `/dev/shm`.
    pub folder: *const c_char,
    /// Bytes that it may take. 0: it must be there, made by somebody else, and has its own settings.
    pub capacity_bytes: u64,
    /// `REJOIN_POLICY_PREDICTIVE` or `REJOIN_POLICY_LRU`: who goes when there is no room. Only looked
    /// at with a capacity.
    pub policy: u64,
}

impl RejoinSettings {
    const ZERO: Self = Self {
        struct_size: 0,
        name: std::ptr::null(),
        folder: std::ptr::null(),
        capacity_bytes: 0,
        policy: REJOIN_POLICY_PREDICTIVE,
    };

    /// A copy of what the program gave: what it was compiled without is zero.
    ///
    /// # Safety
    /// `given` is null, or points to as many bytes as it says.
    pub(super) unsafe fn read(given: *const Self) -> Result<Self, Failure> {
        // SAFETY: the caller vouches for it; any bytes are numbers and pointers.
        unsafe { sized::read(given, Self::ZERO, "settings", "rejoin_settings") }
    }

    /// # Safety
    /// The texts are null, or end in a 0.
    pub(super) unsafe fn open(&self) -> Result<Store, Failure> {
        // SAFETY: the caller vouches for it.
        let name = unsafe { text(self.name) }.unwrap_or(b"default");
        // SAFETY: as above.
        let folder = unsafe { text(self.folder) }.unwrap_or(Store::FOLDER.as_bytes());
        let name: CacheName = String::from_utf8_lossy(name).parse()?;
        let settings = self.settings()?;
        Ok(Store::open(Path::new(OsStr::from_bytes(folder)), &name, settings.as_ref())?)
    }

    fn settings(&self) -> Result<Option<Settings>, Failure> {
        let policy = match self.policy {
            REJOIN_POLICY_PREDICTIVE => Policy::Predictive,
            REJOIN_POLICY_LRU => Policy::Lru,
            policy => return Err(Failure::bad(format!("policy = {policy}: there is no such one"))),
        };
        let capacity = (self.capacity_bytes > 0).then_some(Capacity::Bytes(self.capacity_bytes));
        Ok(capacity.map(|capacity| Settings { policy, ..Settings::new(capacity) }))
    }
}

/// # Safety
/// `text` is null, or ends in a 0, and lives for `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}
