//! The causes of full handshakes, each prepared.

use std::time::Instant;

use rejoin_capture::sharing::{
    Application, Assumptions, Cause, Device, NotResumed, Scope, Sharing,
};
use rejoin_capture::{Class, Digest, Handshake, Method, Networks, Version};

use crate::sharing::full;

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";
const NAME: &str = "a.example";

/// A full handshake whose client offered nothing and which issued a ticket for an hour.
fn first(second: u8, server: &str) -> Handshake {
    Handshake {
        psk_offered: Some(false),
        offered_ticket_len: Some(0),
        offered_sid_len: Some(0),
        issued_sid_len: Some(0),
        ticket_issued: Some(true),
        issued_ticket_len: Some(100),
        issued_ticket_hash: Some(Digest([second; 8])),
        issued_ticket_lifetime_s: Some(20),
        ..full(second, server, NAME)
    }
}

/// A full handshake in spite of the ticket issued at a second.
fn declined(second: u8, server: &str, ticket: u8) -> Handshake {
    Handshake {
        offered_ticket_len: Some(100),
        offered_ticket_hash: Some(Digest([ticket; 8])),
        ..first(second, server)
    }
}

fn resumed(second: u8, server: &str, ticket: u8) -> Handshake {
    let method = Some(Method::Ticket);
    Handshake { cls: Class::Resumed, method, ..declined(second, server, ticket) }
}

fn in_1_3(handshake: Handshake) -> Handshake {
    Handshake {
        version: Some(Version::Tls13),
        issued_sid_len: None,
        ticket_issued: None,
        issued_ticket_len: None,
        issued_ticket_hash: None,
        issued_ticket_lifetime_s: None,
        ..handshake
    }
}

fn not_resumed(captures: &[(&str, Vec<Handshake>)]) -> NotResumed {
    let scope = Scope { application: Application::Capture, device: Device::One, hash_seed: 3 };
    let mut sharing = Sharing::new(scope, Networks::default());
    for (application, handshakes) in captures {
        sharing.begin(application);
        handshakes.iter().for_each(|handshake| sharing.add(handshake));
    }
    sharing.findings(&Assumptions::default(), 10).not_resumed
}

/// The causes of the full handshakes but first visits.
fn causes(handshakes: &[Handshake]) -> Vec<(Cause, u64)> {
    let found = not_resumed(&[("one", handshakes.to_vec())]);
    let counts = found.causes.iter().filter(|count| count.cause != Cause::FirstVisit);
    counts.map(|count| (count.cause, count.handshakes)).collect()
}

#[test]
fn what_was_offered_and_declined_has_its_cause() {
    let expired = declined(30, A, 1);
    let other_name = Handshake { sni: Some("b.example".to_owned()), ..declined(5, A, 1) };
    let newer = in_1_3(declined(5, A, 1));
    let key = Handshake { psk_offered: Some(true), ..first(5, A) };
    let again = declined(6, A, 99);
    let cases = [
        (vec![first(1, A), expired], Cause::Expired, 1),
        (vec![first(1, A), newer], Cause::OtherVersion, 1),
        (vec![first(1, A), key], Cause::OtherVersion, 1),
        (vec![first(1, A), declined(5, B, 1)], Cause::OtherAddress, 1),
        (vec![first(1, A), other_name.clone()], Cause::OtherName, 1),
        (
            vec![first(1, A), Handshake { server_ip: B.parse().unwrap(), ..other_name }],
            Cause::Several,
            1,
        ),
        (vec![first(1, A), resumed(3, A, 1), declined(5, A, 1)], Cause::DeclinedHere, 1),
        (vec![first(1, A), declined(5, A, 1), again.clone()], Cause::DeclinedAll, 2),
        (vec![again], Cause::Declined, 1),
    ];
    for (handshakes, cause, count) in cases {
        assert_eq!(causes(&handshakes), [(cause, count)]);
    }
}

#[test]
fn what_was_not_offered_has_its_cause() {
    let nothing = Handshake {
        ticket_issued: Some(false),
        issued_ticket_len: None,
        issued_ticket_hash: None,
        issued_ticket_lifetime_s: None,
        ..first(1, A)
    };
    let hole = Handshake { ticket_issued: None, ..nothing.clone() };
    let made_up = Handshake { offered_sid_len: Some(32), ..in_1_3(first(5, A)) };
    let at_once = Handshake { t_ch: first(1, A).t_ch.map(|t| t + 0.001), ..first(2, A) };
    let cut = Handshake { offered_ticket_len: None, psk_offered: None, ..first(5, A) };
    let cases = [
        (vec![nothing, first(5, A)], Cause::NothingGiven),
        (vec![hole, first(5, A)], Cause::Unknown),
        (vec![first(1, A), first(40, A)], Cause::LifetimeOver),
        (vec![first(1, A), first(5, A)], Cause::NotOffered),
        (vec![first(1, A), at_once], Cause::Parallel),
        (vec![in_1_3(first(1, A)), made_up], Cause::CameBack),
        (vec![first(1, A), cut], Cause::Unknown),
    ];
    for (handshakes, cause) in cases {
        assert_eq!(causes(&handshakes), [(cause, 1)]);
    }
    // A session ID in TLS 1.2 that no server is seen to issue may be made up.
    let doubtful = Handshake { offered_sid_len: Some(32), ..first(5, A) };
    assert_eq!(causes(&[first(1, A), doubtful]), [(Cause::Unknown, 1)]);
}

/// A server need not give a new ticket where it takes one: the client keeps what it has, with its lifetime.
#[test]
fn a_resumption_without_a_new_ticket_leaves_the_client_what_it_had() {
    let kept = |second| Handshake {
        ticket_issued: Some(false),
        issued_ticket_len: None,
        issued_ticket_hash: None,
        issued_ticket_lifetime_s: None,
        ..resumed(second, A, 1)
    };
    let echoed = |second| Handshake { issued_sid_len: Some(32), ..kept(second) };
    let hidden = |second| Handshake { ticket_issued: None, ..echoed(second) };
    let none = Handshake { cls: Class::Full, method: None, ..kept(3) };
    let cases = [
        (vec![first(1, A), kept(5), first(40, A)], Cause::LifetimeOver),
        (vec![first(1, A), echoed(5), first(40, A)], Cause::LifetimeOver),
        (vec![first(1, A), kept(5), first(15, A)], Cause::NotOffered),
        (vec![first(1, A), kept(5), kept(6), first(40, A)], Cause::LifetimeOver),
        // What was given lies before the captures, or in a hole, and so does its lifetime.
        (vec![kept(5), first(9, A)], Cause::NotOffered),
        (vec![first(1, A), hidden(5), first(40, A)], Cause::Unknown),
        // A new ticket has a lifetime of its own.
        (vec![first(1, A), resumed(15, A, 1), first(30, A)], Cause::NotOffered),
    ];
    for (handshakes, cause) in cases {
        assert_eq!(causes(&handshakes), [(cause, 1)]);
    }
    // A session that the client had besides.
    let found = causes(&[first(1, A), none, kept(5), first(9, A)]);
    assert!(found.contains(&(Cause::NotOffered, 1)), "{found:?}");
}

#[test]
fn another_application_may_have_had_the_session() {
    let found = not_resumed(&[("mail", vec![first(1, A)]), ("news", vec![first(9, A)])]);
    let causes: Vec<_> = found.causes.iter().map(|count| count.cause).collect();
    assert_eq!(causes, [Cause::OtherApplication, Cause::FirstVisit]);
    let [server] = &found.by_server[..] else { panic!("{found:?}") };
    assert_eq!((server.address.as_str(), server.resumed, server.full), (A, 0, 1));
    assert_eq!(found.by_client[0].main_cause(), Some(Cause::OtherApplication));
}

/// One client's applications may be many: a capture each, or a program each.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares times")]
fn many_applications_of_a_client_take_little_longer_than_one() {
    const HANDSHAKES: u32 = 150_000;
    let took = |applications: u32| {
        let mut sharing = Sharing::new(Scope::default(), Networks::default());
        for number in 0..HANDSHAKES {
            if number < applications {
                sharing.begin(&number.to_string());
            }
            let random = Some([number.to_be_bytes(); 8].concat());
            sharing.add(&Handshake { ch_random: random, ..full(1, "192.0.2.1", "a.example") });
        }
        let begun = Instant::now();
        let found = sharing.findings(&Assumptions::default(), 10);
        assert_eq!(found.applications, u64::from(applications));
        begun.elapsed()
    };
    let (one, many) = (took(1), took(HANDSHAKES));
    eprintln!("{one:?}, {many:?}");
    assert!(many < 6 * one, "{one:?}, {many:?}");
}
