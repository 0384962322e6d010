//! The savings of sharing, computed from handshakes made by hand.

use std::net::IpAddr;
use std::sync::Arc;

use rejoin_capture::report::{self, Captured, Report};
use rejoin_capture::sharing::{Application, Assumptions, Cause, Device, Findings, Scope, Sharing};
use rejoin_capture::{Carrier, Certificate, Class, Digest, Handshake, Model, Networks, Version};
use rejoin_testkit::made_capture::{Capture, client_hello_with, extension, record};
use serde_json::Value;

const NETWORKS: &str = "192.0.2.0/24,64500\n198.51.100.0/24,64500\n203.0.113.0/24,64501\n";

/// A full handshake of TLS 1.2 that began at this second; each has a random of its own.
pub(crate) fn full(second: u8, server: &str, name: &str) -> Handshake {
    let mut random = vec![second; 32];
    random.extend(server.bytes().chain(name.bytes()));
    Handshake {
        carrier: Carrier::Tls,
        client_ip: "10.0.0.1".parse().unwrap(),
        client_port: 40_000,
        server_ip: server.parse().unwrap(),
        server_port: 443,
        ch_random: Some(random),
        sni: (!name.is_empty()).then(|| name.to_owned()),
        version: Some(Version::Tls12),
        cls: Class::Full,
        method: None,
        evidence: None,
        hrr: false,
        ch_whole: Some(true),
        psk_offered: None,
        early_data_offered: None,
        offered_sid_len: None,
        offered_ticket_len: None,
        client_auth: Some(false),
        completed: true,
        direct: true,
        program: None,
        process: None,
        server_program: None,
        server_process: None,
        via: None,
        proxied_client: None,
        sh_random_part: Some(Digest([second, 2, 3, 4, 5, 6, 7, 8])),
        t_ch: Some(1e9 + f64::from(second)),
        t_sh: Some(1e9 + f64::from(second) + 0.01),
        frame_ch: None,
        frame_sh: None,
        proof_frame: None,
        t_done: Some(1e9 + f64::from(second) + 0.02),
        offered_ticket_hash: None,
        offered_sid_hash: None,
        ticket_issued: None,
        issued_ticket_len: None,
        issued_ticket_lifetime_s: None,
        issued_ticket_hash: None,
        issued_sid_len: Some(32),
        session_id_hash: None,
        certificate: None,
        cipher: None,
        group: None,
        alpn: None,
        alpn_offered: None,
        ja4: None,
        ech_offered: None,
        bytes_from_client: Some(500),
        bytes_from_server: Some(4_000),
    }
}

fn findings(scope: Scope, captures: &[(&str, &[Handshake])]) -> Findings {
    let mut sharing = Sharing::new(scope, Networks::parse(NETWORKS.as_bytes()).unwrap());
    for (application, handshakes) in captures {
        sharing.begin(application);
        handshakes.iter().for_each(|handshake| sharing.add(handshake));
    }
    sharing.findings(&Assumptions::default(), 10)
}

/// Own sessions, shared on the client, own between servers, shared between servers, certificate.
fn steps(captures: &[(&str, &[Handshake])]) -> [u64; 5] {
    let counts = findings(Scope::default(), captures).ideal;
    [
        counts.full_own_reuse,
        counts.full_shared_client,
        counts.full_own_reuse_server,
        counts.full_shared_server,
        counts.full_shared_certificate,
    ]
}

#[test]
fn every_step_shares_more() {
    let one = [
        full(1, "192.0.2.1", "a.example"),
        full(2, "192.0.2.1", "a.example"),
        full(3, "198.51.100.1", "a.example"),
        full(4, "203.0.113.1", "a.example"),
    ];
    let other = [full(5, "192.0.2.1", "a.example"), full(6, "198.51.100.1", "A.EXAMPLE")];
    assert_eq!(steps(&[("one", &one), ("other", &other)]), [5, 3, 3, 2, 2]);
}

fn report(model: &str, captures: &[(&str, &[Handshake])]) -> (Value, String, String) {
    let model = Model::parse(model).unwrap();
    let report = Report::new(Captured::default(), findings(Scope::default(), captures), model);
    let (text, page) = (report::table(&report), report::html(&report, "x"));
    (serde_json::to_value(&report).unwrap(), text, page)
}

/// A mean of no handshakes is not known, and neither is what is computed of one.
#[test]
fn bytes_of_handshakes_that_were_not_seen_are_not_known() {
    const MODEL: &str = "name = 'x'\n[full]\nlatency_ms = 100\nenergy_uah = 7\n[resumed]\n\
                         latency_ms = 50\n[per_kilobyte]\nlatency_ms = 10";
    let again = [full(1, "192.0.2.1", "a.example"), full(2, "192.0.2.1", "a.example")];
    let (json, text, page) = report(MODEL, &[("one", &again)]);
    assert_eq!(json["wire"]["resumed"], Value::Null);
    assert_eq!(json["wire"]["full"]["from_server"], 4_000.0);
    let measured = &json["measured"][0];
    assert_eq!(
        (&measured["full"]["bytes"], &measured["resumed"]["bytes"]),
        (&4_500.0.into(), &Value::Null)
    );
    let [observed, reused] = [0, 1].map(|step| &json["average"][step]);
    assert_eq!((&observed["latency_ms"], &observed["energy_uah"]), (&145.0.into(), &7.0.into()));
    // One of the two would be resumed. Its bytes cost time, but no charge.
    assert_eq!((&reused["latency_ms"], &reused["energy_uah"]), (&Value::Null, &3.5.into()));
    assert!(text.contains("(4000 of the server), a resumed one is not measured"), "{text}");
    for text in [text, page] {
        assert!(text.contains("the model counts bytes"), "{text}");
    }
    // With a resumption all of it is known.
    let resumed = Handshake {
        cls: Class::Resumed,
        bytes_from_server: Some(500),
        ..full(3, "192.0.2.1", "a.example")
    };
    let [one, other] = again;
    let (json, text, page) = report(MODEL, &[("one", &[one, other, resumed.clone()])]);
    assert_eq!(json["wire"]["resumed"]["from_server"], 500.0);
    assert!(json["average"][1]["latency_ms"].is_f64(), "{json}");
    assert!(!text.contains("the model counts bytes") && !page.contains("the model counts bytes"));
    // A side that was not captured sent something all the same.
    let half = Handshake { bytes_from_client: None, ..full(4, "192.0.2.1", "a.example") };
    let (json, text, _) = report(MODEL, &[("one", &[half, resumed])]);
    assert_eq!(
        (&json["wire"]["full"], &json["measured"][0]["full"]["bytes"]),
        (&Value::Null, &Value::Null)
    );
    assert!(text.contains("(500 of the server), a full one is not measured"), "{text}");
    // Of no handshakes there is no average.
    let (json, _, page) = report(MODEL, &[]);
    assert_eq!(json["average"][0]["energy_uah"], Value::Null);
    assert!(!page.contains("<td>0.00"), "{page}");
}

/// Counts alone say nothing of bytes.
#[test]
fn counts_have_no_bytes() {
    let model = |text| Model::parse(text).unwrap();
    let table = |model| report::counts_table(&[(1, 1)], &model);
    let text = table(model(
        "name = 'x'\n[full]\nlatency_ms = 4\n[resumed]\n[per_kilobyte]\nlatency_ms = 1",
    ));
    assert!(text.contains('–') && text.contains("the model counts bytes"), "{text}");
    let text = table(model("name = 'x'\n[full]\nlatency_ms = 4\n[resumed]"));
    assert!(text.contains("2.00") && !text.contains('–'), "{text}");
}

/// One of two programs of a device comes back, and so does one of two that only their hellos tell apart.
#[test]
fn programs_may_be_the_applications() {
    let of = |second, program: Option<&str>| Handshake {
        program: program.map(str::to_owned),
        ..full(second, "192.0.2.1", "a.example")
    };
    let hello = |second, more: &[u8]| {
        let mut capture = Capture::new();
        capture.client(0, &record(22, &client_hello_with(second, &[], more)));
        Handshake { ja4: capture.handshake().ja4, ..of(second, None) }
    };
    let alpn = extension(16, &[0, 3, 2, b'h', b'2']);
    let handshakes = [
        of(1, Some("curl")),
        of(2, Some("curl")),
        of(3, Some("wget")),
        hello(4, &[]),
        hello(5, &alpn),
        hello(6, &alpn),
        of(7, None),
    ];
    let scope = Scope { application: Application::Program, ..Scope::default() };
    let found = findings(scope, &[("capture", &handshakes)]);
    assert_eq!((found.applications, found.ideal.full_own_reuse), (5, 5));
}

#[test]
fn without_a_name_the_address_stands_for_it() {
    let handshakes = [
        full(1, "192.0.2.1", ""),
        full(2, "192.0.2.1", ""),
        full(3, "192.0.2.2", ""),
        // A name that looks like an address is a name.
        full(4, "192.0.2.1", "192.0.2.1"),
    ];
    assert_eq!(steps(&[("one", &handshakes)]), [3, 3, 3, 3, 3]);
}

#[test]
fn a_certificate_speaks_for_its_names() {
    let certificate = Certificate {
        sha256: [1; 32],
        message_bytes: 1_000,
        names: Arc::from(["*.a.example".into(), "b.example".into()]),
        not_after_s: None,
    };
    let with = |handshake| Handshake { certificate: Some(certificate.clone()), ..handshake };
    let handshakes = [
        with(full(1, "192.0.2.1", "b.example")),
        full(2, "198.51.100.1", "www.a.example"),
        // Two labels, and another provider, are not covered.
        full(3, "198.51.100.1", "x.www.a.example"),
        full(4, "203.0.113.1", "www.a.example"),
    ];
    assert_eq!(steps(&[("one", &handshakes)]), [4, 4, 4, 4, 3]);
}

#[test]
fn what_does_not_count_is_told_by_its_reason() {
    let first = full(1, "192.0.2.1", "a.example");
    let again = [first.clone()];
    let rest = [
        first.clone(),
        Handshake { cls: Class::Unknown, ..full(2, "192.0.2.1", "b.example") },
        Handshake { direct: false, ..full(3, "192.0.2.1", "b.example") },
        Handshake { client_auth: Some(true), ..full(4, "192.0.2.1", "b.example") },
    ];
    let found = findings(Scope::default(), &[("one", &again), ("other", &rest)]);
    let passed_over = found.passed_over;
    let reasons = [
        passed_over.duplicate,
        passed_over.unclassified,
        passed_over.indirect,
        passed_over.client_certificate,
    ];
    assert_eq!((found.ideal.handshakes, reasons), (1, [1, 1, 1, 1]));
    // The same capture may have two handshakes with one random, as synthetic ones do.
    let other = Handshake { sh_random_part: Some(Digest([77; 8])), ..first.clone() };
    let twice = findings(Scope::default(), &[("one", &[first.clone(), other])]);
    assert_eq!((twice.ideal.handshakes, twice.passed_over.copy), (2, 0));
    // A capture that shows only the beginning takes nothing from the one that shows it all.
    let cut = [Handshake { cls: Class::NoServerhello, ..first }];
    let found = findings(Scope::default(), &[("cut", &cut), ("whole", &again)]);
    assert_eq!(found.ideal.handshakes, 1);
}

#[test]
fn sessions_made_with_a_client_certificate_do_not_count_when_they_resume() {
    let [by_ticket, by_id, other] = [1, 2, 3].map(|number| Some(Digest([number; 8])));
    let (second_ticket, made_up) = (Some(Digest([4; 8])), Some(Digest([5; 8])));
    let at = |second| full(second, "192.0.2.1", "a.example");
    let with_certificate = Handshake {
        client_auth: Some(true),
        issued_ticket_hash: by_ticket,
        session_id_hash: by_id,
        ..at(1)
    };
    let resumed = |second| Handshake { cls: Class::Resumed, ..at(second) };
    let again = Handshake {
        offered_ticket_hash: by_ticket,
        offered_sid_hash: made_up,
        session_id_hash: made_up,
        issued_ticket_hash: second_ticket,
        ..resumed(2)
    };
    let and_again = Handshake { offered_ticket_hash: second_ticket, ..resumed(3) };
    let found_by_id = Handshake { offered_sid_hash: by_id, session_id_hash: by_id, ..resumed(4) };
    // Only the server's side was captured.
    let answer_alone = Handshake { ch_random: None, session_id_hash: by_id, ..resumed(5) };
    // A server that does not take the session, and sessions of others, count.
    let declined = Handshake { offered_ticket_hash: by_ticket, ..at(6) };
    let others = Handshake { offered_ticket_hash: other, ..resumed(7) };
    let all = [with_certificate, again, and_again, found_by_id, answer_alone, declined, others];
    let of = |captures: &[(&str, &[Handshake])]| {
        let found = findings(Scope::default(), captures);
        (found.ideal.handshakes, found.ideal.full_observed, found.passed_over.client_certificate)
    };
    assert_eq!(of(&[("one", &all)]), (2, 1, 5));
    // The capture with the certificate may come last by its name.
    let (first, rest) = all.split_at(1);
    assert_eq!(of(&[("a", rest), ("b", first)]), (2, 1, 5));
}

#[test]
fn a_copy_by_another_interface_or_nat_counts_once() {
    let first = full(1, "192.0.2.1", "a.example");
    let begun = first.t_ch.unwrap();
    let translated = Handshake {
        client_ip: "203.0.113.5".parse().unwrap(),
        t_ch: Some(begun + 0.000_04),
        ..first.clone()
    };
    let found = findings(Scope::default(), &[("one", &[first.clone(), translated.clone()])]);
    assert_eq!((found.ideal.handshakes, found.passed_over.copy), (1, 1));
    assert_eq!(found.applications, 1);
    // Long after it, the same bytes are a replay, and count.
    let replayed = Handshake { t_ch: Some(begun + 60.0), ..translated };
    let found = findings(Scope::default(), &[("one", &[first, replayed])]);
    assert_eq!((found.ideal.handshakes, found.passed_over.copy), (2, 0));
}

/// Client randoms may repeat, in captures that were made, and be absent.
#[test]
fn handshakes_of_one_random_or_of_none_are_told_apart() {
    let counts = |captures: &[(&str, &[Handshake])]| {
        let found = findings(Scope::default(), captures);
        let passed_over = found.passed_over;
        (found.ideal.handshakes, passed_over.copy, passed_over.duplicate)
    };
    let first = full(1, "192.0.2.1", "a.example");
    let answered = |part| Handshake { sh_random_part: Some(Digest(part)), ..first.clone() };
    assert_eq!(counts(&[("one", &[first.clone(), answered([9, 8, 7, 6, 5, 4, 3, 2])])]), (2, 0, 0));
    assert_eq!(counts(&[("one", &[answered([77; 8]), answered([77; 8])])]), (2, 0, 0));
    let quic = [
        Handshake { carrier: Carrier::Quic, ..first.clone() },
        Handshake {
            carrier: Carrier::Quic,
            server_ip: "192.0.2.2".parse().unwrap(),
            ..answered([1; 8])
        },
    ];
    assert_eq!(counts(&[("paths", &quic)]), (1, 0, 1));
    let silent = Handshake { ch_random: None, ..first };
    let twice = [silent.clone(), silent];
    assert_eq!(counts(&[("one", &twice)]), (2, 0, 0));
    assert_eq!(counts(&[("one", &twice), ("the same", &twice)]), (2, 0, 2));
    assert_eq!(counts(&[("a part", &twice[..1]), ("all", &twice)]), (2, 0, 1));
}

/// A capture gives handshakes when they end, and those that do not count among the others.
#[test]
fn the_order_in_which_handshakes_come_changes_nothing() {
    let ticket = |number: u8| Some(Digest([number, 1, 2, 3, 4, 5, 6, 7]));
    let issued = |second: u8, server: &str| Handshake {
        issued_ticket_len: Some(100),
        issued_ticket_hash: ticket(second),
        ticket_issued: Some(true),
        issued_ticket_lifetime_s: Some(20),
        ..full(second, server, "a.example")
    };
    let offered = |second: u8, server: &str, of: u8| Handshake {
        offered_ticket_len: Some(100),
        offered_ticket_hash: ticket(of),
        ..issued(second, server)
    };
    let (here, there) = ("192.0.2.1", "198.51.100.1");
    let unknown = |second| Handshake { cls: Class::Unknown, ..issued(second, here) };
    let of_one = [
        unknown(1),
        issued(2, here),
        Handshake { cls: Class::Resumed, ..offered(3, here, 2) },
        unknown(4),
        offered(5, there, 2),
        offered(6, there, 5),
        offered(40, here, 6),
    ];
    let of_other = of_one.clone().map(|handshake| Handshake {
        ch_random: handshake.ch_random.map(|random| [&random[..], &[1]].concat()),
        t_ch: handshake.t_ch.map(|begun| begun + 100.0),
        t_sh: handshake.t_sh.map(|answered| answered + 100.0),
        t_done: handshake.t_done.map(|done| done + 100.0),
        ..handshake
    });
    let found = |reversed: bool| {
        let captures = [of_one.clone(), of_other.clone()].map(|mut capture| {
            if reversed {
                capture.reverse();
            }
            capture
        });
        findings(Scope::default(), &[("one", &captures[0]), ("other", &captures[1])])
    };
    let in_order = found(false);
    assert_eq!(in_order, found(true));
    assert_eq!((in_order.ideal.handshakes, in_order.passed_over.unclassified), (10, 4));
    let cause = |cause| {
        let counts = in_order.not_resumed.causes.iter();
        counts.filter(|count| count.cause == cause).map(|count| count.handshakes).sum::<u64>()
    };
    let causes = [Cause::OtherAddress, Cause::DeclinedAll, Cause::Expired].map(cause);
    assert_eq!(causes, [2, 2, 2], "{:?}", in_order.not_resumed.causes);
}

#[test]
fn without_a_time_nothing_is_said_by_the_clock() {
    let at = |second| Handshake {
        psk_offered: Some(false),
        offered_ticket_len: Some(0),
        offered_sid_len: Some(0),
        ..full(second, "192.0.2.1", "a.example")
    };
    let timeless = |second| Handshake { t_ch: None, t_sh: None, t_done: None, ..at(second) };
    let of = |handshakes: &[Handshake]| {
        let found = findings(Scope::default(), &[("one", handshakes)]);
        let truly = [found.realistic.handshakes, found.realistic.full_own_reuse];
        let causes = found.not_resumed.causes.iter().map(|count| (count.cause, count.handshakes));
        let causes: Vec<_> = causes.collect();
        (
            found.without_time,
            found.ideal.full_own_reuse,
            truly,
            causes,
            found.over_time,
            found.measured,
        )
    };
    let (without, own, truly, causes, over_time, measured) = of(&[timeless(1), timeless(2)]);
    assert_eq!((without, own, truly), (2, 1, [0, 0]));
    assert_eq!((causes, over_time.intervals.len()), (vec![(Cause::Unknown, 2)], 0));
    let times = measured[0].full;
    assert_eq!((times.handshakes, times.timed, times.median_ms), (2, 0, None));
    // What came before is not known either.
    let (without, own, truly, causes, over_time, _) = of(&[timeless(1), at(2), at(60)]);
    assert_eq!((without, own, truly), (1, 1, [2, 1]));
    assert_eq!(causes, [(Cause::Unknown, 3)]);
    assert!(over_time.intervals.iter().all(|interval| interval.begin_s >= 1_000_000_000));
}

#[test]
fn times_are_those_of_the_capture() {
    let timed = |second: u8, ms: f64| {
        let handshake = full(second, "192.0.2.1", "a.example");
        Handshake { t_done: handshake.t_ch.map(|begun| begun + ms / 1e3), ..handshake }
    };
    // The clock of one direction is ahead in the last: it has no time.
    let handshakes = [timed(1, 30.0), timed(2, 500.0), timed(3, 70.0), timed(4, -20.0)];
    let found = findings(Scope::default(), &[("one", &handshakes)]);
    let [measured] = &found.measured[..] else { panic!("{:?}", found.measured) };
    assert_eq!((measured.full.handshakes, measured.full.timed), (4, 3));
    assert!((measured.full.median_ms.unwrap() - 70.0).abs() < 0.01, "{measured:?}");
    assert_eq!((measured.resumed.handshakes, measured.resumed.median_ms), (0, None));
    // Of two times in the middle it is the mean.
    let found =
        findings(Scope::default(), &[("one", &[&handshakes[..], &[timed(5, 30.0)]].concat())]);
    let median = found.measured[0].full.median_ms.unwrap();
    assert!((median - 50.0).abs() < 0.01, "{median}");
}

#[test]
fn applications_and_devices_may_be_addresses() {
    let other: IpAddr = "10.0.0.2".parse().unwrap();
    let handshakes = [
        full(1, "192.0.2.1", "a.example"),
        Handshake { client_ip: other, ..full(2, "192.0.2.1", "a.example") },
    ];
    let full_of = |application, device| {
        let scope = Scope { application, device, hash_seed: 7 };
        let counts = findings(scope, &[("one", &handshakes)]).ideal;
        (counts.full_own_reuse, counts.full_shared_client)
    };
    assert_eq!(full_of(Application::Capture, Device::One), (1, 1));
    assert_eq!(full_of(Application::Client, Device::One), (2, 1));
    assert_eq!(full_of(Application::Client, Device::Client), (2, 2));
}

#[test]
fn services_stand_in_the_order_of_their_applications() {
    let one = [full(1, "192.0.2.1", "a.example"), full(2, "192.0.2.2", "b.example")];
    let other = [full(3, "192.0.2.3", "b.example"), full(4, "192.0.2.1", "")];
    let found = findings(Scope::default(), &[("one", &one), ("other", &other)]);
    let services: Vec<_> = found
        .top_services
        .iter()
        .map(|service| (service.name.as_str(), service.applications, service.hosts.len()))
        .collect();
    assert_eq!(services, [("b.example", 2, 2), ("a.example", 1, 1)]);
    assert_eq!((found.applications, found.services, found.hosts), (2, 2, 3));
}
