//! The port that a program asks a proxy for (`CONNECT`, RFC 9110, section 9.3.6): its TLS is with that, and
//! its socket leads to the proxy.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, size_t};

use crate::client;

/// The last of each number modulo so many: the descriptor, and the port below it. Zero is none: nobody
/// asks a proxy for port 0.
static LAST: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

const METHOD: &[u8] = b"CONNECT ";
/// A name has 253 characters at most.
const MOST_BYTES: usize = 300;

/// A program sends something, perhaps this.
pub(crate) fn note(descriptor: c_int, bytes: *const c_void, length: size_t) {
    if length <= METHOD.len() || bytes.is_null() {
        return;
    }
    // SAFETY: the program vouches for them.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length.min(MOST_BYTES)) };
    // Nearly always it is something else: nothing is looked at that takes a lock.
    if let Some(port) = asked(bytes)
        && client::is_wanted()
        && let Ok(number) = u32::try_from(descriptor)
    {
        let entry = u64::from(number) << 16 | u64::from(port);
        LAST[number as usize % LAST.len()].store(entry, Ordering::Relaxed);
    }
}

/// What was asked for over this descriptor, once, or 0.
pub(crate) fn port(descriptor: c_int) -> u16 {
    let Ok(number) = u32::try_from(descriptor) else { return 0 };
    let entry = &LAST[number as usize % LAST.len()];
    let said = entry.load(Ordering::Relaxed);
    if said >> 16 != u64::from(number) {
        return 0;
    }
    entry.store(0, Ordering::Relaxed);
    said as u16
}

/// The port in a request's first line.
fn asked(bytes: &[u8]) -> Option<u16> {
    let target = bytes.strip_prefix(METHOD)?.split(|byte| *byte == b' ').next()?;
    let port = target.rsplit(|byte| *byte == b':').next()?;
    std::str::from_utf8(port).ok()?.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn a_request_says_its_port() {
        assert_eq!(asked(b"CONNECT example.com:8443 HTTP/1.1\r\n"), Some(8443));
        assert_eq!(asked(b"CONNECT [::1]:443 HTTP/1.1\r\n"), Some(443));
        for none in ["CONNECT example.com HTTP/1.1", "GET http://a:80/ HTTP/1.1", "CONNECT a:0 "] {
            assert_eq!(asked(none.as_bytes()), None);
        }
    }
}
