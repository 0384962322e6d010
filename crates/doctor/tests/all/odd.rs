//! Servers that speak no TLS, or fail.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use openssl::ssl::{
    SslAcceptor, SslAcceptorBuilder, SslFiletype, SslMethod, SslVerifyMode, SslVersion,
};
use rejoin_doctor::{Cause, Finding, Settings};

use crate::site::{Site, examined};

/// Serves each connection by this function, for as long as the test program runs.
fn serve(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> Settings {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    let settings = Settings::new(target.parse().expect("a server"));
    Settings { deadline: Duration::from_millis(500), wait: Duration::ZERO, ..settings }
}

fn error(settings: &Settings) -> String {
    examined(settings).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_server_that_speaks_something_else_gets_a_clear_line() {
    let plain = serve(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    assert!(error(&plain).ends_with("it answers, but does not speak TLS"), "{}", error(&plain));
    let stalled =
        serve(|mut stream| while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {});
    assert!(error(&stalled).ends_with("no answer in time"), "{}", error(&stalled));
    let closing = serve(drop);
    let told = error(&closing);
    assert!(told.contains("closes the connection"), "{told}");
    // Records without end.
    let flooding = serve(|mut stream| {
        let record = [&[22, 3, 3, 64, 0][..], &[0; 16_384]].concat();
        while stream.write_all(&record).is_ok() {}
    });
    let told = error(&flooding);
    assert!(told.contains("the handshake fails") || told.contains("sends more"), "{told}");
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let refused = Settings::new(gone.expect("a port").to_string().parse().expect("a server"));
    assert!(error(&refused).contains("no TCP connection"), "{}", error(&refused));
}

#[test]
fn a_session_that_breaks_the_connection_is_told_from_a_broken_server() {
    let site = Site::new();
    let mut acceptor = acceptor(&site);
    // It asks for client certificates, and sets no session-id context.
    acceptor.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    let settings = accept(acceptor);
    let deadline = Duration::from_secs(5);
    let found = examined(&Settings { deadline, ..settings }).expect("handshakes");
    found.assert_in_the_way(&[Cause::OfferBreaks]);
    found.assert_noted(Cause::ClientCertificate);
}

#[test]
fn one_connection_that_is_dropped_is_no_cause_and_is_told() {
    let site = Site::new();
    let mut acceptor = acceptor(&site);
    acceptor.set_session_id_context(b"test").expect("a context");
    let acceptor: &'static SslAcceptor = Box::leak(Box::new(acceptor.build()));
    let without = |dropped| {
        let made: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let settings = serve(move |stream| {
            if made.fetch_add(1, Ordering::Relaxed) + 1 != dropped {
                answer_page(acceptor, stream);
            }
        });
        let (deadline, wait) = (Duration::from_secs(5), Duration::from_secs(1));
        let settings = Settings { deadline, wait, attempts: 3, others: 3, ..settings };
        thread::spawn(move || examined(&settings).expect("handshakes").0)
    };
    // Returns at once (4 to 22), once more, after others and after a time, and the pairs that follow a miss.
    let each = [4, 10, 15, 21, 24, 25, 28, 31, 34].map(without);
    for report in each.map(|report| report.join().expect("a report")) {
        let of = |wanted: fn(&Finding) -> bool| report.findings.iter().any(wanted);
        assert!(!of(Finding::is_in_the_way), "{}", report.text());
        let is_told = of(|found| found.cause == Cause::HandshakesFail);
        assert!(is_told && report.resumes != Some(false), "{}", report.text());
    }
}

/// Over TLS 1.3, a client that has finished learns of the refusal only when it reads.
#[test]
fn a_server_that_demands_a_client_certificate_is_no_server_without_tickets() {
    let site = Site::new();
    for oldest in [SslVersion::TLS1_3, SslVersion::TLS1_2] {
        let mut acceptor = acceptor(&site);
        acceptor.set_min_proto_version(Some(oldest)).expect("a version");
        acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        acceptor.set_session_id_context(b"test").expect("a context");
        let settings = accept(acceptor);
        let told = error(&Settings { deadline: Duration::from_secs(5), ..settings });
        assert!(told.contains("alert 116 (certificate_required)"), "{told}");
    }
}

#[test]
fn a_version_that_fails_is_not_passed_over() {
    // Old servers know neither the extension of versions nor a suite of TLS 1.3.
    let refusal = [21, 3, 3, 0, 2, 2, 40];
    let found = |answer: &'static [u8]| {
        let site = Site::new();
        let acceptor: &'static SslAcceptor = Box::leak(Box::new(acceptor(&site).build()));
        let settings = serve(move |mut stream| {
            let mut hello = [0; 2048];
            let length = stream.peek(&mut hello).unwrap_or(0);
            let only_tls13 = [0, 43, 0, 3, 2, 3, 4];
            if hello[..length].windows(only_tls13.len()).any(|part| part == only_tls13) {
                let _ = stream.read(&mut hello);
                let _ = stream.write_all(answer);
            } else {
                answer_page(acceptor, stream);
            }
        });
        examined(&Settings { deadline: Duration::from_secs(5), ..settings }).expect("handshakes").0
    };
    let closed = found(&[]);
    assert_eq!(closed.resumes, None, "{}", closed.text());
    let causes: Vec<Cause> = closed.findings.iter().map(|finding| finding.cause).collect();
    assert!(causes.contains(&Cause::VersionFails), "{}", closed.text());
    let told = "TLS 1.3 fails: it closes the connection in the handshake";
    assert!(
        closed.findings.iter().any(|finding| finding.seen[0].contains(told)),
        "{}",
        closed.text()
    );
    let old = crate::site::Examined(found(Box::leak(Box::new(refusal))));
    old.assert_in_the_way(&[]);
    old.assert_noted(Cause::OnlyTls12);
}

/// An acceptor of TLS 1.2 and 1.3 with the site's certificate.
fn acceptor(site: &Site) -> SslAcceptorBuilder {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("a context");
    let pem = |name: &str| site.folder.file(name);
    acceptor.set_certificate_chain_file(pem("cert.pem")).expect("a certificate");
    acceptor.set_private_key_file(pem("key.pem"), SslFiletype::PEM).expect("its key");
    acceptor
}

/// Serves by this acceptor.
fn accept(acceptor: SslAcceptorBuilder) -> Settings {
    let acceptor: &'static SslAcceptor = Box::leak(Box::new(acceptor.build()));
    serve(move |stream| answer_page(acceptor, stream))
}

/// Makes a connection, and closes it after a request.
fn answer_page(acceptor: &SslAcceptor, stream: TcpStream) {
    if let Ok(mut stream) = acceptor.accept(stream) {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.shutdown();
    }
}
