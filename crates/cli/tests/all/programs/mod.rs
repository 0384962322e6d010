//! Many programs and one manager: what they share, and what nobody but the manager holds.

mod http;
mod sockets;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rejoin_testkit::jvm::{Believes, Jvm};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::programs::hidden::{self, Exposed, Hidden};
use rejoin_testkit::programs::once;
use rejoin_testkit::programs::secrets::{self, Held, Holder};
use rejoin_testkit::programs::twenty::{self, Twenty};
use rejoin_testkit::stacks::{Stack, Tls};

fn start(name: &str) -> Managed {
    Managed::start(name)
}

fn twenty_need_one_full_handshake(stack: Stack) {
    for tls in Tls::ALL {
        let managed = start(&format!("twenty-{stack:?}-{}", tls.number()));
        let Some(seen) = Twenty::visit(&managed, stack, tls) else { return };
        assert!(seen.holds(tls), "{stack:?} {tls:?}: {seen:?}");
    }
}

#[test]
fn twenty_programs_and_nginx() {
    twenty_need_one_full_handshake(Stack::Nginx);
}

#[test]
fn twenty_programs_and_openssl() {
    twenty_need_one_full_handshake(Stack::OpenSsl);
}

#[test]
fn twenty_programs_and_rustls() {
    twenty_need_one_full_handshake(Stack::Rustls);
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn twenty_programs_and_java() {
    twenty_need_one_full_handshake(Stack::Java);
}

#[test]
fn rule_01_holds_for_many_at_once_and_over_a_kill() {
    let seen = once::ask_at_once(&mut start("once"));
    assert!(seen.holds(), "{seen:?}");
}

#[test]
fn programs_hold_no_secret_of_their_connections() {
    for tls in Tls::ALL {
        for holder in [Holder::Connect, Holder::Python, Holder::Preloaded] {
            let Held { search, .. } = secrets::hold(&start("secrets"), holder, tls);
            assert!(search.found.is_empty(), "{holder:?}, {tls:?}: {search:?}");
        }
    }
}

/// A program that does its own TLS holds them all: the search finds what is there.
#[test]
fn the_search_finds_secrets() {
    for tls in Tls::ALL {
        let held = secrets::hold(&start("found"), Holder::SClient, tls);
        assert_eq!(held.search.found, held.kinds(), "{tls:?}");
    }
}

#[test]
fn rule_15_a_manager_shows_its_memory_to_nobody() {
    let Hidden { manager, other } = hidden::look();
    assert_eq!(manager, Exposed { is_readable: false, leaves_core: false });
    if other != (Exposed { is_readable: true, leaves_core: true }) {
        eprintln!("this machine hides all of it from every program: {other:?}");
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn certificates_are_decoded_once_in_a_java_program() {
    let managed = start("jvm-intern");
    let Some(jvm) = Jvm::new(&managed, "jvm-intern") else { return };
    assert_eq!(jvm.intern(true), ("decoded once".to_owned(), true));
    assert_eq!(jvm.intern(false), ("decoded anew".to_owned(), true));
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_share_sessions_with_all_others() {
    for tls in Tls::ALL {
        let name = format!("jvm-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let server = Stack::Nginx.start(&managed, tls).expect("make test installs nginx");
        let url = format!("https://localhost:{}/", server.port);
        let fetch = |with| jvm.fetch(with, Believes::TheAuthority, &url);
        let expected = |session| (format!("200; session {session}; CN=localhost"), true);
        // The JVM's own sessions end with it.
        assert_eq!(fetch(false), expected("."));
        assert_eq!(fetch(false), expected("."));
        assert_eq!(fetch(true), expected("."));
        assert_eq!(fetch(true), expected("r"));
        let (is_resumed, _) = twenty::begin(&managed, &server, "").finish();
        assert!(is_resumed, "rejoin connect");
        assert_eq!(fetch(true), expected("r"));
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_decide_themselves_whom_they_believe() {
    let managed = start("jvm-trust");
    let Some(jvm) = Jvm::new(&managed, "jvm-trust") else { return };
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    let url = |host: &str| format!("https://{host}:{}/", server.port);
    for (believes, host) in [
        (Believes::TheAuthority, "localhost"),
        (Believes::AnotherOne, "localhost"),
        (Believes::TheAuthority, "127.0.0.1"),
        (Believes::Nobody, "localhost"),
    ] {
        let without = jvm.fetch(false, believes, &url(host));
        for _ in 0..2 {
            let with = jvm.fetch(true, believes, &url(host));
            let same = |said: &str| said.replace("session r", "session .");
            assert_eq!((same(&with.0), with.1), without, "{believes:?}, {host}");
        }
    }
}

/// The manager would not follow them: the JDK makes such connections.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_make_choices_of_their_own() {
    let managed = start("jvm-choices");
    let Some(jvm) = Jvm::new(&managed, "jvm-choices") else { return };
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    let without = jvm.choose(false, server.port);
    assert!(without.1 && without.0.contains("MaximumPacketSize: 4096, true"), "{}", without.0);
    assert_eq!(jvm.choose(true, server.port), without);
}

/// The handshake ends at once, and so does the connection, the program's own if there is no manager.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_close_sockets_in_the_handshake() {
    let mut alone = start("jvm-close-alone");
    alone.kill();
    for managed in [start("jvm-close"), alone] {
        let Some(jvm) = Jvm::new(&managed, "jvm-close") else { return };
        let without = jvm.close(false);
        assert!(without.1, "{}", without.0);
        assert_eq!(jvm.close(true), without);
    }
}

/// The connection is the program's own then.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_do_without_a_manager_that_talks_nonsense() {
    let mut managed = start("jvm-nonsense");
    managed.kill();
    std::fs::remove_file(managed.socket()).expect("it leaves its socket behind");
    let Some(jvm) = Jvm::new(&managed, "jvm-nonsense") else { return };
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    let url = format!("https://localhost:{}/", server.port);
    let listener = UnixListener::bind(managed.socket()).expect("a socket");
    listener.set_nonblocking(true).expect("a socket can");
    let without = jvm.fetch(false, Believes::TheAuthority, &url);
    assert!(without.1, "{}", without.0);
    for nonsense in [
        r#"{"rejoin":1,"connected":{}}"#,
        r#"{"rejoin":1,"connected":{"connection":"1","version":"TLSv1.3","cipher":"1","chain":[null]}}"#,
        r#"{"rejoin":1,"connected":{"connection":"1","version":"TLSv1.3","cipher":"1","chain":[{}]}}"#,
        r#"{"rejoin":1,"connected":{"connection":"1","version":"TLSv1.3","cipher":"1","chain":[]}}"#,
        r#"{"rejoin":1,"connected":{"connection":"1","chain":[]}}"#,
        r#"{"rejoin":1,"connected":7}"#,
        "7",
    ] {
        let with = std::thread::scope(|scope| {
            let program = scope.spawn(|| jvm.fetch(true, Believes::TheAuthority, &url));
            let mut asked = loop {
                match listener.accept() {
                    Ok((asked, _)) => break asked,
                    Err(_) => assert!(!program.is_finished(), "{nonsense}: it was not asked"),
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            asked.set_nonblocking(false).expect("a socket can");
            let mut head = [0; 4];
            asked.read_exact(&mut head).expect("a request");
            let mut request = vec![0; u32::from_be_bytes(head) as usize];
            asked.read_exact(&mut request).expect("a request");
            let answer = [&(nonsense.len() as u32).to_be_bytes(), nonsense.as_bytes()].concat();
            asked.write_all(&answer).expect("it is read");
            program.join().expect("it ends")
        });
        assert_eq!(with, without, "{nonsense}");
    }
}
