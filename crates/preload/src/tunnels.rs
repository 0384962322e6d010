//! The port that a program asks a proxy for (`CONNECT`, RFC 9110, section 9.3.6). The program's TLS server listens at
//! that port, although its socket leads to the proxy.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, ssize_t};

use crate::client;

/// The last request of each descriptor modulo the length: the descriptor, and the port in the lowest 16 bits. Zero
/// means none, because port 0 cannot be asked for.
static LAST: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

const METHOD: &[u8] = b"CONNECT ";
/// The most bytes of a request that are read. A name has 253 characters at most.
const MOST_BYTES: usize = 300;

/// Notes the port if the bytes that the program has sent are a `CONNECT` request. `sent` is the result of the call: before
/// it, only the kernel knows whether the bytes are there.
///
/// # Safety
/// The kernel has read `sent` bytes.
pub(crate) unsafe fn note(descriptor: c_int, bytes: *const c_void, sent: ssize_t) {
    let sent = usize::try_from(sent).unwrap_or(0);
    if sent <= METHOD.len() || !client::may_be_wanted() {
        return;
    }
    // SAFETY: the caller vouches for the bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), sent.min(MOST_BYTES)) };
    // The bytes are nearly always something else, so they are compared before anything that takes a lock.
    if let Some(port) = asked(bytes)
        && client::is_wanted()
        && let Ok(number) = u32::try_from(descriptor)
    {
        let entry = u64::from(number) << 16 | u64::from(port);
        LAST[number as usize % LAST.len()].store(entry, Ordering::Relaxed);
    }
}

/// Removes and returns the port that was asked for over this descriptor, or 0.
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

/// Returns the port in the first line of a request, as far as the target is whole.
fn asked(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(METHOD)?;
    let target = &rest[..rest.iter().position(|byte| *byte == b' ')?];
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
        for none in [
            "CONNECT example.com HTTP/1.1",
            "GET http://a:80/ HTTP/1.1",
            "CONNECT a:0 ",
            "CONNECT a:84",
        ] {
            assert_eq!(asked(none.as_bytes()), None);
        }
    }
}
