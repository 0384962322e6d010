//! One server at one address.

use std::time::Duration;

use rejoin_doctor::{Cause, Settings, Severity, Way};

use crate::site::{Site, examined};

const BOTH: &str = "ssl_protocols TLSv1.2 TLSv1.3;";

fn nginx(settings: &str) -> Site {
    let mut site = Site::new();
    site.nginx(&format!("{BOTH} {settings}"), "127.0.0.1");
    site
}

#[test]
fn nginx_with_its_defaults_is_well() {
    let site = nginx("");
    let found = site.examine();
    found.assert_in_the_way(&[]);
    found.assert_noted(Cause::NoIds);
    found.assert_noted(Cause::Certificate);
    for way in [Way::Tickets, Way::Tls13] {
        let facts = found.way(way);
        assert!(facts.at_once.is_whole() && facts.at_once.tried == 8, "{facts:?}");
        assert_eq!(facts.lifetime_s, Some(300));
        assert_eq!(facts.key_names.as_ref().map(Vec::len), Some(1));
    }
    // `ssl_session_cache none` is nginx's default: ids for appearance.
    let ids = found.way(Way::Ids);
    assert!(ids.issued == Some(true) && ids.at_once.is_naught(), "{ids:?}");
    let tls13 = found.way(Way::Tls13);
    assert_eq!(tls13.tickets_per_connection, Some(2));
    assert_eq!((tls13.reusable, tls13.agrees_on_key), (Some(true), Some(true)));
    assert_eq!(tls13.early_data_bytes, Some(0));
    let trips = found.way(Way::Tickets);
    let trips =
        (trips.full.map(|cost| cost.round_trips), trips.resumed.map(|cost| cost.round_trips));
    assert_eq!(trips, (Some(2), Some(1)));
    // Nobody knows from outside, in seconds, whether a key is ever rotated.
    assert!(found.0.text().contains("whether they rotate is unknown"), "{}", found.0.text());
}

#[test]
fn nginx_without_tickets_and_cache_keeps_nothing() {
    let found = nginx("ssl_session_tickets off;").examine();
    found.assert_in_the_way(&[Cause::IdsNeverFound, Cause::TicketsNeverOpen]);
    let loss = found.0.findings[0].losses[0];
    assert_eq!((loss.resuming_share, loss.bytes), (Some(0.0), None), "nothing resumed here");
}

#[test]
fn nginx_that_issues_nothing_is_told_so() {
    let site = nginx("ssl_session_tickets off; ssl_session_cache off;");
    let found = site.examine();
    assert!(found.causes(Severity::Loss).contains(&Cause::NothingIssued), "{}", found.0.text());
    assert_eq!(found.way(Way::Ids).issued, Some(false));
}

#[test]
fn nginx_with_a_cache_and_no_tickets_is_well() {
    let found = nginx("ssl_session_tickets off; ssl_session_cache shared:tls:1m;").examine();
    found.assert_in_the_way(&[]);
    found.assert_noted(Cause::NoTicketsTls12);
    found.assert_noted(Cause::KeptByServer);
    assert!(
        found.way(Way::Ids).after_others.is_some_and(|later| later.resumed && later.after == 24)
    );
}

#[test]
fn early_data_is_announced() {
    let found = nginx("ssl_early_data on;").examine();
    found.assert_in_the_way(&[]);
    assert_eq!(found.way(Way::Tls13).early_data_bytes, Some(16_384));
}

#[test]
fn a_cache_that_is_too_small_is_told_apart_from_none() {
    let site = nginx("ssl_session_tickets off; ssl_session_cache builtin:10;");
    let found = site.examine();
    found.assert_in_the_way(&[Cause::CacheTooSmall]);
    assert!(found.way(Way::Ids).at_once.is_whole());
    assert_eq!(found.0.findings[0].losses[0].resuming_share, None, "only the server knows");
    // A small cache that is shared holds hundreds.
    let mut site = Site::new();
    let shared = "ssl_session_tickets off; ssl_session_cache shared:tls:32k;";
    site.nginx(&format!("ssl_protocols TLSv1.2; {shared}"), "127.0.0.1");
    site.examine().assert_in_the_way(&[]);
    let more = Settings { others: 400, connections: 2_000, ..site.settings(&["127.0.0.1"]) };
    let found = examined(&more).expect("handshakes");
    found.assert_in_the_way(&[Cause::CacheTooSmall]);
}

#[test]
fn sessions_that_are_forgotten_early_are_noticed_by_waiting() {
    let mut site = Site::new();
    let cache = "ssl_session_tickets off; ssl_session_cache shared:tls:1m; ssl_session_timeout 6s;";
    site.nginx(&format!("ssl_protocols TLSv1.2; {cache}"), "127.0.0.1");
    let settings = site.settings(&["127.0.0.1"]);
    let settings = Settings { attempts: 2, others: 0, wait: Duration::from_secs(9), ..settings };
    let found = examined(&settings).expect("handshakes");
    found.assert_in_the_way(&[Cause::ForgottenEarly]);
}

#[test]
fn one_version_alone_is_no_alarm() {
    let mut site = Site::new();
    site.nginx("ssl_protocols TLSv1.2;", "127.0.0.1");
    let found = site.examine();
    found.assert_in_the_way(&[]);
    found.assert_noted(Cause::OnlyTls12);
    assert_eq!(found.way(Way::Tls13).spoken, Some(false));
    let mut site = Site::new();
    site.nginx("ssl_protocols TLSv1.3;", "127.0.0.1");
    let found = site.examine();
    found.assert_in_the_way(&[]);
    found.assert_noted(Cause::OnlyTls13);
    assert_eq!(found.way(Way::Ids).spoken, Some(false));
}

#[test]
fn the_default_server_decides_for_all_names() {
    let mut site = Site::new();
    let server = |name: &str, settings: &str| {
        format!(
            "server {{ listen 127.0.0.1:PORT ssl; server_name {name}; {settings} return 200 x; }}"
        )
    };
    let keeping = server("other.test", "");
    let without = server("localhost", "ssl_session_tickets off;");
    site.nginx_with(&format!("{BOTH} {keeping} {without}"), "127.0.0.1");
    let found = site.examine();
    assert!(found.causes(Severity::Loss).contains(&Cause::NameApart), "{}", found.0.text());
    // The other way about, the server without tickets resumes as the default server does.
    let mut site = Site::new();
    let (first, second) = (server("localhost", ""), server("other.test", "ssl_session_cache off;"));
    site.nginx_with(&format!("{BOTH} {first} {second}"), "127.0.0.1");
    let names = vec!["other.test".parse().expect("a name")];
    let found = examined(&Settings { names, ..site.settings(&["127.0.0.1"]) }).expect("handshakes");
    found.assert_in_the_way(&[]);
    found.assert_noted(Cause::NamesShare);
}

#[test]
fn a_name_that_gets_no_session_or_no_handshake_is_told() {
    let mut site = Site::new();
    let server = |name: &str, settings: &str| {
        format!(
            "server {{ listen 127.0.0.1:PORT ssl; server_name {name}; {settings} return 200 x; }}"
        )
    };
    let first = server("localhost", "");
    let bare = server("bare.test", "ssl_session_tickets off; ssl_session_cache off;");
    let refused = server("refused.test", "ssl_reject_handshake on;");
    site.nginx_with(&format!("{BOTH} {first} {bare} {refused}"), "127.0.0.1");
    let named = |names: &[&str], connections| {
        let names = names.iter().map(|name| name.parse().expect("a name")).collect();
        let settings = site.settings(&["127.0.0.1"]);
        examined(&Settings { names, connections, ..settings }).expect("handshakes")
    };
    let found = named(&["bare.test", "localhost"], 160);
    found.assert_in_the_way(&[Cause::NameApart]);
    assert!(found.0.text().contains("bare.test"), "{}", found.0.text());
    // What the first name was not given says nothing of the next.
    let of_next = found.0.facts.names.iter().filter(|of| of.name == "localhost".parse().ok());
    assert!(of_next.clone().count() == 2 && of_next.clone().all(|of| of.own == Some(true)));
    let found = named(&["refused.test"], 160);
    found.assert_in_the_way(&[Cause::NoHandshake]);
    let told = "refused.test: it ends the handshake with alert 112 (unrecognized_name)";
    assert!(found.0.findings[0].seen[0].contains(told), "{}", found.0.text());
    // An end of the run leaves a name open.
    let all = named(&[], 160).0.facts.connections;
    let found = named(&["localhost"], all);
    assert_eq!(found.0.resumes, None, "{}", found.0.text());
}
