//! Early data, and copies of first flights.

use std::net::SocketAddr;
use std::time::Duration;

use rejoin_doctor::{Cause, Replay, Settings, Severity};
use rejoin_testkit::site;

use crate::apart::balance;
use crate::site::{Examined, Site, examined};

const EARLY: &str = "ssl_protocols TLSv1.3; ssl_early_data on;";

/// Few connections, and copies.
fn of(settings: Settings) -> Settings {
    Settings { attempts: 1, others: 0, replay: true, ..settings }
}

fn replay(site: &Site) -> (Replay, Examined) {
    told(&of(site.settings(&["127.0.0.1"])))
}

fn told(settings: &Settings) -> (Replay, Examined) {
    let found = examined(settings).expect("handshakes");
    found.assert_well_but_for_copies();
    (found.0.facts.addresses[0].replay.expect("it was asked for"), found)
}

fn nginx(http: &str) -> Site {
    let mut site = Site::new();
    site.nginx(http, "127.0.0.1");
    site
}

/// One that accepts early data: its copies are answered or not.
fn answered(copies: u32, copies_answered: u32) -> Replay {
    let (untaken, too_early) = (0, 0);
    Replay { sent: 1, untaken, accepted: 1, answered: 1, too_early, copies, copies_answered }
}

#[test]
fn nginx_answers_copies() {
    let (found, told) = replay(&nginx(EARLY));
    assert_eq!(found, answered(4, 4), "{}", told.0.text());
    assert_eq!(told.causes(Severity::Risk), [Cause::ReplayAnswered].into());
}

#[test]
fn nginx_with_rejoin_answers_none() {
    let mut served = site::Site::new("doctor-replay");
    served.configure("early_data = once");
    let text = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log; events { }
http {
  include FOLDER/nginx-http.conf;
  server { listen 127.0.0.1:@PORT@ ssl; ssl_protocols TLSv1.3; ssl_early_data on; return 200 x; }
}
";
    served.write("nginx.conf", text);
    let configuration = served.shown("nginx.conf");
    served.start("nginx", &["-c", &configuration]).expect("installed");
    let target = format!("localhost:{}", served.port).parse().expect("a server");
    let settings = Settings { wait: Duration::ZERO, ..Settings::new(target) };
    let (found, told) = told(&of(Settings { addresses: vec![served.address().ip()], ..settings }));
    assert_eq!(found, answered(4, 0), "{}", told.0.text());
    assert!(told.0.text().contains("of 4 copies 0 were answered"), "{}", told.0.text());
}

#[test]
fn a_copy_may_be_answered_by_another_machine() {
    let key =
        ["a key that machines share, ", "of as many bytes as nginx wants: it has 80."].concat();
    let mut site = Site::new();
    site.folder.write("ticket.key", format!("{key:80.80}"));
    for address in ["127.0.0.1", "127.0.0.2"] {
        site.nginx(&format!("{EARLY} ssl_session_ticket_key FOLDER/ticket.key;"), address);
    }
    let (found, told) = told(&of(site.settings(&["127.0.0.1", "127.0.0.2"])));
    assert_eq!(found, answered(5, 5), "{}", told.0.text());
}

/// Examines so many machines, each with keys of its own, behind a balancer that takes turns.
fn in_turns(count: u32) -> Examined {
    let mut site = Site::new();
    let machines: Vec<String> = (2..2 + count).map(|last| format!("127.0.0.{last}")).collect();
    for machine in &machines {
        site.nginx(EARLY, machine);
    }
    let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), site.port);
    balance(at("127.0.0.1"), machines.iter().map(|machine| at(machine)).collect());
    examined(&of(site.settings(&["127.0.0.1"]))).expect("handshakes")
}

/// Each machine takes its own sessions alone, and the balancer brings a flight to it after as many as there are machines.
#[test]
fn machines_that_take_turns_answer_copies() {
    for count in [2, 6] {
        let found = in_turns(count);
        let replay = found.0.facts.addresses[0].replay.expect("it was asked for");
        assert_eq!((replay.sent, replay.answered), (1, 1), "{}", found.0.text());
        assert_eq!(replay.untaken, count - 1, "{}", found.0.text());
        assert!(replay.copies_answered > 0, "{}", found.0.text());
        assert!(found.causes(Severity::Risk).contains(&Cause::ReplayAnswered));
    }
}

/// A server that takes no session shows nothing of early data.
#[test]
fn what_was_never_taken_is_not_rejected() {
    let found = in_turns(12);
    let replay = found.0.facts.addresses[0].replay.expect("it was asked for");
    assert_eq!(replay, Replay { untaken: 8, ..Replay::default() }, "{}", found.0.text());
    let told = found.0.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("whether copies are answered is unknown"), "{}", found.0.text());
}

#[test]
fn without_early_data_nothing_is_sent() {
    for protocols in ["ssl_protocols TLSv1.2;", "ssl_protocols TLSv1.3;"] {
        let (found, told) = replay(&nginx(protocols));
        assert_eq!(found, Replay::default(), "{}", told.0.text());
    }
    let unasked = examined(&nginx(EARLY).settings(&["127.0.0.1"])).expect("handshakes");
    assert_eq!(unasked.0.facts.addresses[0].replay, None);
}

#[test]
fn an_application_may_refuse_early_requests() {
    let mut site = Site::new();
    let refuse = "if ($ssl_early_data) { return 425 early; } return 200 x;";
    site.nginx_with(
        &format!("{EARLY} server {{ listen 127.0.0.1:PORT ssl; location / {{ {refuse} }} }}"),
        "127.0.0.1",
    );
    let (found, told) = replay(&site);
    let refused = Replay { sent: 1, accepted: 1, too_early: 1, ..Replay::default() };
    assert_eq!(found, refused, "{}", told.0.text());
}

/// HAProxy answers early data when the handshake is done.
#[test]
fn a_server_may_wait_for_the_handshake() {
    let mut site = Site::new();
    let text = "global\n ssl-default-bind-options ssl-min-ver TLSv1.3\ndefaults\n mode http\n timeout client \
                9s\n timeout server 9s\n timeout connect 9s\nfrontend f\n bind 127.0.0.1:PORT ssl crt \
                FOLDER/both.pem allow-0rtt proto h1\n http-request return status 200\n";
    site.folder.write("haproxy.cfg", site.filled(text));
    site.start("haproxy", &["-f", "FOLDER/haproxy.cfg"], "127.0.0.1");
    let deadline = Duration::from_secs(2);
    let settings = Settings { deadline, ..of(site.settings(&["127.0.0.1"])) };
    let (found, told) = told(&settings);
    let waits = Replay { sent: 1, accepted: 1, ..Replay::default() };
    assert_eq!(found, waits, "{}", told.0.text());
    assert!(told.0.text().contains("is unknown"), "{}", told.0.text());
}
