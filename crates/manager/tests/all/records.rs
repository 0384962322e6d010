//! Programs that carry TLS records themselves.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::carrier::{Carrier, carried, frame};
use crate::server::{Server, house_and_server};
use rejoin_testkit::certificates::Authority;
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server;
use rejoin_testkit::process::{DEADLINE, wait_until};
use rejoin_testkit::proxy::delayed::SlowWay;
use rejoin_testkit::proxy::{extension, rogue, tapped};

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];
const HELLO: &[u8] = b"hello\n";

fn sessions(house: &House) -> u64 {
    house.program().stats()["sessions"].as_u64().expect("a number")
}

#[test]
fn the_manager_gets_a_session_for_itself_and_the_program_resumes_it() {
    for version in VERSIONS {
        let (mut house, server) = house_and_server(&[version]);
        let mut carrier = Carrier::trusting(&house, server.port).unwrap();
        let facts = carrier.connect(b'v');
        assert_eq!((&facts["why"], &facts["resumed"]), (&json!("resumed"), &json!(true)));
        assert_eq!(facts["peer"], format!("127.0.0.1:{}", server.port));
        carrier.talk();
        let known = &facts["chain"][0]["sha256"];
        assert!(facts["chain"][0]["der"].is_string());
        assert_eq!(house.program().stats()["open"], 1);
        drop(carrier);
        // The next needs none of its own; nor do programs that ask otherwise.
        let mut carrier = Carrier::offer(&house, server.port, json!({"known": [known]})).unwrap();
        let facts = carrier.connect(b'v');
        assert_eq!(facts["why"], "resumed", "{version}");
        assert!(facts["chain"][0]["der"].is_null());
        carrier.talk();
        drop(carrier);
        assert_eq!(house.program().visit("server.test", server.port, json!({})), "resumed");
        assert_eq!(carried(&house, server.port, json!({})), "resumed");
        let done = house.stop();
        assert_eq!((done.handshakes.full, done.handshakes.resumed), (1, 4));
        assert_eq!(done.handshakes.failed, 0);
    }
}

/// The stored TLS 1.2 session is of no use to a program that accepts only TLS 1.3, and stays for others.
#[test]
fn a_session_of_a_version_that_a_program_does_not_take_is_none() {
    let (house, server) = house_and_server(&["-tls1_2"]);
    assert_eq!(house.program().visit("server.test", server.port, json!({})), "no_session");
    for _ in 0..2 {
        let newer = json!({"min_version": "1.3"});
        assert_eq!(Carrier::kind(&house, server.port, newer), "no_session");
        assert_eq!(carried(&house, server.port, json!({})), "resumed");
    }
}

#[test]
fn a_server_far_away_is_waited_for() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    let port = SlowWay::to(server.port, Duration::from_millis(40)).port;
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    assert_eq!(carrier.connect(b'v')["why"], "resumed");
}

/// One connection of the manager's own is enough for all of them.
#[test]
fn programs_that_come_at_once_have_a_server_called_once() {
    let (mut house, server) = House::with_rustls(|config| config.send_tls13_tickets = 4);
    let (port, told) = tapped(server.port);
    let offers: Vec<_> = std::thread::scope(|scope| {
        let offers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| Carrier::trusting(&house, port).unwrap())).collect();
        offers.into_iter().map(|offer| offer.join().unwrap()).collect()
    });
    assert_eq!(told.try_iter().count(), 1);
    for mut carrier in offers {
        assert_eq!(carrier.connect(b'v')["why"], "resumed");
        carrier.talk();
    }
    let done = house.stop();
    assert_eq!((done.handshakes.full, done.handshakes.resumed), (1, 4));
}

#[test]
fn much_goes_both_ways() {
    let (house, server) = House::with_rustls(|_| {});
    let mut carrier = Carrier::trusting(&house, server.port).unwrap();
    let facts = carrier.connect(b'v');
    let line: Vec<u8> = (0..1_000_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
    for _ in 0..4 {
        for piece in line.chunks(64 * 1024) {
            carrier.turn(b'p', piece).unwrap();
        }
        carrier.turn(b'p', b"\n").unwrap();
        let back = carrier.read(line.len() + 1);
        assert!(back.iter().take(line.len()).eq(line.iter().rev()) && back.ends_with(b"\n"));
    }
    assert_eq!(carrier.turn(b'c', &[]).unwrap().words, "r");
    // The server has heard it, and says the same.
    let heard = carrier.carry().unwrap();
    assert_eq!(heard.words, "c");
    assert_eq!(house.program().end(&facts["connection"]), "clean");
    assert_eq!(carrier.carry().unwrap().words, "");
    drop(carrier);
    assert_eq!(house.program().end(&facts["connection"]), "clean");
}

/// A server that acts after its handshake, once it has read the program's "hello".
fn answering(
    house: &House,
    act: impl Fn(StreamOwned<ServerConnection, std::net::TcpStream>) + Send + Sync + 'static,
) -> u16 {
    saying(house, move |mut stream| {
        if stream.read_exact(&mut [0; HELLO.len()]).is_ok() {
            act(stream);
        }
    })
}

/// A server that acts after its handshake.
fn saying(
    house: &House,
    act: impl Fn(StreamOwned<ServerConnection, std::net::TcpStream>) + Send + Sync + 'static,
) -> u16 {
    let config = rustls_server::config(&house.authority.issue(&["server.test"]), |_| {});
    rustls_server::rogue(config, act)
}

#[test]
fn the_servers_end_is_told_and_the_program_goes_on() {
    let house = House::new();
    let (tell, told) = channel();
    let port = answering(&house, move |mut stream| {
        stream.write_all(b"bye\n").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest).map(|_| rest).map_err(|error| error.kind());
        tell.send(ended).unwrap();
    });
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    let facts = carrier.connect(b'v');
    assert_eq!(house.program().end(&facts["connection"]), "open");
    carrier.turn(b'p', HELLO).unwrap();
    assert_eq!(carrier.carry_until('c').plaintext, b"bye\n");
    assert_eq!(house.program().end(&facts["connection"]), "clean");
    carrier.turn(b'p', b"and more").unwrap();
    assert_eq!(carrier.turn(b'c', &[]).unwrap().words, "r");
    // It was all, and the server knows.
    assert_eq!(told.recv().unwrap(), Ok(b"and more".to_vec()));
    let refused = carrier.turn(b'p', b"too late").unwrap();
    assert_eq!(refused.message["error"]["kind"], "bad_request");
    assert!(carrier.turn(b'r', &[]).is_none());
}

#[test]
fn an_end_without_a_word_is_truncated() {
    let house = House::new();
    let port = answering(&house, |mut stream| stream.write_all(b"part").unwrap());
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    let facts = carrier.connect(b'v');
    carrier.turn(b'p', HELLO).unwrap();
    assert_eq!(carrier.read(4), b"part");
    assert_eq!(carrier.turn(b'e', &[]).unwrap().words, "");
    assert_eq!(house.program().end(&facts["connection"]), "truncated");
    drop(carrier);
    assert_eq!(house.program().end(&facts["connection"]), "truncated");
    // A program that leaves has not heard the end either.
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    let facts = carrier.connect(b'v');
    drop(carrier);
    let is_cut = || house.program().end(&facts["connection"]) == "truncated";
    wait_until("the truncated end", is_cut);
}

#[test]
fn what_came_before_a_bad_record_arrives_and_the_server_is_told() {
    let house = House::new();
    let (tell, told) = channel();
    let port = answering(&house, move |mut stream| {
        stream.write_all(b"good\n").unwrap();
        stream.flush().unwrap();
        // Application data that nobody can decrypt.
        stream.sock.write_all(&[&[23, 3, 3, 0, 32][..], &[0; 32]].concat()).unwrap();
        tell.send(stream.read(&mut [0]).unwrap_err().to_string()).unwrap();
    });
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    let facts = carrier.connect(b'v');
    carrier.turn(b'p', HELLO).unwrap();
    let heard = carrier.carry_until('j');
    assert!(heard.plaintext == b"good\n" && heard.words.ends_with("rj"), "{heard:?}");
    assert_eq!(heard.message["error"]["kind"], "tls_failed");
    assert!(told.recv().unwrap().contains("BadRecordMac"));
    assert!(carrier.turn(b'r', &[]).is_none());
    assert_eq!(house.program().end(&facts["connection"]), "truncated");
}

/// A server that speaks first, before the program has judged it.
#[test]
fn nothing_is_passed_on_before_the_program_goes_on() {
    let house = House::new();
    let (tell, told) = channel();
    let port = saying(&house, move |mut stream| {
        stream.write_all(b"220 ready\n").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        tell.send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    assert!(carrier.shake().unwrap()["connected"].is_object());
    // To the manager, which has no time for it on a busy machine, and to the program: all that the server says has
    // come, and waits.
    assert!(told.recv_timeout(DEADLINE).is_ok());
    let _ = told.recv_timeout(Duration::from_secs(5));
    assert_eq!(carrier.carry().unwrap().words, "");
    assert_eq!(carrier.turn(b'r', &[]).unwrap().words, "");
    let heard = carrier.turn(b'a', &[]).unwrap();
    assert_eq!((&*heard.words, &*heard.plaintext), ("pc", &b"220 ready\n"[..]));
    // And what is written before is not taken.
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    assert!(carrier.shake().unwrap()["connected"].is_object());
    let refused = carrier.turn(b'p', b"password").unwrap();
    assert_eq!(refused.message["error"]["kind"], "bad_request");
    assert!(!refused.words.contains('r'));
    assert!(carrier.turn(b'v', &[]).is_none());
}

#[test]
fn more_than_waits_is_not_taken_before_the_program_goes_on() {
    let house = House::new();
    let port = saying(&house, |mut stream| while stream.write_all(&[7; 16_384]).is_ok() {});
    let mut carrier = Carrier::trusting(&house, port).unwrap();
    assert!(carrier.shake().unwrap()["connected"].is_object());
    let mut carried = 0;
    let refused = loop {
        let heard = carrier.carry().unwrap();
        assert!(heard.plaintext.is_empty());
        carried += 1;
        if !heard.message.is_null() {
            break heard.message;
        }
        assert!(carried < 1_000);
    };
    assert_eq!(refused["error"]["kind"], "bad_request");
}

#[test]
fn sessions_are_kept_of_servers_that_were_verified() {
    for version in VERSIONS {
        // One ticket: what is kept is what this connection got.
        let (house, server) = house_and_server(&[version, "-num_tickets", "1"]);
        let why = |word: &[u8]| {
            let mut carrier = Carrier::offer(&house, server.port, json!({})).unwrap();
            let facts = carrier.connect(word[0]);
            carrier.talk();
            for word in &word[1..] {
                carrier.turn(*word, &[]).unwrap();
            }
            facts["why"].as_str().unwrap().to_owned()
        };
        house.program().visit("server.test", server.port, json!({}));
        assert_eq!(why(b"v"), "resumed");
        // The word may follow.
        assert_eq!(why(b"av"), "resumed");
        assert_eq!(sessions(&house), 1);
        assert_eq!(why(b"a"), "resumed");
        // Over TLS 1.2 the session that was resumed stays; a new ticket is not kept.
        let left = u64::from(version == "-tls1_2");
        assert_eq!(sessions(&house), left, "{version}");
        if left == 0 {
            assert_eq!(Carrier::kind(&house, server.port, json!({})), "no_session");
        }
    }
}

/// The server's hello, which the program has read, says that it renegotiates securely.
#[test]
fn a_session_of_a_full_handshake_over_tls12_is_kept() {
    let house = House::new();
    let pair = house.authority.issue(&["server.test"]);
    let config = || {
        let config = rustls::ServerConfig::builder_with_provider(rustls_server::provider());
        let config = config.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        Arc::new(rustls_server::with_pair(config.with_no_client_auth(), &pair))
    };
    // The second has no session of the first.
    let (configs, calls) = ([config(), config()], Arc::new(AtomicUsize::new(0)));
    let port = rogue(move |mut tcp| {
        let config = &configs[calls.fetch_add(1, Ordering::Relaxed).min(1)];
        let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
        while tls.is_handshaking() && tls.complete_io(&mut tcp).is_ok() {}
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    drop(house.program().connect("server.test", port, json!({})).unwrap());
    let mut carrier = Carrier::offer(&house, port, json!({})).unwrap();
    assert_eq!(carrier.connect(b'v')["why"], "refused");
    assert_eq!(sessions(&house), 1);
    let mut carrier = Carrier::offer(&house, port, json!({})).unwrap();
    assert_eq!(carrier.connect(b'v')["why"], "resumed");
}

#[test]
fn a_word_that_follows_too_late_keeps_nothing() {
    let (house, server) = house_and_server(&["-tls1_3", "-num_tickets", "1"]);
    let mut carrier = Carrier::trusting(&house, server.port).unwrap();
    carrier.connect(b'a');
    carrier.talk();
    house.clock.pass(Duration::from_secs(11));
    carrier.turn(b'v', &[]).unwrap();
    carrier.talk();
    assert_eq!(sessions(&house), 0);
}

#[test]
fn nothing_is_kept_of_a_certificate_of_another_name() {
    let (house, server) = house_and_server(&["-tls1_3", "-num_tickets", "1"]);
    house.program().visit("server.test", server.port, json!({}));
    let port = server.port;
    drop(server);
    house.certify("other", &["other.test"]);
    let _server = Server::openssl_at(port, &house.folder, "other", &["-tls1_3"]);
    // It has other keys.
    assert_eq!(carried(&house, port, json!({})), "refused");
    assert_eq!(sessions(&house), 0);
}

/// Counts who calls, and hangs up.
fn hanging_up(says: &'static [u8]) -> (u16, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let port = rogue(move |mut client| {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = client.read(&mut [0; 4096]);
        let _ = client.write_all(says);
    });
    (port, calls)
}

#[test]
fn without_a_session_and_without_trust_nobody_is_called() {
    let house = House::new();
    let (port, calls) = hanging_up(b"");
    for wishes in [json!({}), json!({"trust": "none"})] {
        assert_eq!(Carrier::kind(&house, port, wishes), "no_session");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    // Nor for those who do not share.
    let house = House::with(|settings| {
        settings.unshared_hosts = vec!["server.test".parse().unwrap()];
    });
    assert_eq!(Carrier::kind(&house, port, json!({"trust": "system"})), "no_session");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_of_which_nothing_comes_is_called_once_in_ten_minutes() {
    let trusting = json!({"trust": "system"});
    let mut house = House::new();
    // One that speaks no TLS, and one with which the manager has no version in common.
    for says in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x15\x03\x01\x00\x02\x02\x46"] {
        let (port, calls) = hanging_up(says);
        for _ in 0..2 {
            assert_eq!(Carrier::kind(&house, port, trusting.clone()), "no_session");
            assert_eq!(calls.load(Ordering::SeqCst), 1);
        }
        house.clock.pass(Duration::from_secs(601));
        assert_eq!(Carrier::kind(&house, port, trusting.clone()), "no_session");
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
    // One that issues nothing, and one that is not believed; a program that believes it resumes.
    house.certify("server", &["server.test"]);
    let none = Server::openssl(&house.folder, "server", &["-tls1_3", "-num_tickets", "0"]);
    let other = Authority::new();
    other.issue(&["server.test"]).write(&house.file("other"));
    let foreign = Server::openssl(&house.folder, "other", &["-tls1_3"]);
    for server in [&none, &foreign] {
        let (port, told) = tapped(server.port);
        for _ in 0..2 {
            assert_eq!(Carrier::kind(&house, port, trusting.clone()), "no_session");
        }
        assert_eq!(told.try_iter().count(), 1);
    }
    let bundle = json!({"trust": {"bundle": other.pem()}});
    house.program().visit("server.test", foreign.port, bundle);
    assert_eq!(carried(&house, foreign.port, json!({})), "resumed");
    assert_eq!(Carrier::kind(&house, 1, json!({"trust": {"bundle": "none"}})), "bad_request");
    let done = house.stop();
    assert_eq!((done.handshakes.full, done.handshakes.resumed), (2, 1));
}

#[test]
fn a_server_that_breaks_the_handshake_is_left_to_the_program() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    house.program().visit("server.test", server.port, json!({}));
    let mut carrier = Carrier::offer(&house, server.port, json!({})).unwrap();
    carrier.turn(b'r', &[]).unwrap();
    // What no server says.
    let heard = carrier.turn(b'r', b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    assert_eq!(heard.message["error"]["kind"], "tls_failed");
    assert_eq!(heard.words, "rj");
    assert!(carrier.turn(b'r', &[]).is_none());
    assert_eq!(Carrier::kind(&house, server.port, json!({"trust": "system"})), "no_session");
    assert_eq!(house.program().stats()["handshakes"]["failed"], 1);
    house.clock.pass(Duration::from_secs(601));
    // Whoever breaks off over a session loses that one.
    house.program().visit("server.test", server.port, json!({}));
    let mut carrier = Carrier::offer(&house, server.port, json!({})).unwrap();
    carrier.turn(b'r', &[]).unwrap();
    let before = sessions(&house);
    assert_eq!(carrier.turn(b'e', &[]).unwrap().message["error"]["kind"], "tls_failed");
    assert_eq!(sessions(&house), before);
}

#[test]
fn a_program_that_leaves_first_gives_its_session_up() {
    for version in VERSIONS {
        let (house, server) = house_and_server(&[version]);
        let port = server.port;
        house.program().visit("server.test", port, json!({}));
        let before = sessions(&house);
        // Until it asks for the ClientHello none is taken.
        drop(Carrier::offer(&house, port, json!({})).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(sessions(&house), before);
        let mut carrier = Carrier::offer(&house, port, json!({})).unwrap();
        assert_eq!(carrier.turn(b'r', &[]).unwrap().words, "r");
        drop(carrier);
        wait_until("the session to be given up", || sessions(&house) == before - 1);
        assert_eq!(house.program().stats()["handshakes"]["failed"], 0);
    }
}

/// The server may have other certificates now: nobody resumes that session's family before a full handshake has shown
/// that it has not.
#[test]
fn a_program_that_does_not_believe_a_resumption_has_the_next_handshake_made_in_full() {
    for version in VERSIONS {
        let (house, server) = house_and_server(&[version]);
        let visit = || house.program().visit("server.test", server.port, json!({}));
        visit();
        let before = sessions(&house);
        let mut carrier = Carrier::offer(&house, server.port, json!({})).unwrap();
        assert_eq!(carrier.shake().unwrap()["connected"]["resumed"], true);
        drop(carrier);
        wait_until("the family to be doubted", || {
            Carrier::kind(&house, server.port, json!({})) == "no_session"
        });
        assert_eq!((visit(), visit()), ("no_session".to_owned(), "resumed".to_owned()));
        assert!(sessions(&house) >= before, "the old ones are good again");
        let stats = house.program().stats();
        assert_eq!(stats["handshakes"]["full"], 2);
    }
}

/// Verified, and then left without a word: as a program does that has a rule of its own.
#[test]
fn a_program_that_leaves_without_a_word_is_one_that_refused() {
    for version in VERSIONS {
        let (house, server) = house_and_server(&[version]);
        let visit = || house.program().visit("server.test", server.port, json!({}));
        visit();
        // One that speaks does not.
        assert_eq!(carried(&house, server.port, json!({})), "resumed");
        let mut carrier = Carrier::offer(&house, server.port, json!({})).unwrap();
        assert_eq!(carrier.connect(b'v')["resumed"], true);
        drop(carrier);
        wait_until("the family to be doubted", || {
            Carrier::kind(&house, server.port, json!({})) == "no_session"
        });
        assert_eq!(visit(), "no_session");
    }
}

fn offers(suites: &[u16], groups: &[u16], signatures: &[u16]) -> Value {
    json!({"suites": suites, "groups": groups, "signatures": signatures})
}

/// The server is offered what the program accepts, and a session is for those who accept how it was made.
#[test]
fn a_program_that_accepts_less_has_sessions_that_were_made_with_that() {
    for (version, suite, others) in [("-tls1_3", 0x1302, 0x1301), ("-tls1_2", 0xc02c, 0xc02b)] {
        let (house, server) = house_and_server(&[version]);
        let (port, told) = tapped(server.port);
        // The curve of the key of a certificate counts over TLS 1.2.
        let least = offers(&[suite], &[0x1d, 0x17], &[0x0403, 0x0503]);
        let trusts = |offers: &Value| {
            let trust = json!({"bundle": house.authority.pem()});
            json!({"trust": trust, "offers": offers, "host": "server.test"})
        };
        let kind = |offers: &Value| Carrier::kind(&house, port, json!({"offers": offers}));
        assert_eq!(kind(&least), "no_session");
        // A connection of the manager's own is for the program, too.
        let none = json!({"suites": [suite], "groups": [0x18], "signatures": [0x0804]});
        assert_eq!(
            Carrier::offer(&house, port, trusts(&none)).err().unwrap()["kind"],
            "no_session"
        );
        let flight = told.recv().unwrap();
        assert_eq!(extension(&flight, 13), Some(vec![0, 2, 8, 4]));
        house.program().visit("server.test", port, json!({}));
        for other in [
            offers(&[others], &[0x1d, 0x17], &[0x0403, 0x0503]),
            offers(&[suite], &[0x18, 0x17], &[0x0403, 0x0503]),
            offers(&[suite], &[0x1d, 0x17], &[0x0804, 0x0401]),
            // Nothing that the manager supports.
            offers(&[suite], &[0x1e], &[0x0403, 0x0503]),
            offers(&[0x009d], &[0x1d, 0x17], &[0x0403, 0x0503]),
        ] {
            assert_eq!(kind(&other), "no_session", "{version} {other}");
        }
        told.try_iter().for_each(drop);
        let mut carrier = Carrier::offer(&house, port, trusts(&least)).unwrap();
        assert_eq!(carrier.connect(b'v')["resumed"], true);
        carrier.talk();
        // The server serves one after the other.
        drop(carrier);
        let flight = told.recv().unwrap();
        assert_eq!(extension(&flight, 10), Some(vec![0, 4, 0, 0x1d, 0, 0x17]));
        assert_eq!(extension(&flight, 13), Some(vec![0, 4, 4, 3, 5, 3]));
        // That resumption was made with less, and is good for all.
        assert_eq!(house.program().visit("server.test", port, json!({})), "resumed");
    }
}

#[test]
fn frames_that_are_none_are_answered_and_end_it() {
    let (house, server) = house_and_server(&["-tls1_3", "-num_tickets", "1"]);
    let port = server.port;
    let frames = [
        frame(b'x', &[]),
        frame(b'.', &[]),
        frame(b'j', b"{}"),
        vec![b'r', 1, 0, 1],
        vec![b'p', 0xff, 0xff, 0xff],
        frame(b'c', b"x"),
        frame(b'e', b"x"),
        frame(b'v', b"x"),
        frame(b'a', b"x"),
        // In their place none of these says anything yet.
        frame(b'v', &[]),
        frame(b'a', &[]),
        frame(b'p', b"x"),
    ];
    let refused = |carrier: &mut Carrier, bytes: &[u8]| {
        carrier.stream.write_all(bytes).unwrap();
        let heard = carrier.replies().unwrap();
        assert_eq!(heard.message["error"]["kind"], "bad_request", "{bytes:?}");
        assert!(carrier.replies().is_none());
    };
    for bytes in frames {
        // First, after the ClientHello, and once the connection stands.
        for after in 0..3 {
            house.program().visit("server.test", port, json!({}));
            let mut carrier = Carrier::offer(&house, port, json!({})).unwrap();
            match after {
                0 => {}
                1 => assert_eq!(carrier.turn(b'r', &[]).unwrap().words, "r"),
                _ if bytes.len() == 4 && b"va".contains(&bytes[0]) => continue,
                _ if bytes == frame(b'p', b"x") => continue,
                _ => {
                    carrier.connect(b'v');
                }
            }
            refused(&mut carrier, &bytes);
        }
    }
    wait_until("no open connection", || house.program().stats()["open"] == 0);
}

#[test]
fn requests_that_are_none_are_refused() {
    let house = House::new();
    for wishes in [
        json!({"address": null}),
        json!({"address": "server.test"}),
        json!({"addresses": ["127.0.0.1"]}),
        json!({"trust": "all"}),
        json!({"identity": {"chain": "", "key": ""}}),
    ] {
        assert_eq!(Carrier::kind(&house, 1, wishes.clone()), "bad_request", "{wishes}");
    }
    // The program keeps its socket.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let wish = json!({"host": "server.test", "port": 1, "address": "127.0.0.1"});
    let (_, answer) = house.program().ask_passing(&json!({"rejoin": 1, "records": wish}), &tcp);
    assert_eq!(answer["error"]["kind"], "bad_request");
}

/// A program that went on may be silent. One that did not is dropped.
#[test]
#[ignore = "slow: half a minute of silence; make test-all"]
fn a_program_that_is_silent_before_it_goes_on_is_dropped() {
    let (house, server) = House::with_rustls(|_| {});
    house.program().visit("server.test", server.port, json!({}));
    let offer = || Carrier::trusting(&house, server.port).unwrap();
    let (mut asleep, mut shaken, mut idle) = (offer(), offer(), offer());
    shaken.shake().unwrap();
    idle.connect(b'v');
    let begun = Instant::now();
    for silent in [&mut asleep, &mut shaken] {
        // The end of file.
        assert!(silent.replies().is_none());
    }
    let waited = begun.elapsed();
    assert!(waited.as_secs() >= 25, "{waited:?}");
    idle.talk();
}
