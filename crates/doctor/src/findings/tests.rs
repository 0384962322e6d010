use std::net::SocketAddr;

use super::losses::resuming_share;
use super::*;
use crate::facts::{Crossing, Later, NameFacts, NotTried, Replay, Tally};
use crate::settings::Target;
use crate::{Cost, Failure};

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 443))
}

fn tally(resumed: u32, tried: u32) -> Tally {
    Tally { tried, resumed, broken: 0 }
}

fn way(way: Way, resumed: u32) -> WayFacts {
    let full = Some(Cost { bytes: 3_000, round_trips: 2, ms: 9.0 });
    let again = Some(Cost { bytes: 700, round_trips: 1, ms: 3.0 });
    WayFacts {
        spoken: Some(true),
        issued: Some(true),
        ticket_bytes: (way != Way::Ids).then_some(240),
        at_once: tally(resumed, 8),
        full,
        resumed: again.filter(|_| resumed > 0),
        ..WayFacts::new(way)
    }
}

fn without(way: Way) -> WayFacts {
    WayFacts { spoken: Some(true), issued: Some(false), ..WayFacts::new(way) }
}

fn unspoken(way: Way) -> WayFacts {
    WayFacts { spoken: Some(false), ..WayFacts::new(way) }
}

fn at(last: u8, ways: [WayFacts; 3]) -> AddressFacts {
    AddressFacts {
        address: address(last),
        failure: None,
        certificate: None,
        asks_client_certificate: Some(false),
        ways: ways.into(),
        replay: None,
    }
}

fn facts(addresses: Vec<AddressFacts>) -> Facts {
    Facts {
        target: "example.com".parse::<Target>().unwrap(),
        at_s: 1_800_000_000,
        addresses,
        addresses_left_out: 0,
        crossings: Vec::new(),
        crossings_not_tried: Vec::new(),
        names: Vec::new(),
        connections: 40,
        bound_reached: false,
        interrupted: false,
        same_key_since_s: None,
        other_key_since_s: None,
    }
}

fn good() -> [WayFacts; 3] {
    Way::ALL.map(|of| way(of, 8))
}

fn causes(facts: &Facts) -> Vec<(Severity, Cause)> {
    findings(facts).into_iter().map(|finding| (finding.severity, finding.cause)).collect()
}

#[test]
fn a_good_server_has_no_finding() {
    assert_eq!(causes(&facts(vec![at(1, good())])), []);
}

#[test]
fn what_is_not_known_is_not_concluded() {
    let unknown = Way::ALL.map(WayFacts::new);
    assert_eq!(causes(&facts(vec![at(1, unknown)])), []);
    let untried = Way::ALL.map(|of| WayFacts { at_once: Tally::default(), ..way(of, 0) });
    assert_eq!(causes(&facts(vec![at(1, untried)])), []);
}

#[test]
fn each_way_of_keeping_nothing_has_its_cause() {
    let loss = |cause| (Severity::Loss, cause);
    let [ids, tickets, tls13] = Way::ALL;
    let cases = [
        ([without(ids), without(tickets), way(tls13, 8)], loss(Cause::NothingIssued)),
        ([way(ids, 0), without(tickets), way(tls13, 8)], loss(Cause::IdsNeverFound)),
        ([way(ids, 0), way(tickets, 0), way(tls13, 8)], loss(Cause::TicketsNeverOpen)),
        ([way(ids, 8), way(tickets, 0), way(tls13, 8)], loss(Cause::TicketsNeverOpen)),
        ([way(ids, 8), way(tickets, 8), without(tls13)], loss(Cause::NoTickets)),
        ([way(ids, 8), way(tickets, 8), way(tls13, 0)], loss(Cause::TicketsNeverOpen)),
        ([way(ids, 8), way(tickets, 8), unspoken(tls13)], (Severity::Note, Cause::OnlyTls12)),
        ([unspoken(ids), unspoken(tickets), way(tls13, 8)], (Severity::Note, Cause::OnlyTls13)),
        ([way(ids, 0), way(tickets, 8), way(tls13, 8)], (Severity::Note, Cause::NoIds)),
        ([way(ids, 8), without(tickets), way(tls13, 8)], (Severity::Note, Cause::NoTicketsTls12)),
    ];
    for (ways, wanted) in cases {
        assert_eq!(causes(&facts(vec![at(1, ways)])), [wanted]);
    }
}

#[test]
fn who_has_a_ticket_has_no_session_id() {
    let [ids, tickets, tls13] = Way::ALL;
    let of = |ways| loss(&facts(vec![at(1, ways)]), "1.2").resuming_share;
    assert_eq!(of([way(ids, 8), way(tickets, 0), way(tls13, 8)]), Some(0.0));
    assert_eq!(of([way(ids, 8), without(tickets), way(tls13, 0)]), Some(1.0));
}

#[test]
fn a_copy_that_is_answered_is_a_risk() {
    let of = |replay| facts(vec![AddressFacts { replay: Some(replay), ..at(1, good()) }]);
    let answered = Replay { sent: 1, accepted: 1, answered: 1, copies: 4, ..Replay::default() };
    for quiet in [Replay::default(), Replay { sent: 3, ..Replay::default() }, answered] {
        assert_eq!(causes(&of(quiet)), [], "{quiet:?}");
    }
    let copied = of(Replay { copies_answered: 3, ..answered });
    assert_eq!(causes(&copied), [(Severity::Risk, Cause::ReplayAnswered)]);
    let found = findings(&copied);
    assert!(found[0].seen[0].contains("3 of 4 copies"), "{found:?}");
    assert_eq!(crate::Report::new(copied).resumes, Some(true));
}

#[test]
fn a_part_of_returns_means_several_holders() {
    let ways = Way::ALL.map(|of| way(of, if of == Way::Ids { 8 } else { 3 }));
    let found = findings(&facts(vec![at(1, ways.clone())]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].cause, &found[0].versions[..]),
        (Cause::WorkersApart, &["1.2", "1.3"][..])
    );
    assert!(
        found[0].seen[0].contains("3 of 8") && found[0].seen[0].contains("about 3"),
        "{found:?}"
    );
    // A single miss is no proof of two that know nothing of each other.
    let rare =
        ways.clone().map(|facts| way(facts.way, if facts.way == Way::Tls13 { 7 } else { 8 }));
    let rare = facts(vec![at(1, rare)]);
    assert_eq!(causes(&rare), [(Severity::Risk, Cause::SometimesLost)]);
    assert_eq!(crate::Report::new(rare).resumes, None);
    // No ticket resumed, but they name several keys.
    let names = Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    let named = ways.map(|facts| match facts.way {
        Way::Ids => facts,
        of => WayFacts { key_names: names.clone(), ..way(of, 0) },
    });
    let found = findings(&facts(vec![at(1, named)]));
    assert_eq!(found[0].cause, Cause::WorkersApart, "{found:?}");
    assert!(found[0].seen[0].contains("at least 3"), "{found:?}");
}

#[test]
fn the_loss_is_the_share_of_returns_and_the_difference_in_cost() {
    let mut two = facts(vec![at(1, good()), at(2, good())]);
    for (from, to) in [(1, 2), (2, 1)] {
        for way in Way::ALL {
            let (from, to) = (address(from), address(to));
            two.crossings.push(Crossing { from, to, way, tally: tally(0, 3) });
        }
    }
    let found = findings(&two);
    assert_eq!(causes(&two), [(Severity::Loss, Cause::MachinesApart)]);
    let of = |version| Loss {
        version,
        resuming_share: Some(0.5),
        bytes: Some(2_300),
        round_trips: Some(1),
    };
    assert_eq!(found[0].losses, [of("1.2"), of("1.3")]);
    // Machines that share their tickets, and not their session ids, lose nothing that counts.
    two.crossings.iter_mut().filter(|crossing| crossing.way != Way::Ids).for_each(|crossing| {
        crossing.tally = tally(1, 2);
    });
    assert_eq!(causes(&two), [(Severity::Note, Cause::MachinesApart)]);
}

#[test]
fn machines_that_resume_by_different_ways_resume_nothing_of_each_other() {
    let [ids, tickets, tls13] = Way::ALL;
    let by_ticket = || at(1, [way(ids, 0), way(tickets, 8), unspoken(tls13)]);
    let by_id = || at(2, [way(ids, 8), without(tickets), unspoken(tls13)]);
    let lost = |found: &Facts| {
        let found = findings(found).into_iter().filter(Finding::is_in_the_way);
        found.collect::<Vec<_>>()
    };
    let found = lost(&facts(vec![by_ticket(), by_id()]));
    assert_eq!((found.len(), found[0].cause), (1, Cause::MachinesApart), "{found:?}");
    let seen = &found[0].seen[0];
    assert!(
        seen.contains(":443 resumes by ticket only, 192.0.2.2:443 by session id only"),
        "{seen}"
    );
    assert_eq!(found[0].losses[0].resuming_share, Some(0.5));
    // Two of three that resume each other's tickets: five of nine returns.
    let mut three =
        facts(vec![by_ticket(), by_id(), AddressFacts { address: address(3), ..by_ticket() }]);
    for (from, to) in [(1, 3), (3, 1)].map(|(from, to)| (address(from), address(to))) {
        three.crossings.push(Crossing { from, to, way: tickets, tally: tally(1, 1) });
    }
    let share = lost(&three)[0].losses[0].resuming_share.expect("a share");
    assert!((share - 5.0 / 9.0).abs() < 1e-9, "{share}");
    // One of three that resumes nothing at all: four of nine.
    three.addresses[1].ways[0] = way(ids, 0);
    let share = loss(&three, "1.2").resuming_share.expect("a share");
    assert!((share - 4.0 / 9.0).abs() < 1e-9, "{share}");
    // One that resumes by both: its clients come with tickets, and the other's with session ids.
    let both = || at(1, [way(ids, 8), way(tickets, 8), unspoken(tls13)]);
    let mut partly = facts(vec![both(), by_id()]);
    for (from, to) in [(1, 2), (2, 1)].map(|(from, to)| (address(from), address(to))) {
        partly.crossings.push(Crossing { from, to, way: ids, tally: tally(1, 1) });
    }
    let found = lost(&partly);
    assert_eq!((found.len(), found[0].cause), (1, Cause::MachinesApart), "{found:?}");
    assert!(found[0].seen[0].contains("(1 of 2 directions"), "{found:?}");
    assert_eq!(found[0].losses[0].resuming_share, Some(0.75));
    // What the bound left open at one of them may be the way of the other.
    let open = WayFacts { at_once: Tally::default(), ..way(ids, 0) };
    let open = AddressFacts { ways: vec![open, way(tickets, 8), unspoken(tls13)], ..by_ticket() };
    assert_eq!(lost(&facts(vec![open, by_id()])), []);
}

#[test]
fn machines_that_speak_different_versions_lose_the_clients_of_both() {
    let [ids, tickets, tls13] = Way::ALL;
    let old = at(2, [way(ids, 8), way(tickets, 8), unspoken(tls13)]);
    let found = findings(&facts(vec![at(1, good()), old.clone()]));
    assert_eq!((found.len(), found[0].severity), (1, Severity::Loss), "{found:?}");
    assert_eq!(found[0].cause, Cause::VersionsApart);
    let seen = &found[0].seen[0];
    assert!(seen.contains("192.0.2.1:443") && seen.contains("192.0.2.2:443"), "{seen}");
    assert_eq!(found[0].losses[0].resuming_share, None, "it depends on the clients' versions");
    // A version that is not known is none that is not spoken.
    let failed = WayFacts { failure: Some(Failure::Spent), ..WayFacts::new(tls13) };
    let open = at(2, [way(ids, 8), way(tickets, 8), failed]);
    assert_eq!(causes(&facts(vec![at(1, good()), open])), []);
    assert_eq!(causes(&facts(vec![old])), [(Severity::Note, Cause::OnlyTls12)]);
}

#[test]
fn directions_that_were_not_tried_are_neither_good_nor_bad() {
    let directions = [(1, 2), (2, 1)].map(|(from, to)| (address(from), address(to)));
    let of = |tickets: [Option<u32>; 2], ids: [Option<u32>; 2]| {
        let mut two = facts(vec![at(1, good()), at(2, good())]);
        for (way, resumed) in [(Way::Tickets, tickets), (Way::Ids, ids)] {
            for ((from, to), resumed) in directions.into_iter().zip(resumed) {
                match resumed {
                    Some(resumed) => {
                        let tally = tally(resumed, 1);
                        two.crossings.push(Crossing { from, to, way, tally });
                    }
                    None => two.crossings_not_tried.push(NotTried { from, to, way }),
                }
            }
        }
        crate::Report::new(two)
    };
    let (good, half, open) = ([Some(1); 2], [Some(1), None], [None; 2]);
    assert_eq!(of(good, good).resumes, Some(true));
    for (tickets, ids) in [(half, good), (open, good), (half, half), (open, open)] {
        let report = of(tickets, ids);
        assert_eq!((report.resumes, &report.findings[..]), (None, &[][..]));
    }
    assert_eq!(of(good, open).resumes, Some(true), "few clients take ids only");
    // One direction of one that was tried, and the other counts as the mean.
    let missed = of([Some(0), None], good);
    assert_eq!(missed.resumes, Some(false));
    assert!(missed.findings[0].seen[0].contains("in 1 of 1 directions"), "{:?}", missed.findings);
    assert_eq!(resuming_share(&missed.facts, &[Way::Tickets]), Some(0.5));
    let mut all = of(good, [Some(0), None]);
    all.facts.crossings.retain(|crossing| crossing.way == Way::Ids);
    assert_eq!(loss(&all.facts, "1.2").resuming_share, Some(0.5));
    let direction = NotTried { from: address(1), to: address(2), way: Way::Tickets };
    all.facts.crossings_not_tried.push(direction);
    assert_eq!(loss(&all.facts, "1.2").resuming_share, None);
    let text = half_tried(&of(half, good));
    assert_eq!(text, "TLS 1.2 ticket elsewhere: resumed A→B; not none; not tried: B→A.");
}

fn half_tried(report: &crate::Report) -> String {
    let text = report.text();
    let line = text.lines().find(|line| line.contains("not tried"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_way_that_the_bound_left_open_is_not_known_to_resume() {
    let resumes = |open: WayFacts| {
        let [ids, tickets, _] = good();
        crate::Report::new(facts(vec![at(1, [ids, tickets, open])])).resumes
    };
    let new = WayFacts::new(Way::Tls13);
    assert_eq!(resumes(WayFacts { failure: Some(Failure::Spent), ..new.clone() }), None);
    assert_eq!(resumes(WayFacts { failure: Some(Failure::TooLate), ..new }), None);
    let issued = WayFacts { at_once: Tally::default(), ..way(Way::Tls13, 0) };
    assert_eq!(resumes(issued), None);
}

#[test]
fn a_version_that_fails_is_told_where_another_one_succeeds() {
    let with = |failure: Failure| WayFacts { failure: Some(failure), ..WayFacts::new(Way::Tls13) };
    let [ids, tickets, _] = good();
    let late = facts(vec![at(1, [ids.clone(), tickets.clone(), with(Failure::TooLate)])]);
    let found = findings(&late);
    assert_eq!(causes(&late), [(Severity::Risk, Cause::VersionFails)]);
    assert_eq!(found[0].versions, ["1.3"]);
    assert!(found[0].seen[0].contains("TLS 1.3 fails: no answer in time"), "{found:?}");
    for end in [Failure::Spent, Failure::Interrupted] {
        assert_eq!(causes(&facts(vec![at(1, [ids.clone(), tickets.clone(), with(end)])])), []);
    }
    // An address without a route leaves nothing open at the others.
    let failed =
        Way::ALL.map(|way| WayFacts { failure: Some(Failure::NoRoute), ..WayFacts::new(way) });
    let away = AddressFacts { failure: Some(Failure::NoRoute), ..at(2, failed) };
    let beside = facts(vec![at(1, good()), away]);
    assert_eq!(causes(&beside), [(Severity::Note, Cause::NoHandshake)]);
    assert_eq!(crate::Report::new(beside).resumes, Some(true));
}

#[test]
fn a_miss_elsewhere_proves_nothing_where_workers_differ() {
    let ways = || Way::ALL.map(|of| way(of, 4));
    let mut two = facts(vec![at(1, ways()), at(2, ways())]);
    let (from, to) = (address(1), address(2));
    two.crossings.push(Crossing { from, to, way: Way::Tls13, tally: tally(0, 3) });
    assert_eq!(causes(&two), [(Severity::Loss, Cause::WorkersApart)]);
}

#[test]
fn sessions_that_vanish_name_what_they_vanish_by() {
    let gone = |after| Some(Later { after, resumed: false });
    let small = good().map(|facts| WayFacts { after_others: gone(24), ..facts });
    assert_eq!(causes(&facts(vec![at(1, small)])), [(Severity::Loss, Cause::CacheTooSmall)]);
    let early = good().map(|facts| WayFacts { after_wait: gone(60), ..facts });
    assert_eq!(causes(&facts(vec![at(1, early)])), [(Severity::Loss, Cause::ForgottenEarly)]);
    // Clients that take tickets do not miss session ids.
    let ids = good().map(|facts| match facts.way {
        Way::Ids => WayFacts { after_others: gone(24), ..facts },
        _ => facts,
    });
    assert_eq!(causes(&facts(vec![at(1, ids)])), [(Severity::Note, Cause::CacheTooSmall)]);
}

#[test]
fn a_session_that_breaks_the_connection_comes_first() {
    let broken = good().map(|facts| WayFacts {
        at_once: Tally { tried: 8, resumed: 0, broken: 8 },
        failure: Some(Failure::Alert(80)),
        ..facts
    });
    let found = findings(&facts(vec![at(1, broken.clone())]));
    assert_eq!((found.len(), found[0].cause), (1, Cause::OfferBreaks), "{found:?}");
    assert!(found[0].seen[0].contains("internal_error"), "{found:?}");
    // A server that breaks other connections, too, does not break them because of sessions.
    let shaky = broken.map(|facts| WayFacts { full_failures: 2, ..facts });
    assert_eq!(causes(&facts(vec![at(1, shaky)])), [(Severity::Risk, Cause::HandshakesFail)]);
}

#[test]
fn few_connections_that_break_are_chance() {
    let with = |resumed, broken| {
        let tally = Tally { tried: 8, resumed, broken };
        let failure = Some(Failure::Closed);
        let ways = good().map(|facts| match facts.way {
            Way::Tls13 => WayFacts { at_once: tally, failure: failure.clone(), ..facts },
            _ => facts,
        });
        facts(vec![at(1, ways)])
    };
    let risk = (Severity::Risk, Cause::HandshakesFail);
    assert_eq!(causes(&with(7, 1)), [risk]);
    assert_eq!(crate::Report::new(with(7, 1)).resumes, None);
    assert_eq!(causes(&with(4, 4)), [risk]);
    assert_eq!(causes(&with(3, 5)), [(Severity::Broken, Cause::OfferBreaks)]);
    // Returns that did not resume are counted without those that failed.
    assert_eq!(causes(&with(3, 1)), [(Severity::Loss, Cause::WorkersApart), risk]);
    assert_eq!(causes(&with(0, 1)), [(Severity::Loss, Cause::TicketsNeverOpen), risk]);
    // Full handshakes of another way fail at this address, too.
    let mut shaky = with(3, 5);
    shaky.addresses[0].ways[0].full_failures = 1;
    assert_eq!(causes(&shaky), [risk]);
    let mut later = with(8, 0);
    later.addresses[0].ways[2].later_failures = 1;
    assert_eq!(causes(&later), [risk]);
    assert_eq!(crate::Report::new(later).resumes, Some(true));
}

#[test]
fn connections_that_break_between_machines_are_no_miss() {
    let with = |tally| {
        let mut two = facts(vec![at(1, good()), at(2, good())]);
        let (from, to) = (address(1), address(2));
        two.crossings.push(Crossing { from, to, way: Way::Tls13, tally });
        two
    };
    let all = with(Tally { tried: 3, resumed: 0, broken: 3 });
    assert_eq!(causes(&all), [(Severity::Broken, Cause::OfferBreaks)]);
    let once = with(Tally { tried: 1, resumed: 0, broken: 1 });
    assert_eq!(causes(&once), [(Severity::Risk, Cause::HandshakesFail)]);
    assert_eq!(crate::Report::new(once).resumes, None);
    let one = with(Tally { tried: 2, resumed: 1, broken: 1 });
    assert_eq!(causes(&one), [(Severity::Risk, Cause::HandshakesFail)]);
    assert_eq!(crate::Report::new(one).resumes, Some(true));
}

#[test]
fn a_key_is_old_after_a_week() {
    let mut same = facts(vec![at(1, good())]);
    same.same_key_since_s = Some(same.at_s - KEY_LIFE_S + 1);
    assert_eq!(causes(&same), []);
    same.same_key_since_s = Some(same.at_s - KEY_LIFE_S);
    assert_eq!(causes(&same), [(Severity::Risk, Cause::KeyNotRotated)]);
}

fn under(name: Option<&str>, way: Way, own: Option<bool>) -> NameFacts {
    let (issued, of_first) = (own.map(|_| true), Some(false));
    let name = name.map(|name| name.parse().unwrap());
    NameFacts { name, way, issued, own, of_first, failure: None }
}

#[test]
fn a_name_that_gets_nothing_is_told_from_one_that_is_refused() {
    let with = |names: Vec<NameFacts>| {
        let facts = Facts { names, ..facts(vec![at(1, good())]) };
        let report = crate::Report::new(facts);
        (causes(&report.facts), report.resumes)
    };
    let shop = |way, own| under(Some("shop.example"), way, own);
    let bare = |way| NameFacts { issued: Some(false), ..shop(way, None) };
    let failed = |way, failure| NameFacts { failure: Some(failure), ..shop(way, None) };
    let [ids, tickets, tls13] = Way::ALL;
    let apart = vec![(Severity::Loss, Cause::NameApart)];
    assert_eq!(with(vec![bare(tls13)]), (apart.clone(), Some(false)));
    assert_eq!(with(vec![bare(tickets), bare(ids)]), (apart, Some(false)));
    // Clients without tickets resume by session id.
    assert_eq!(with(vec![bare(tickets), shop(ids, Some(true))]), (vec![], Some(true)));
    let refusals = [tickets, tls13].map(|way| failed(way, Failure::Alert(112)));
    let dead = vec![(Severity::Broken, Cause::NoHandshake)];
    assert_eq!(with(refusals.to_vec()), (dead, Some(false)));
    let one = vec![shop(tickets, Some(true)), failed(tls13, Failure::TooLate)];
    assert_eq!(with(one), (vec![(Severity::Risk, Cause::VersionFails)], None));
    let unspoken = vec![shop(tickets, Some(true)), failed(tls13, Failure::Version)];
    assert_eq!(with(unspoken), (vec![], Some(true)));
    assert_eq!(with(vec![failed(tls13, Failure::Spent)]), (vec![], None));
    // Clients that name no server are refused by many servers.
    let nameless = NameFacts { name: None, ..failed(tls13, Failure::Alert(112)) };
    assert_eq!(with(vec![nameless]), (vec![], Some(true)));
}

#[test]
fn another_name_that_resumes_shows_the_default_server() {
    let mut named = facts(vec![at(1, Way::ALL.map(|of| way(of, 0)))]);
    named.names = vec![under(None, Way::Tls13, Some(true))];
    assert!(causes(&named).contains(&(Severity::Loss, Cause::NameApart)));
    let mut other = facts(vec![at(1, good())]);
    let name = Some("shop.example");
    other.names = vec![under(name, Way::Tls13, Some(false))];
    assert_eq!(causes(&other), [(Severity::Loss, Cause::NameApart)]);
}

#[test]
fn where_workers_differ_no_chance_is_taken_for_another_cause() {
    let names = vec!["01".to_owned(), "02".to_owned()];
    let unlucky = Way::ALL.map(|of| match of {
        Way::Ids => way(of, 8),
        _ => WayFacts { key_names: Some(names.clone()), agrees_on_key: Some(false), ..way(of, 0) },
    });
    let mut found = facts(vec![at(1, unlucky)]);
    let nameless = |way| under(None, way, Some(true));
    found.names = vec![nameless(Way::Tickets), nameless(Way::Tls13)];
    assert_eq!(causes(&found), [(Severity::Loss, Cause::WorkersApart)]);
}

#[test]
fn every_heavy_cause_but_a_dead_server_has_a_mend() {
    let heavy = [
        Cause::OfferBreaks,
        Cause::NothingIssued,
        Cause::NoTickets,
        Cause::IdsNeverFound,
        Cause::TicketsNeverOpen,
        Cause::WorkersApart,
        Cause::MachinesApart,
        Cause::VersionsApart,
        Cause::NameApart,
        Cause::CacheTooSmall,
        Cause::ForgottenEarly,
        Cause::KeyNotRotated,
    ];
    for cause in heavy {
        let names: Vec<_> = mends(cause).expect("a mend").each().map(|(name, _)| name).collect();
        for server in ["nginx", "HAProxy", "Apache", "Envoy", "Caddy", "with Rejoin"] {
            assert!(names.contains(&server), "{cause:?}: {server}");
        }
    }
}
