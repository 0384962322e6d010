//! Clients that show certificates, resumed by an attached server: each as who it is.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    AlpnError, NameType, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion,
    select_next_proto,
};
use openssl::x509::{X509, X509Builder, X509NameBuilder, X509VerifyResult};
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_openssl::{CERTIFICATES_BYTES, Client, ClientSession, ServerSessions, now_ms};

use crate::{VERSIONS, builder, meet};

const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";
const REMEMBERED: (Option<&str>, Option<&[u8]>) = (Some("localhost"), Some(b"h2"));

/// Clients that have one key, and different certificates.
struct Clients {
    key: PKey<Private>,
    certificates: Vec<X509>,
}

impl Clients {
    fn new(count: usize) -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("P-256");
        let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
        let certificates = (0..count).map(|n| certificate(&key, &format!("client {n}"))).collect();
        Self { key, certificates }
    }
}

fn certificate(key: &PKey<Private>, name: &str) -> X509 {
    let mut subject = X509NameBuilder::new().expect("a name");
    subject.append_entry_by_nid(Nid::COMMONNAME, name).expect("a name");
    let mut certificate = X509Builder::new().expect("a certificate");
    certificate.set_subject_name(&subject.build()).expect("its name");
    certificate.set_pubkey(key).expect("its key");
    certificate.set_not_before(&Asn1Time::days_from_now(0).expect("today")).expect("its start");
    certificate.set_not_after(&Asn1Time::days_from_now(1).expect("tomorrow")).expect("its end");
    certificate.sign(key, MessageDigest::sha256()).expect("its signature");
    certificate.build()
}

/// Two servers that ask for certificates and have one cache, and their clients.
struct Site {
    /// Decodes certificates at each resumption.
    each_time: SslContext,
    /// Decodes each once.
    once: SslContext,
    client: Client,
    clients: Clients,
}

impl Site {
    fn new(version: SslVersion, clients: usize) -> Self {
        let clients = Clients::new(clients);
        let settings = Settings { block_bytes: 1_024, ..Settings::new(Capacity::Sessions(4_000)) };
        let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
        let [each_time, once] = [0, CERTIFICATES_BYTES].map(|bytes| {
            let mut server = builder(SslMethod::tls_server(), version);
            server.set_certificate(&clients.certificates[0]).expect("a certificate");
            server.set_private_key(&clients.key).expect("a key");
            server.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
            server.set_servername_callback(|_, _| Ok(()));
            server.set_alpn_select_callback(|_, offered| {
                select_next_proto(PROTOCOLS, offered).ok_or(AlpnError::NOACK)
            });
            let sessions =
                ServerSessions::with_certificates(Arc::clone(&cache), [4; 16], Hints::Never, bytes);
            sessions.attach(&mut server, b"one").expect("attached");
            server.build()
        });
        let mut client = builder(SslMethod::tls_client(), version);
        client.set_verify(SslVerifyMode::NONE);
        client.set_alpn_protos(PROTOCOLS).expect("protocols");
        Self { each_time, once, client: Client::new(client), clients }
    }

    /// Returns the server's view of a client, and the client's newest session.
    fn connect(
        &self,
        server: &SslContext,
        who: usize,
        session: Option<&ClientSession>,
    ) -> (Seen, ClientSession) {
        let mut ssl = self.client.connection(session).expect("a client connection");
        ssl.set_certificate(&self.clients.certificates[who]).expect("a certificate");
        ssl.set_private_key(&self.clients.key).expect("a key");
        ssl.set_hostname("localhost").expect("a name");
        meet(server, ssl, serve, |stream| {
            stream.write_all(b"?").expect("a question");
            stream.read_exact(&mut [0]).expect("an answer");
            let newest = ClientSession::newest(stream.ssl()).expect("a session");
            let _ = stream.shutdown();
            newest
        })
    }
}

/// All that a server can ask OpenSSL about a client that a session may have brought.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    resumed: bool,
    certificate: Vec<u8>,
    chain: usize,
    verified: X509VerifyResult,
    protocol: Option<Vec<u8>>,
    name: Option<String>,
    cipher: Option<&'static str>,
    timeout_s: i64,
}

fn serve(stream: &mut SslStream<UnixStream>) -> Seen {
    stream.read_exact(&mut [0]).expect("a question");
    let ssl = stream.ssl();
    let session = ssl.session().expect("a session");
    let seen = Seen {
        resumed: ssl.session_reused(),
        certificate: ssl.peer_certificate().map_or(Vec::new(), |it| it.to_der().expect("DER")),
        chain: ssl.peer_cert_chain().map_or(0, |chain| chain.len()),
        verified: ssl.verify_result(),
        protocol: ssl.selected_alpn_protocol().map(<[u8]>::to_vec),
        name: ssl.servername(NameType::HOST_NAME).map(str::to_owned),
        cipher: ssl.current_cipher().map(|cipher| cipher.name()),
        timeout_s: session.timeout(),
    };
    stream.write_all(b"!").expect("an answer");
    let _ = stream.read(&mut [0]);
    let _ = stream.shutdown();
    seen
}

/// The sessions of one cache, resumed by a server that decodes each certificate once and by one that decodes it
/// each time.
#[test]
fn a_server_sees_of_a_client_what_it_would_have_seen() {
    for version in VERSIONS {
        let site = Site::new(version, 3);
        for who in [0, 1, 2, 1] {
            let (full, mut session) = site.connect(&site.each_time, who, None);
            assert!(!full.resumed && full.certificate.len() > 100, "{version:?}");
            let mut seen = Vec::new();
            for server in [&site.each_time, &site.once, &site.once, &site.each_time] {
                let (resumed, newest) = site.connect(server, who, Some(&session));
                assert!(resumed.resumed, "{version:?}");
                session = newest;
                seen.push(resumed);
            }
            assert!(seen.iter().all(|other| *other == seen[0]), "{version:?}: {seen:#?}");
            assert_eq!(seen[0].certificate, full.certificate);
            assert_eq!((&seen[0].name, &seen[0].verified), (&full.name, &full.verified));
            assert_eq!((seen[0].name.as_deref(), seen[0].protocol.as_deref()), REMEMBERED);
        }
    }
}

/// Clients of four threads come back in different orders; two of them share a certificate.
#[test]
fn each_is_who_it_is_whoever_else_comes() {
    const CLIENTS: usize = 24;
    for version in VERSIONS {
        let site = Site::new(version, CLIENTS);
        let expected: Vec<Vec<u8>> =
            site.clients.certificates.iter().map(|one| one.to_der().expect("DER")).collect();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (site, expected) = (&site, &expected);
                scope.spawn(move || {
                    // Each certificate is shown in two of the threads.
                    let mine = (0..CLIENTS).filter(|who| who % 2 == thread % 2);
                    let mut sessions: Vec<(usize, ClientSession)> =
                        mine.map(|who| (who, site.connect(&site.once, who, None).1)).collect();
                    for round in 0..6 {
                        sessions.rotate_left((thread + round) % (CLIENTS / 2));
                        for (who, session) in &mut sessions {
                            let (seen, newest) = site.connect(&site.once, *who, Some(session));
                            assert!(seen.resumed, "{version:?}");
                            assert!(seen.certificate == expected[*who], "another's certificate");
                            *session = newest;
                        }
                    }
                });
            }
        });
    }
}
