//! What a program set as priorities: with keys added for the sessions of clients, and none for all others.
//!
//! Without a key to offer, priorities that take one change nothing in a ClientHello. Where GnuTLS does
//! not like them, the program's own are set, and say what is wrong with them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::ffi::{Cache, GNUTLS_KX_ECDHE_PSK, GNUTLS_PRIORITY_INIT_DEF_APPEND, Gnutls, Session};

/// That keys are taken, with ephemeral ones.
const KEYS: &str = "+ECDHE-PSK";

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Priorities {
    Text(CString),
    /// The system's, with more behind them, under these flags.
    Default(Option<CString>, c_uint),
}

impl Priorities {
    /// What is kept by a cache that was made so.
    ///
    /// # Safety
    /// `text` is null, or ends.
    pub(crate) unsafe fn of_cache(text: *const c_char, flags: c_uint) -> Self {
        if text.is_null() {
            return Self::Default(None, 0);
        }
        // SAFETY: the caller vouches for it.
        let text = unsafe { CStr::from_ptr(text) }.to_owned();
        match flags & GNUTLS_PRIORITY_INIT_DEF_APPEND {
            0 => Self::Text(text),
            _ => Self::Default(Some(text), 0),
        }
    }

    /// Sets them, and more behind them. Returns whether that went well.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn set(&self, gnutls: &Gnutls, session: Session, more: &str) -> bool {
        let Some(text) = self.with(more) else { return false };
        let text = text.as_ptr();
        let done = match self {
            // SAFETY: the caller vouches for `session`; nobody wants to know where an error is.
            Self::Text(_) => unsafe {
                (gnutls.gnutls_priority_set_direct)(session, text, null_mut())
            },
            // SAFETY: as above.
            Self::Default(None, _) if more.is_empty() => unsafe {
                (gnutls.gnutls_set_default_priority)(session)
            },
            // SAFETY: as above.
            Self::Default(_, flags) => unsafe {
                (gnutls.gnutls_set_default_priority_append)(session, text, null_mut(), *flags)
            },
        };
        done == 0
    }

    /// As [`set`](Self::set), so that keys are taken.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn set_with_keys(&self, gnutls: &Gnutls, session: Session) -> bool {
        // SAFETY: the caller vouches for it.
        unsafe { self.set(gnutls, session, KEYS) }
    }

    /// Whether certificates alone prove who a server is.
    pub(crate) fn certificates_only(&self, gnutls: &Gnutls) -> bool {
        let Some(cache) = self.cache(gnutls, "") else { return false };
        let mut list = std::ptr::null();
        // SAFETY: the cache was made above; the list is its own.
        let count = unsafe { (gnutls.gnutls_priority_kx_list)(cache, &raw mut list) };
        let is_only = usize::try_from(count).is_ok_and(|count| {
            // SAFETY: there are so many, while the cache is there.
            let kinds = unsafe { std::slice::from_raw_parts::<c_uint>(list, count) };
            kinds.iter().all(|kind| BY_CERTIFICATE.contains(kind))
        });
        // SAFETY: it is nobody else's.
        unsafe { (gnutls.gnutls_priority_deinit)(cache) };
        is_only
    }

    /// Whether they say so themselves (`%COMPAT`).
    pub(crate) fn are_lenient(&self) -> bool {
        let (Self::Text(text) | Self::Default(Some(text), _)) = self else { return false };
        text.to_bytes().split(|byte| *byte == b':').any(|word| word == b"%COMPAT")
    }

    /// Makes a cache of them.
    fn cache(&self, gnutls: &Gnutls, more: &str) -> Option<Cache> {
        let text = self.with(more)?;
        let (text, flags) = match self {
            Self::Text(_) => (text.as_ptr(), 0),
            Self::Default(None, _) if more.is_empty() => (std::ptr::null(), 0),
            Self::Default(..) => (text.as_ptr(), GNUTLS_PRIORITY_INIT_DEF_APPEND),
        };
        let mut cache = null_mut();
        // SAFETY: the text ends, and the cache belongs there.
        let made =
            unsafe { (gnutls.gnutls_priority_init2)(&raw mut cache, text, null_mut(), flags) };
        (made == 0).then_some(cache)
    }

    fn with(&self, more: &str) -> Option<CString> {
        let own = match self {
            Self::Text(text) | Self::Default(Some(text), _) => text.to_bytes(),
            Self::Default(None, _) => b"",
        };
        let parts = [own, more.as_bytes()].into_iter().filter(|part| !part.is_empty());
        CString::new(parts.collect::<Vec<_>>().join(&b':')).ok()
    }
}

/// Of `gnutls_kx_algorithm_t`: RSA, DHE with DSS and RSA, RSA for export, ECDHE with RSA and ECDSA, VKO.
const BY_CERTIFICATE: [c_uint; 7] = [1, 2, 3, 6, 12, 13, 16];

const _: () = assert!(GNUTLS_KX_ECDHE_PSK == 14, "it is not among them");

/// A cache that a program made.
struct Made {
    priorities: Priorities,
    /// One that takes keys, made when a client needs it. `Some(None)`: it cannot be.
    with_keys: Option<Option<usize>>,
}

/// By their addresses.
static CACHES: LazyLock<Mutex<HashMap<usize, Made>>> = LazyLock::new(Mutex::default);

fn caches() -> MutexGuard<'static, HashMap<usize, Made>> {
    CACHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program made a cache.
pub(crate) fn made(cache: Cache, priorities: Priorities) {
    caches().insert(cache as usize, Made { priorities, with_keys: None });
}

/// A program frees a cache.
pub(crate) fn freed(gnutls: &Gnutls, cache: Cache) {
    let made = caches().remove(&(cache as usize));
    if let Some(Made { with_keys: Some(Some(own)), .. }) = made {
        // SAFETY: it was made for this cache; sessions that have it count.
        unsafe { (gnutls.gnutls_priority_deinit)(own as Cache) };
    }
}

/// The cache to be set instead, and what the program said when it made its own.
pub(crate) fn with_keys(gnutls: &Gnutls, cache: Cache) -> Option<(Cache, Priorities)> {
    let mut all = caches();
    let made = all.get_mut(&(cache as usize))?;
    let make = || made.priorities.cache(gnutls, KEYS).map(|own| own as usize);
    let own = (*made.with_keys.get_or_insert_with(make))?;
    Some((own as Cache, made.priorities.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_behind_what_the_program_said() {
        let text = |text: &CStr| Some(text.to_owned());
        let own = Priorities::Text(c"NORMAL:-SHA1".into());
        assert_eq!(own.with(KEYS), text(c"NORMAL:-SHA1:+ECDHE-PSK"));
        assert_eq!(own.with(""), text(c"NORMAL:-SHA1"));
        assert_eq!(Priorities::Default(None, 0).with(KEYS), text(c"+ECDHE-PSK"));
        assert!(Priorities::Text(c"NORMAL:%COMPAT".into()).are_lenient() && !own.are_lenient());
    }
}
