//! The priorities of a program: PSK key exchange is added for the sessions of clients, and for no others.
//!
//! Priorities with PSK key exchange change nothing in a ClientHello while there is no key to offer. If GnuTLS refuses
//! them, the program's own are set, and the program gets its own error.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_uint};
use std::ptr::null_mut;

use rejoin_abi::gate::Gated;

use crate::ffi::{Cache, GNUTLS_KX_ECDHE_PSK, GNUTLS_PRIORITY_INIT_DEF_APPEND, Gnutls, Session};
use crate::within::within;

/// The key exchange that is added: a PSK with ECDHE.
const KEYS: &str = "+ECDHE-PSK";

/// The priorities that a program set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Priorities {
    /// A priority string.
    Text(CString),
    /// The system's default with an appended string, and the flags of the call.
    Default(Option<CString>, c_uint),
}

impl Priorities {
    /// Returns the priorities of a cache that was made with these arguments.
    ///
    /// # Safety
    /// `text` is null, or ends with a zero byte.
    pub(crate) unsafe fn of_cache(text: *const c_char, flags: c_uint) -> Self {
        if text.is_null() {
            return Self::Default(None, 0);
        }
        // SAFETY: the caller vouches for `text`, which is not null.
        let text = unsafe { CStr::from_ptr(text) }.to_owned();
        match flags & GNUTLS_PRIORITY_INIT_DEF_APPEND {
            0 => Self::Text(text),
            _ => Self::Default(Some(text), 0),
        }
    }

    /// Sets the priorities with `more` appended. Returns true if GnuTLS accepts them.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn set(&self, gnutls: &Gnutls, session: Session, more: &str) -> bool {
        let Some(text) = self.with(more) else { return false };
        let text = text.as_ptr();
        let done = within(|| match self {
            // SAFETY: the caller vouches for `session`; null is allowed for the place of an error.
            Self::Text(_) => unsafe {
                (gnutls.gnutls_priority_set_direct)(session, text, null_mut())
            },
            // SAFETY: the caller vouches for `session`.
            Self::Default(None, _) if more.is_empty() => unsafe {
                (gnutls.gnutls_set_default_priority)(session)
            },
            // SAFETY: the caller vouches for `session`; null is allowed for the place of an error.
            Self::Default(_, flags) => unsafe {
                (gnutls.gnutls_set_default_priority_append)(session, text, null_mut(), *flags)
            },
        });
        done == 0
    }

    /// Sets the priorities with PSK key exchange. Returns true if GnuTLS accepts them.
    ///
    /// # Safety
    /// The same as [`set`](Self::set).
    pub(crate) unsafe fn set_with_keys(&self, gnutls: &Gnutls, session: Session) -> bool {
        // SAFETY: the caller vouches for `session`.
        unsafe { self.set(gnutls, session, KEYS) }
    }

    /// Returns true if every key exchange authenticates the server by a certificate.
    pub(crate) fn certificates_only(&self, gnutls: &Gnutls) -> bool {
        let Some(cache) = self.cache(gnutls, "") else { return false };
        let mut list = std::ptr::null();
        // SAFETY: the cache was made above, and keeps the list.
        let count = unsafe { (gnutls.gnutls_priority_kx_list)(cache, &raw mut list) };
        let is_only = usize::try_from(count).is_ok_and(|count| {
            // SAFETY: the list has `count` elements, and lives as long as the cache.
            let kinds = unsafe { std::slice::from_raw_parts::<c_uint>(list, count) };
            kinds.iter().all(|kind| BY_CERTIFICATE.contains(kind))
        });
        // SAFETY: the cache belongs to this function.
        within(|| unsafe { (gnutls.gnutls_priority_deinit)(cache) });
        is_only
    }

    /// Returns true if the program's priorities have `%COMPAT`.
    pub(crate) fn are_lenient(&self) -> bool {
        let (Self::Text(text) | Self::Default(Some(text), _)) = self else { return false };
        text.to_bytes().split(|byte| *byte == b':').any(|word| word == b"%COMPAT")
    }

    /// Makes a cache of the priorities with `more` appended.
    fn cache(&self, gnutls: &Gnutls, more: &str) -> Option<Cache> {
        let text = self.with(more)?;
        let (text, flags) = match self {
            Self::Text(_) => (text.as_ptr(), 0),
            Self::Default(None, _) if more.is_empty() => (std::ptr::null(), 0),
            Self::Default(..) => (text.as_ptr(), GNUTLS_PRIORITY_INIT_DEF_APPEND),
        };
        let mut cache = null_mut();
        // SAFETY: the text is null or ends with a zero byte, and `cache` has room for the cache.
        let made = within(|| unsafe {
            (gnutls.gnutls_priority_init2)(&raw mut cache, text, null_mut(), flags)
        });
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

/// The members of `gnutls_kx_algorithm_t` that use certificates: RSA, DHE with DSS and RSA, RSA for export, ECDHE with
/// RSA and ECDSA, VKO.
const BY_CERTIFICATE: [c_uint; 7] = [1, 2, 3, 6, 12, 13, 16];

const _: () = assert!(GNUTLS_KX_ECDHE_PSK == 14, "it is not among them");

/// A cache that a program made.
struct Made {
    priorities: Priorities,
    /// The same with PSK key exchange, made when a client needs it. `Some(None)`: GnuTLS refuses it.
    with_keys: Option<Option<usize>>,
}

/// The caches by their addresses.
static CACHES: Gated<BTreeMap<usize, Made>> = Gated::new(BTreeMap::new());

/// Records a cache that the program made.
pub(crate) fn made(cache: Cache, priorities: Priorities) {
    CACHES.lock().insert(cache as usize, Made { priorities, with_keys: None });
}

/// Forgets a cache that the program frees.
pub(crate) fn freed(gnutls: &Gnutls, cache: Cache) {
    let made = CACHES.lock().remove(&(cache as usize));
    if let Some(Made { with_keys: Some(Some(own)), .. }) = made {
        // SAFETY: the cache belongs to this module; sessions that use it hold a reference of their own.
        within(|| unsafe { (gnutls.gnutls_priority_deinit)(own as Cache) });
    }
}

/// Returns the cache with PSK key exchange for one of the program's, and the priorities of that.
pub(crate) fn with_keys(gnutls: &Gnutls, cache: Cache) -> Option<(Cache, Priorities)> {
    let mut all = CACHES.lock();
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
