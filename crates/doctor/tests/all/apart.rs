//! Several that answer for one name, with keys of their own or shared.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use rejoin_doctor::{Cause, Earlier, Facts, Report, Settings, Severity, Way};

use crate::site::{Site, examined};

const BOTH: &str = "ssl_protocols TLSv1.2 TLSv1.3;";
const MACHINES: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// Three machines with these settings.
fn machines(settings: &str) -> Site {
    let mut site = Site::new();
    site.folder.write("ticket.key", [7; 80]);
    for machine in MACHINES {
        site.nginx(&format!("{BOTH} {settings}"), machine);
    }
    site
}

#[test]
fn machines_with_keys_of_their_own_lose_all_but_a_share() {
    let site = machines("");
    let found = examined(&site.settings(&MACHINES)).expect("handshakes");
    found.assert_in_the_way(&[Cause::MachinesApart]);
    let finding = &found.0.findings[0];
    assert_eq!(finding.losses.len(), 2, "{finding:?}");
    for loss in &finding.losses {
        let share = loss.resuming_share.expect("a share");
        assert!((share - 1.0 / 3.0).abs() < 1e-9, "{loss:?}");
        assert!(loss.bytes.is_some_and(|bytes| bytes > 100), "{loss:?}");
    }
    assert_eq!(found.0.facts.crossings.len(), 12, "two ways between three machines");
}

#[test]
fn machines_with_one_key_file_are_well() {
    let site = machines("ssl_session_ticket_key FOLDER/ticket.key;");
    let found = examined(&site.settings(&MACHINES)).expect("handshakes");
    found.assert_in_the_way(&[]);
    assert!(found.0.facts.crossings.iter().all(|crossing| crossing.tally.resumed == 1));
}

#[test]
fn machines_of_different_ways_or_versions_are_apart() {
    let two = |settings: [&str; 2]| {
        let mut site = Site::new();
        site.folder.write("ticket.key", [7; 80]);
        for (machine, settings) in MACHINES.iter().zip(settings) {
            site.nginx(settings, machine);
        }
        examined(&site.settings(&MACHINES[..2])).expect("handshakes")
    };
    let by_id = "ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache shared:tls:1m;";
    let by_ticket = "ssl_protocols TLSv1.2; ssl_session_ticket_key FOLDER/ticket.key;";
    let by_ticket_too = &format!("{by_ticket} ssl_session_cache shared:tls:1m;")[..];
    two([by_ticket, by_id]).assert_in_the_way(&[Cause::MachinesApart]);
    // Two of three are well, and a client that leaves them has a ticket for who takes none.
    let mut site = Site::new();
    site.folder.write("ticket.key", [7; 80]);
    for (machine, settings) in MACHINES.iter().zip([by_ticket_too, by_ticket_too, by_id]) {
        site.nginx(settings, machine);
    }
    let found = examined(&site.settings(&MACHINES)).expect("handshakes");
    found.assert_in_the_way(&[Cause::MachinesApart]);
    let share = found.0.findings[0].losses[0].resuming_share.expect("a share");
    assert!((share - 5.0 / 9.0).abs() < 1e-9, "{}", found.0.text());
    let of_both = "ssl_protocols TLSv1.2 TLSv1.3; ssl_session_ticket_key FOLDER/ticket.key;";
    two([of_both, by_ticket]).assert_in_the_way(&[Cause::VersionsApart]);
}

#[test]
fn directions_beyond_the_bound_are_not_tried() {
    let site = machines("ssl_session_ticket_key FOLDER/ticket.key;");
    // An address needs 15 for itself, and 8 for the directions.
    let bound = site.settings(&MACHINES);
    let settings = Settings { attempts: 1, others: 0, connections: 19, ..bound };
    let report = examined(&settings).expect("handshakes").0;
    let (facts, text) = (&report.facts, report.text());
    assert!(facts.crossings.iter().all(|crossing| crossing.tally.resumed == 1), "{text}");
    assert_eq!(facts.crossings.len() + facts.crossings_not_tried.len(), 12, "{text}");
    assert!(!facts.crossings_not_tried.is_empty(), "{text}");
    assert_eq!(report.resumes, None, "{text}");
    let remark = "The bound of connections was reached";
    assert!(text.contains("not none; not tried: ") && text.contains(remark), "{text}");
}

#[test]
fn workers_with_keys_of_their_own_are_told_by_their_names() {
    let mut site = Site::new();
    for _ in 0..3 {
        let listen = "server { listen 127.0.0.1:PORT ssl reuseport; return 200 x; }";
        site.nginx_with(&format!("{BOTH} {listen}"), "127.0.0.1");
    }
    let mut settings = site.settings(&["127.0.0.1"]);
    // By chance, one worker may get all of a few connections.
    settings.attempts = 24;
    let found = examined(&settings).expect("handshakes");
    found.assert_in_the_way(&[Cause::WorkersApart]);
    let names = found.way(Way::Tls13).key_names.as_ref().map(Vec::len);
    assert_eq!(names, Some(3), "{}", found.0.text());
    let tally = found.way(Way::Tls13).at_once;
    assert!(tally.resumed < tally.tried, "{tally:?}");
}

/// Passes connections on to these addresses in turn, as balancers do by default, for as long as the test program runs.
pub(crate) fn balance(address: SocketAddr, to: Vec<SocketAddr>) {
    relay(address, to.into_iter().cycle());
}

/// Passes each connection on to the next address.
fn relay(address: SocketAddr, to: impl Iterator<Item = SocketAddr> + Send + 'static) {
    let listener = TcpListener::bind(address).expect("an address");
    thread::spawn(move || {
        for (client, to) in listener.incoming().map_while(Result::ok).zip(to) {
            let server = TcpStream::connect(to).expect("a server");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let [mut from, mut to] = [from, to].map(|end| end.try_clone().expect("a socket"));
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
}

#[test]
fn machines_behind_a_balancer_that_takes_turns_resume_a_share() {
    let mut site = Site::new();
    let cache = "ssl_session_tickets off; ssl_session_cache shared:tls:1m;";
    for machine in &MACHINES[..2] {
        site.nginx(&format!("{BOTH} {cache}"), machine);
    }
    let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), site.port);
    balance(at(MACHINES[2]), MACHINES[..2].iter().map(|machine| at(machine)).collect());
    let found = examined(&site.settings(&[MACHINES[2]])).expect("handshakes");
    found.assert_in_the_way(&[Cause::WorkersApart]);
    for loss in &found.0.findings[0].losses {
        assert_eq!(loss.resuming_share, Some(0.5), "{}", found.0.text());
    }
}

#[test]
fn more_machines_that_take_turns_than_attempts_are_several() {
    let mut site = Site::new();
    let machines: Vec<String> = (2..12).map(|last| format!("127.0.0.{last}")).collect();
    let cache = "ssl_session_tickets off; ssl_session_cache shared:tls:1m;";
    let servers = machines.iter().map(|machine| {
        let cache = cache.replace("tls:", &format!("{machine}:"));
        format!("server {{ listen {machine}:PORT ssl; {cache} return 200 x; }}")
    });
    let servers: Vec<String> = servers.collect();
    site.nginx_with(&format!("{BOTH} {}", servers.join(" ")), &machines[0]);
    let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), site.port);
    balance(at("127.0.0.1"), machines.iter().map(|machine| at(machine)).collect());
    let found = examined(&site.settings(&["127.0.0.1"])).expect("handshakes");
    found.assert_in_the_way(&[Cause::WorkersApart]);
    for loss in &found.0.findings[0].losses {
        assert_eq!(loss.resuming_share, Some(0.1), "{}", found.0.text());
    }
}

/// The first handshake may be with a machine that gives no tickets.
#[test]
fn machines_of_different_ways_that_take_turns_are_several() {
    for turn in [[0, 1], [1, 0]] {
        let mut site = Site::new();
        let ways = [
            "ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache shared:tls:1m;",
            "ssl_protocols TLSv1.2;",
        ];
        for (machine, way) in MACHINES.iter().zip(ways) {
            site.nginx(way, machine);
        }
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), site.port);
        balance(at(MACHINES[2]), turn.map(|of| at(MACHINES[of])).into());
        let found = examined(&site.settings(&[MACHINES[2]])).expect("handshakes");
        found.assert_in_the_way(&[Cause::WorkersApart]);
    }
}

/// A machine that was restarted once has lost its sessions once, and is no other machine.
#[test]
fn a_session_that_was_lost_at_once_shows_no_second_machine() {
    let mut site = Site::new();
    let cache = "ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache shared:tls:1m;";
    for machine in &MACHINES[..2] {
        site.nginx(cache, machine);
    }
    let [before, after] =
        [0, 1].map(|of| SocketAddr::new(MACHINES[of].parse().expect("an address"), site.port));
    // Three make sessions, and the returns of four are known.
    let to = [before; 7].into_iter().chain(std::iter::repeat(after));
    relay(SocketAddr::new(MACHINES[2].parse().expect("an address"), site.port), to);
    let found = examined(&site.settings(&[MACHINES[2]])).expect("handshakes");
    assert_eq!(found.causes(Severity::Risk), [Cause::SometimesLost].into(), "{}", found.0.text());
    assert_eq!(found.causes(Severity::Loss), [].into(), "{}", found.0.text());
}

/// An earlier report, made some days before.
fn days_before(report: &Report, days: u64) -> Earlier {
    let mut json = serde_json::to_value(report).expect("JSON");
    json["at_s"] = (report.facts.at_s - days * 86_400).into();
    serde_json::from_value(json).expect("a report")
}

fn compared(facts: &Facts, earlier: &Earlier) -> crate::site::Examined {
    let mut facts = facts.clone();
    facts.compare(earlier);
    crate::site::Examined(Report::new(facts))
}

#[test]
fn a_key_that_an_earlier_report_names_is_not_rotated() {
    let mut site = Site::new();
    site.nginx(BOTH, "127.0.0.1");
    let first = site.examine();
    let again = site.examine();
    let found = compared(&again.0.facts, &days_before(&first.0, 8));
    assert!(found.causes(Severity::Risk).contains(&Cause::KeyNotRotated), "{}", found.0.text());
    assert_eq!(found.0.resumes, Some(true), "sessions resume all the same");
    // A key of yesterday is none to worry about.
    compared(&again.0.facts, &days_before(&first.0, 1)).assert_in_the_way(&[]);
    // A restart makes a new key.
    site.stop();
    site.nginx(BOTH, "127.0.0.1");
    let restarted = site.examine();
    let found = compared(&restarted.0.facts, &days_before(&first.0, 8));
    found.assert_in_the_way(&[]);
    let told = "Ticket keys: none is the same as 192 hours ago.";
    assert!(found.0.text().contains(told), "{}", found.0.text());
    let json = serde_json::to_value(&found.0).expect("JSON");
    assert_eq!(json["other_key_since_s"], first.0.facts.at_s - 8 * 86_400);
}
