//! A program that keeps data of its own in each session, and has no function to copy it. The test runs alone, because
//! the data is in all sessions of a process.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_long, c_void};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use openssl::ssl::{SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
use openssl_sys::{CRYPTO_EX_DATA, CRYPTO_get_ex_new_index};
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_openssl::{CERTIFICATES_BYTES, Client, ClientSession, ServerSessions, now_ms};
use rejoin_testkit::alone::alone;

use crate::self_signed::certify;
use crate::{meet, say};

unsafe extern "C" {
    fn CRYPTO_set_ex_data(data: *mut CRYPTO_EX_DATA, index: c_int, value: *mut c_void) -> c_int;
}

/// `CRYPTO_EX_INDEX_SSL_SESSION` of `crypto.h`.
const SESSIONS: c_int = 2;

static MADE: AtomicUsize = AtomicUsize::new(0);
/// The values that were freed, and the number of them that had been freed before.
static FREED: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

unsafe extern "C" fn make(
    _: *mut c_void,
    _: *mut c_void,
    data: *mut CRYPTO_EX_DATA,
    index: c_int,
    _: c_long,
    _: *mut c_void,
) {
    let value = MADE.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: OpenSSL's own data, which it makes; the value is a number, and never followed.
    unsafe { CRYPTO_set_ex_data(data, index, std::ptr::without_provenance_mut(value)) };
}

unsafe extern "C" fn free(
    _: *mut c_void,
    value: *mut c_void,
    _: *mut CRYPTO_EX_DATA,
    _: c_int,
    _: c_long,
    _: *mut c_void,
) {
    let mut freed = FREED.lock().expect("no panic");
    let is_new = value.is_null() || freed.0.insert(value.addr());
    freed.1 += usize::from(!is_new);
}

/// Over TLS 1.2, where OpenSSL itself copies no session.
#[test]
fn what_a_program_has_in_a_session_is_freed_once() {
    alone(|| {
        let context = |method| {
            let mut context = SslContextBuilder::new(method).expect("a context");
            context.set_max_proto_version(Some(SslVersion::TLS1_2)).expect("a version");
            certify(&mut context);
            context
        };
        let settings = Settings { block_bytes: 1_024, ..Settings::new(Capacity::Sessions(100)) };
        let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
        let bytes = CERTIFICATES_BYTES;
        let sessions = ServerSessions::with_certificates(cache, [4; 16], Hints::Never, bytes);
        let mut server = context(SslMethod::tls_server());
        server.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        sessions.attach(&mut server, b"one").expect("attached");
        let server = server.build();
        let mut client = context(SslMethod::tls_client());
        client.set_verify(SslVerifyMode::NONE);
        let client = Client::new(client);
        // SAFETY: both functions live as long as the process.
        let index = unsafe {
            let nothing = std::ptr::null_mut();
            let (make, free) = (Some(make as _), Some(free as _));
            CRYPTO_get_ex_new_index(SESSIONS, 0, nothing, make, None, free)
        };
        assert!(index >= 0, "no index");

        let mut session: Option<ClientSession> = None;
        for visit in 0..6 {
            let connection = client.connection(session.as_ref()).expect("a client connection");
            let ((), newest) = meet(&server, connection, say, |stream| {
                stream.read_exact(&mut [0]).expect("a word");
                assert_eq!(stream.ssl().session_reused(), visit > 0);
                let newest = ClientSession::newest(stream.ssl()).expect("a session");
                let _ = stream.shutdown();
                newest
            });
            session = Some(newest);
        }
        drop((session, server, client, sessions));
        let (freed, again) = &*FREED.lock().expect("no panic");
        assert!(freed.len() > 6, "{} values were freed", freed.len());
        assert_eq!(*again, 0, "values were freed again");
    });
}
