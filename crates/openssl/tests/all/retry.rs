//! Clients that ask for one host, and for another after a HelloRetryRequest (RFC 8446, section 4.1.4). They must not do
//! so, but OpenSSL's server does not compare the two, and serves the second.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::sync::Arc;

use foreign_types::ForeignType;
use openssl::ssl::{SslContext, SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_openssl::{Client, ClientSession, ServerSessions, TicketHistory, TicketKeys, now_ms};
use rejoin_tickets::{KeyRing, Schedule};

use crate::self_signed::certify;
use crate::{builder, meet};

const VERSION: SslVersion = SslVersion::TLS1_3;
/// The cipher suites of a client, the first of which the server chooses. After a retry no session of another hash is
/// presented again.
const ONE_SUITE: &CStr = c"TLS_AES_128_GCM_SHA256";
const BOTH_SUITES: &CStr = c"TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";

thread_local! {
    /// The host that this thread's client asks for after a HelloRetryRequest.
    static LATER: Cell<Option<&'static str>> = const { Cell::new(None) };
}

unsafe extern "C" {
    fn SSL_CTX_set_info_callback(
        context: *mut openssl_sys::SSL_CTX,
        callback: unsafe extern "C" fn(*const openssl_sys::SSL, libc::c_int, libc::c_int),
    );
    fn SSL_set_ciphersuites(ssl: *mut openssl_sys::SSL, suites: *const libc::c_char)
    -> libc::c_int;
    fn SSL_get_state(ssl: *const openssl_sys::SSL) -> libc::c_int;
}

/// Changes the client's name after it has read its server's first message, which is a HelloRetryRequest here.
unsafe extern "C" fn happened(
    ssl: *const openssl_sys::SSL,
    _what: libc::c_int,
    _value: libc::c_int,
) {
    /// `TLS_ST_CR_SRVR_HELLO` of `ssl.h`.
    const SERVER_HELLO: libc::c_int = 3;
    // SAFETY: OpenSSL passes a valid SSL.
    if unsafe { SSL_get_state(ssl) } != SERVER_HELLO {
        return;
    }
    if let Some(later) = LATER.take() {
        let name = CString::new(later).expect("no zero");
        // SAFETY: a valid SSL, which copies the name.
        let set = unsafe {
            openssl_sys::SSL_set_tlsext_host_name(ssl.cast_mut(), name.as_ptr().cast_mut())
        };
        assert_eq!(set, 1);
    }
}

/// A client that guesses a group which the server does not have, so that each handshake has a retry.
fn client() -> Client {
    let mut client = builder(SslMethod::tls_client(), VERSION);
    client.set_verify(SslVerifyMode::NONE);
    client.set_groups_list("X25519:P-256").expect("groups");
    // SAFETY: the builder owns its context, and the callback lives as long as the program.
    unsafe { SSL_CTX_set_info_callback(client.as_ptr(), happened) };
    Client::new(client)
}

fn server(attach: impl FnOnce(&mut SslContextBuilder)) -> SslContext {
    let mut server = builder(SslMethod::tls_server(), VERSION);
    certify(&mut server);
    server.set_groups_list("P-256").expect("groups");
    server.set_servername_callback(|_, _| Ok(()));
    attach(&mut server);
    server.build()
}

/// Asks for hosts before and after the retry. Returns true if the session was resumed, and the newest session.
fn connect(
    (client, suites): (&Client, &CStr),
    server: &SslContext,
    [first, second]: [&'static str; 2],
    session: Option<&ClientSession>,
) -> (bool, ClientSession) {
    let mut ssl = client.connection(session).expect("a client connection");
    ssl.set_hostname(first).expect("a name");
    // SAFETY: a valid SSL and a text.
    assert_eq!(unsafe { SSL_set_ciphersuites(ssl.as_ptr(), suites.as_ptr()) }, 1);
    LATER.set((second != first).then_some(second));
    let serve = |stream: &mut openssl::ssl::SslStream<_>| {
        stream.read_exact(&mut [0]).expect("a question");
        stream.write_all(b"!").expect("an answer");
        let _ = stream.read(&mut [0]);
        let name = stream.ssl().servername(openssl::ssl::NameType::HOST_NAME);
        name.expect("a name").to_owned()
    };
    let (seen, met) = meet(server, ssl, serve, |stream| {
        stream.write_all(b"?").expect("a question");
        stream.read_exact(&mut [0]).expect("an answer");
        let newest = ClientSession::newest(stream.ssl()).expect("a session");
        drop(stream.shutdown());
        (stream.ssl().session_reused(), newest)
    });
    assert_eq!((seen.as_str(), LATER.take()), (second, None), "the server's host");
    met
}

#[test]
fn a_client_that_changes_its_host_at_a_retry_gets_a_session_of_neither() {
    const A: &str = "a.example";
    const B: &str = "b.example";
    let settings = Settings::new(Capacity::Sessions(100));
    let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
    let sessions = ServerSessions::new(cache, [4; 16], Hints::Never);
    let mut ring = KeyRing::new(Schedule::default());
    let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    ring.rotate(now_s, &mut [1; 32]).expect("a key");
    let keys = TicketKeys::new(ring);
    let servers = [
        server(|context| sessions.attach(context, b"one").expect("attached")),
        server(|context| keys.attach(context, b"one", TicketHistory::Carried).expect("attached")),
    ];
    let client = client();
    let (one, both) = ((&client, ONE_SUITE), (&client, BOTH_SUITES));
    for (at, server) in servers.iter().enumerate() {
        let mut known = None;
        for _ in 0..2 {
            let (resumed, session) = connect(both, server, [A, A], known.as_ref());
            assert_eq!(resumed, known.is_some(), "{at}: a retry alone changes nothing");
            known = Some(session);
        }
        // A session of the other suite is looked up for the first host, and not presented for the second.
        for of in [A, B] {
            let (_, session) = connect(one, server, [of, of], None);
            let (resumed, changed) = connect(both, server, [A, B], Some(&session));
            assert!(!resumed, "{at}");
            for host in [A, B] {
                let (resumed, _) = connect(both, server, [host, host], Some(&changed));
                assert!(!resumed, "{at}: resumed at {host}");
            }
        }
        // Without a session in the first ClientHello the second one's host is the only one.
        let (_, changed) = connect(both, server, [A, B], None);
        assert!(!connect(both, server, [A, A], Some(&changed)).0, "{at}");
        let (_, changed) = connect(both, server, [A, B], None);
        assert!(connect(both, server, [B, B], Some(&changed)).0, "{at}");
    }
}
