//! The memory of decoded client certificates, as OpenSSL allocates it. The test runs alone, because it counts for the
//! whole process.

use std::io::Read;
use std::sync::Arc;

use openssl::asn1::{Asn1Object, Asn1OctetString, Asn1Time};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{
    SslContext, SslContextBuilder, SslMethod, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::{X509, X509Builder, X509Extension, X509NameBuilder};
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_openssl::{
    CERTIFICATES_BYTES, Client, ClientSession, Memory, ServerSessions, count_memory, now_ms,
};
use rejoin_testkit::alone::alone;

use crate::{meet, say};

struct Site {
    server: SslContext,
    client: Client,
    key: PKey<Private>,
}

impl Site {
    fn new(certificates_bytes: usize) -> Self {
        let key = PKey::from_rsa(Rsa::generate(2_048).expect("a key")).expect("a key");
        let settings = Settings { block_bytes: 1_024, ..Settings::new(Capacity::Sessions(4_000)) };
        let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
        let sessions =
            ServerSessions::with_certificates(cache, [4; 16], Hints::Never, certificates_bytes);
        let context = |method| {
            let mut context = SslContextBuilder::new(method).expect("a context");
            context.set_max_proto_version(Some(SslVersion::TLS1_2)).expect("a version");
            context
        };
        let mut server = context(SslMethod::tls_server());
        server.set_certificate(&certificate(&key, "server", 0)).expect("a certificate");
        server.set_private_key(&key).expect("a key");
        server.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        sessions.attach(&mut server, b"one").expect("attached");
        let mut client = context(SslMethod::tls_client());
        client.set_verify(SslVerifyMode::NONE);
        Self { server: server.build(), client: Client::new(client), key }
    }

    fn connect(&self, shown: &X509, session: Option<&ClientSession>) -> ClientSession {
        let mut ssl = self.client.connection(session).expect("a client connection");
        ssl.set_certificate(shown).expect("a certificate");
        ssl.set_private_key(&self.key).expect("a key");
        let call = |stream: &mut SslStream<_>| {
            stream.read_exact(&mut [0]).expect("a word");
            assert_eq!(stream.ssl().session_reused(), session.is_some());
            let newest = ClientSession::newest(stream.ssl()).expect("a session");
            let _ = stream.shutdown();
            newest
        };
        meet(&self.server, ssl, say, call).1
    }

    /// Clients of these numbers, each of which comes twice. Returns the bytes that stay.
    fn new_clients(&self, numbers: std::ops::Range<usize>, extensions: usize) -> i64 {
        let ((), memory) = Memory::of(|| {
            for n in numbers {
                let shown = certificate(&self.key, &format!("client {n}"), extensions);
                let session = self.connect(&shown, None);
                self.connect(&shown, Some(&session));
            }
        });
        memory.allocated_bytes as i64 - memory.freed_bytes as i64
    }
}

/// Returns a certificate with so many extensions, as small as they can be.
fn certificate(key: &PKey<Private>, name: &str, extensions: usize) -> X509 {
    let mut subject = X509NameBuilder::new().expect("a name");
    subject.append_entry_by_text("CN", name).expect("a name");
    let subject = subject.build();
    let mut certificate = X509Builder::new().expect("a certificate");
    certificate.set_subject_name(&subject).expect("its name");
    certificate.set_issuer_name(&subject).expect("its issuer");
    certificate.set_pubkey(key).expect("its key");
    certificate.set_not_before(&Asn1Time::days_from_now(0).expect("today")).expect("its start");
    certificate.set_not_after(&Asn1Time::days_from_now(1).expect("tomorrow")).expect("its end");
    let unknown = Asn1Object::from_str("1.2.3").expect("an object identifier");
    let nothing = Asn1OctetString::new_from_bytes(&[]).expect("nothing");
    for _ in 0..extensions {
        let extension = X509Extension::new_from_der(&unknown, false, &nothing);
        certificate.append_extension(extension.expect("an extension")).expect("room for it");
    }
    certificate.sign(key, MessageDigest::sha256()).expect("its signature");
    certificate.build()
}

#[test]
fn memory_is_bounded_when_certificates_never_repeat() {
    alone(|| {
        const MOST_BYTES: usize = 512 * 1_024;
        const CLIENTS: usize = 150;
        const DENSE_MOST_BYTES: usize = 8 * 1_024 * 1_024;
        assert!(count_memory(), "nothing of OpenSSL's was used yet");
        // What is made once is not to be counted.
        Site::new(CERTIFICATES_BYTES).new_clients(0..3, 0);

        let roomy = Site::new(CERTIFICATES_BYTES);
        let kept = roomy.new_clients(0..CLIENTS, 0);
        // As many sessions and certificates, 1 and 3 KB each at the least.
        assert!(kept > 4_000 * CLIENTS as i64, "{kept}: nothing is kept");

        let bounded = Site::new(MOST_BYTES);
        let first = bounded.new_clients(0..CLIENTS, 0);
        assert!(first < MOST_BYTES as i64, "{first} bytes");
        let more = bounded.new_clients(CLIENTS..2 * CLIENTS, 0);
        assert!(first + more < MOST_BYTES as i64, "{first} and {more} bytes");

        let none = Site::new(0).new_clients(0..CLIENTS, 0);
        assert!(none < 64 * 1_024, "{none} bytes without any room");

        // The most that so many bytes can be decoded to, as far as is known.
        let dense = Site::new(DENSE_MOST_BYTES);
        let kept = dense.new_clients(0..60, 1_000);
        assert!((1_000_000..DENSE_MOST_BYTES as i64).contains(&kept), "{kept} bytes of dense ones");
    });
}
