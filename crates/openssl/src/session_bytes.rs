//! A session as bytes: OpenSSL's own DER, with all fields of its release.
//!
//! OpenSSL writes into a buffer that it trusts to be large enough. Asking for the size first costs a
//! third of the writing again, at every handshake that makes a session. But the protocol bounds all fields of a
//! session, except the client's certificate or key, and the ticket with its data; and OpenSSL has functions that
//! return these. A session that has none of the former and little of the latter is
//! written to a buffer of more than twice its bound. Any other is measured first, and so are the sessions of
//! releases for which no bound is known.

use std::sync::OnceLock;

use foreign_types::ForeignTypeRef;
use libc::{c_ulong, c_void};
use openssl::ssl::SslSessionRef;
use openssl_sys::SSL_SESSION;
use rejoin_cache::SecretBytes;
use zeroize::Zeroize;

use crate::ffi;

/// The fields of a session of OpenSSL 3 (`ssl_asn1.c`): its id and its context's, a secret
/// (`TLS13_MAX_RESUMPTION_PSK_LENGTH`), the names of a host and of a protocol, the name and hint of a
/// key shared before, the name of an SRP user, and numbers, each with its tag and length.
const BOUND_BYTES: usize = 32 + 32 + 512 + 255 + 255 + 2 * 256 + 255 + 23 * 16;
/// The most bytes of a ticket and of the program's data in it.
const TICKETS_BOUND_BYTES: usize = 1_024;
const ROOM_BYTES: usize = 8_192;
/// The first release in which clients may authenticate by a raw key (RFC 7250), as
/// `OPENSSL_VERSION_NUMBER`, and the first for which no bound is known.
const WITH_RAW_KEYS: c_ulong = 0x3020_0000;
const UNKNOWN: c_ulong = 0x4000_0000;

const _: () = assert!(2 * (BOUND_BYTES + TICKETS_BOUND_BYTES) < ROOM_BYTES);

/// Returns a session as a server keeps it, or `None` if OpenSSL cannot write it.
pub fn session_bytes(session: &SslSessionRef) -> Option<SecretBytes> {
    // SAFETY: the reference is to a valid session.
    unsafe { serialised(session.as_ptr()) }
}

/// # Safety
/// `session` is valid.
pub(crate) unsafe fn serialised(session: *mut SSL_SESSION) -> Option<SecretBytes> {
    // SAFETY: the caller vouches for `session`.
    if !unsafe { is_bounded(session) } {
        // SAFETY: the caller vouches for `session`.
        return unsafe { measured(session) };
    }
    let mut room = [0; ROOM_BYTES];
    let mut start = room.as_mut_ptr();
    // SAFETY: a valid session, which takes less than half of the room.
    let size = unsafe { openssl_sys::i2d_SSL_SESSION(session, &raw mut start) };
    let written = room.get_mut(..usize::try_from(size).ok()?)?;
    let mut value = SecretBytes::with_capacity(written.len());
    value.extend(written);
    written.zeroize();
    Some(value).filter(|value| !value.is_empty())
}

/// # Safety
/// `session` is valid.
unsafe fn is_bounded(session: *mut SSL_SESSION) -> bool {
    let (mut ticket_bytes, mut data_bytes) = (0, 0);
    let (mut ticket, mut data) = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: the caller vouches for `session`.
    unsafe { ffi::SSL_SESSION_get0_ticket(session, &raw mut ticket, &raw mut ticket_bytes) };
    // SAFETY: the caller vouches for `session`; the data is borrowed.
    unsafe { ffi::SSL_SESSION_get0_ticket_appdata(session, &raw mut data, &raw mut data_bytes) };
    // SAFETY: the caller vouches for `session`.
    let proves_nothing = unsafe { proves_nothing(session) };
    proves_nothing && ticket_bytes.saturating_add(data_bytes) <= TICKETS_BOUND_BYTES
}

/// Returns true if the session has neither a client's certificate nor a raw key.
///
/// # Safety
/// `session` is valid.
unsafe fn proves_nothing(session: *mut SSL_SESSION) -> bool {
    // SAFETY: the function takes no arguments.
    let release = unsafe { openssl_sys::OpenSSL_version_num() };
    // SAFETY: the caller vouches for `session`.
    if release >= UNKNOWN || !unsafe { ffi::SSL_SESSION_get0_peer(session) }.is_null() {
        return false;
    }
    // SAFETY: the caller vouches for `session`, and the function is OpenSSL's of that type.
    let has_no_key = |key_of: RawKeyOf| unsafe { key_of(session) }.is_null();
    release < WITH_RAW_KEYS || raw_key_of().is_some_and(has_no_key)
}

type RawKeyOf = unsafe extern "C" fn(*const SSL_SESSION) -> *mut c_void;

/// `SSL_SESSION_get0_peer_rpk`, where there is one.
fn raw_key_of() -> Option<RawKeyOf> {
    static FOUND: OnceLock<Option<RawKeyOf>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let name = c"SSL_SESSION_get0_peer_rpk".as_ptr();
        // SAFETY: it looks a name up.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
        // SAFETY: the function of that name has this type, and may be missing.
        unsafe { std::mem::transmute::<*mut c_void, Option<RawKeyOf>>(found) }
    })
}

/// # Safety
/// `session` is valid.
unsafe fn measured(session: *mut SSL_SESSION) -> Option<SecretBytes> {
    // SAFETY: without a buffer it only measures.
    let size = unsafe { openssl_sys::i2d_SSL_SESSION(session, std::ptr::null_mut()) };
    let mut value = SecretBytes::default();
    let mut start = value.resize(usize::try_from(size).ok().filter(|size| *size > 0)?).as_mut_ptr();
    // SAFETY: the buffer has the size just measured.
    let written = unsafe { openssl_sys::i2d_SSL_SESSION(session, &raw mut start) };
    (written == size).then_some(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    use std::thread;

    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::{PKey, Private};
    use openssl::rsa::Rsa;
    use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslOptions, SslSession};
    use openssl::ssl::{SslSessionCacheMode, SslVerifyMode, SslVersion};
    use openssl::x509::{X509, X509Builder};

    use super::*;

    /// A client that may be asked for its certificate; servers show the same.
    pub(crate) struct Client {
        key: PKey<Private>,
        pub(crate) certificate: X509,
    }

    impl Client {
        pub(crate) fn new() -> Self {
            let key = PKey::from_rsa(Rsa::generate(2_048).expect("a key")).expect("a key");
            let mut certificate = X509Builder::new().expect("a certificate");
            certificate.set_pubkey(&key).expect("its key");
            let day = |days| Asn1Time::days_from_now(days).expect("a day");
            certificate.set_not_before(&day(0)).expect("a start");
            certificate.set_not_after(&day(1)).expect("an end");
            certificate.sign(&key, MessageDigest::sha256()).expect("a signature");
            Self { key, certificate: certificate.build() }
        }
    }

    /// Returns the sessions that a server and its client keep. The client shows a certificate if `asked` is given.
    pub(crate) fn sessions(version: SslVersion, asked: Option<&Client>) -> [SslSession; 2] {
        let nobody = asked.is_none().then(Client::new);
        let shown = asked.or(nobody.as_ref()).expect("one of the two");
        let certified = |method| {
            let mut context = SslContextBuilder::new(method).expect("a context");
            context.set_max_proto_version(Some(version)).expect("a version");
            context.set_private_key(&shown.key).expect("a key");
            context.set_certificate(&shown.certificate).expect("a certificate");
            context
        };
        let mut server = certified(SslMethod::tls_server());
        server.set_options(SslOptions::NO_TICKET);
        server.set_session_cache_mode(SslSessionCacheMode::SERVER);
        server.set_session_id_context(b"rejoin").expect("a context");
        let asked = if asked.is_some() { SslVerifyMode::PEER } else { SslVerifyMode::NONE };
        server.set_verify_callback(asked, |_, _| true);
        let made = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&made);
        server.set_new_session_callback(move |_, session| {
            *kept.lock().expect("no panic") = Some(session);
        });
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let client = certified(SslMethod::tls_client()).build();
        let client = thread::spawn(move || {
            let mut client = Ssl::new(&client).expect("a client");
            client.set_hostname("localhost").expect("a name");
            let client = client.connect(theirs).expect("a handshake");
            client.ssl().session().expect("a session").to_owned()
        });
        Ssl::new(&server.build()).expect("a server").accept(ours).expect("a handshake");
        let client = client.join().expect("no panic");
        let server = made.lock().expect("no panic").take();
        [server.expect("a handshake makes a session"), client]
    }

    fn is_bounded(session: &SslSessionRef) -> bool {
        // SAFETY: the reference is to a valid session.
        unsafe { super::is_bounded(session.as_ptr()) }
    }

    #[test]
    fn all_are_as_openssl_writes_them_and_few_are_measured() {
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            for asked in [None, Some(&Client::new())] {
                let [server, client] = sessions(version, asked);
                for session in [&server, &client] {
                    let bytes = session_bytes(session).expect("written");
                    assert_eq!(*bytes, session.to_der().expect("written"));
                }
                assert_eq!(
                    is_bounded(&server),
                    asked.is_none(),
                    "a certificate may be of any size"
                );
                assert!(!is_bounded(&client), "there is a certificate in it");
            }
        }
    }

    #[test]
    fn what_a_program_puts_into_a_ticket_is_looked_at() {
        let [session, _] = sessions(SslVersion::TLS1_3, None);
        for bytes in [0, TICKETS_BOUND_BYTES, TICKETS_BOUND_BYTES + 1, 60_000] {
            let data = vec![7_u8; bytes];
            let start = data.as_ptr().cast();
            // SAFETY: a valid session, and so many bytes, which are copied.
            unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session.as_ptr(), start, bytes) };
            assert_eq!(is_bounded(&session), bytes <= TICKETS_BOUND_BYTES);
            let written = session_bytes(&session).expect("written");
            assert_eq!(*written, session.to_der().expect("written"));
        }
    }
}
