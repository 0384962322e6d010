//! The source of a connection's client, where a cache bounds what one source can take.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use openssl_sys::{SSL, SSL_SESSION};
use rejoin_cache::{Source, SourceBy};

use crate::connection::Connection;
use crate::everywhere::Hook;
use crate::ffi;
use crate::sessions::AnySessions;

/// A report, made once, that the cache bounds sources and a client's is not known.
#[derive(Debug, Default)]
pub(crate) struct Sourceless {
    tell: OnceLock<Hook<dyn Fn(SourceBy) + Send + Sync>>,
    is_told: AtomicBool,
}

impl Sourceless {
    /// Sets how it is told.
    pub(crate) fn tell_by(&self, tell: impl Fn(SourceBy) + Send + Sync + 'static) {
        self.tell.get_or_init(|| Hook(Box::new(tell)));
    }

    fn tell(&self, by: SourceBy) {
        if let Some(Hook(tell)) = self.tell.get()
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tell(by);
        }
    }
}

/// Returns the source of a client, which is unknown if the cache bounds none.
///
/// # Safety
/// `ssl` is valid, and this connection's; `session` is valid.
pub(crate) unsafe fn source(
    ssl: *mut SSL,
    session: *mut SSL_SESSION,
    connection: &Connection,
    sessions: &AnySessions,
) -> Source {
    let Some(by) = sessions.sessions().fairness().map(|fairness| fairness.by) else {
        return Source::UNKNOWN;
    };
    let source = |known: &[u8]| sessions.sessions().source(known);
    let found = match by {
        // SAFETY: the caller vouches for `ssl`.
        SourceBy::Address => unsafe { address(ssl) }.map(|of| source(&SourceBy::network(of))),
        // SAFETY: the caller vouches for `session`.
        SourceBy::Certificate => unsafe { certificate(session) }.map(|of| source(&of)),
        // SAFETY: the caller vouches for `ssl`.
        SourceBy::Name => unsafe { connection.host(ssl) }
            .filter(|host| !host.is_empty())
            .map(|host| source(&host)),
    };
    found.unwrap_or_else(|| {
        sessions.sourceless().tell(by);
        Source::UNKNOWN
    })
}

/// Returns the address of the client, if the program has given OpenSSL its socket.
///
/// # Safety
/// `ssl` is valid.
unsafe fn address(ssl: *mut SSL) -> Option<IpAddr> {
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let socket = unsafe { ffi::SSL_get_rfd(ssl) };
    if socket < 0 {
        return None;
    }
    let mut peer = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: as many bytes as are said; a number that is no socket's is refused.
    let done = unsafe { libc::getpeername(socket, peer.as_mut_ptr().cast(), &raw mut length) };
    if done != 0 {
        return None;
    }
    // SAFETY: zeros are an address of no family, and the kernel wrote over them.
    let peer = unsafe { peer.assume_init() };
    match c_int::from(peer.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family.
            let peer = unsafe { (&raw const peer).cast::<sockaddr_in>().read() };
            Some(IpAddr::from(peer.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family.
            let peer = unsafe { (&raw const peer).cast::<sockaddr_in6>().read() };
            Some(IpAddr::from(peer.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// Returns the digest of the client's certificate, if it has shown one.
///
/// # Safety
/// `session` is valid.
unsafe fn certificate(session: *mut SSL_SESSION) -> Option<[u8; 32]> {
    // SAFETY: the caller vouches for `session`.
    let certificate = unsafe { ffi::SSL_SESSION_get0_peer(session) };
    if certificate.is_null() {
        return None;
    }
    let mut digest = [0; 32];
    // SAFETY: a constant of OpenSSL's.
    let sha256 = unsafe { openssl_sys::EVP_sha256() };
    let (start, length) = (digest.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the session holds the certificate, and the digest has as many bytes.
    let done =
        unsafe { openssl_sys::X509_digest(certificate.cast(), sha256, start.cast(), length) };
    (done == 1).then_some(digest)
}
