//! The return of a client to a server whose demands on client certificates have changed, without Rejoin and with it:
//! `docs/client-certificates.md`, which `REJOIN_BLESS=1` writes anew.
//!
//! With Rejoin it is seen twice: the client returns after the change, and it returns after other clients have come.
//! A client that is resumed then must be resumed each time that it returns, as it is without Rejoin.
//!
//! With Rejoin no client may get in that OpenSSL alone refuses, and every client must get in that OpenSSL alone lets in.
//! Two exceptions are stricter: where OpenSSL alone resumes the session of a client whom it would refuse by now, Rejoin may
//! refuse that client; and where a servername callback demands a certificate of a client that has one, and its session
//! has none, one connection ends.

mod page;
mod papers;
mod situations;
mod visits;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use page::{Page, Row};
use papers::Papers;
use rejoin_testkit::site::{Site, Versions};
use situations::{Group, Situation, groups};
use visits::{Means, Outcome, Seen, client, seen};

use crate::ways::compile;

/// A version, and whether the server issues stateless tickets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    versions: Versions,
    tickets: bool,
}

const WAYS: [Way; 4] = [
    Way { versions: Versions::Tls12, tickets: true },
    Way { versions: Versions::Tls12, tickets: false },
    Way { versions: Versions::Tls13, tickets: true },
    Way { versions: Versions::Tls13, tickets: false },
];

#[test]
fn no_client_gets_in_that_openssl_alone_refuses_and_none_is_shut_out() {
    let site = Site::new("client-certificates");
    let program = |name| compile(&site, "asker.c", name, &["-lssl", "-lcrypto"]);
    let (unknown, known) = (program("asker"), program("nginx"));
    Papers::of_all().write(&site.folder);
    let programs = Programs { site, unknown, known };
    let groups = groups();
    let (rows, wrong) = all_rows(&programs, &groups);
    assert!(wrong.is_empty(), "{} of {} rows: {wrong:#?}", wrong.len(), rows.len());
    Page::new(&groups, rows).write_or_compare();
}

/// The server's program, under a name that Rejoin does not know, and under one whose checks it knows.
pub(crate) struct Programs {
    site: Site,
    unknown: String,
    known: String,
}

/// Measures every situation, two at a time, because programs wait for much of their time.
fn all_rows(programs: &Programs, groups: &[Group]) -> (Vec<Row>, Vec<String>) {
    let all = groups.iter().enumerate().flat_map(|(at, group)| {
        group
            .situations
            .iter()
            .enumerate()
            .map(move |(row, situation)| ([at, row], group, situation))
    });
    let all: Vec<_> = all.collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        while let Some((place, group, situation)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (row, wrong) = measured(programs, *place, group, situation);
            let mut done = done.lock().expect("no panic");
            done.0.push(row);
            done.1.extend(wrong);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    done.into_inner().expect("no panic")
}

fn measured(
    programs: &Programs,
    place: [usize; 2],
    Group { name, trust, .. }: &Group,
    situation: &Situation,
) -> (Row, Vec<String>) {
    let (mut wrong, mut new) = (Vec::new(), String::new());
    let cells = WAYS.map(|way| {
        let mut client = client(&programs.site.folder, situation.client, way);
        let all = [Means::Alone(*trust), Means::Rejoin(*trust), Means::RejoinAfterOthers(*trust)];
        let all = all.map(|means| seen(programs, situation, way, means, &mut client));
        let [Ok(alone), Ok(with), Ok(after)] = &all else {
            wrong.push(format!("{name}: {}: {way:?}: at first: {all:?}", situation.name));
            return [String::new(), String::new()];
        };
        let mut faults = faults(situation, way, alone, with);
        faults.extend(faults_after_others(situation, alone, with, after));
        let faults = faults.into_iter();
        wrong.extend(faults.map(|what| format!("{name}: {}: {way:?}: {what}", situation.name)));
        new = words(&alone.new);
        let cell = format!("{} → {}", words(&alone.returning), words(&with.returning));
        [cell, words(&after.returning)]
    });
    let after = cells.each_ref().map(|[_, after]| after.clone());
    (Row { place, name: situation.name, new, cells: cells.map(|[cell, _]| cell), after }, wrong)
}

/// Returns what Rejoin changes for the worse, and where OpenSSL alone is not as the table expects.
fn faults(situation: &Situation, way: Way, alone: &Seen, with: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    let expected = situation.alone[usize::from(!way.tickets)];
    if words(&alone.returning) != expected {
        faults.push(format!("{expected} was expected without Rejoin, and is {alone:?}"));
    }
    if words(&alone.new) != situation.new {
        faults.push(format!("{} was expected of a new client, and is {alone:?}", situation.new));
    }
    if alone.new.iter().zip(&with.new).any(|(alone, with)| alone != with) {
        faults.push(format!("a new client: {:?} became {:?}", alone.new, with.new));
    }
    if !is_all_no_worse(situation, alone, with) {
        faults.push(format!("{:?} became {:?}", alone.returning, with.returning));
    }
    faults.extend(no_longer_resumed(alone, with));
    faults
}

/// Returns what is worse if a client resumes after a new one has come, and then not each time: what a server learns from
/// one that has resumed may not keep it out.
fn no_longer_resumed(alone: &Seen, with: &Seen) -> Option<String> {
    let resumes = |outcome: &Outcome| matches!(outcome, Outcome::Resumed(_));
    let should = alone.in_a_row.iter().all(resumes) && with.returning.last().is_some_and(resumes);
    (should && !with.in_a_row.iter().all(resumes))
        .then(|| format!("in a row: {:?} became {:?}", alone.in_a_row, with.in_a_row))
}

/// Returns what is worse with Rejoin where other clients have come since the change. A client that is refused where none
/// has must be refused there, too: what a server learns from others may resume nobody whom it would refuse.
fn faults_after_others(
    situation: &Situation,
    alone: &Seen,
    with: &Seen,
    after: &Seen,
) -> Vec<String> {
    let mut faults = Vec::new();
    if alone.new != after.new {
        faults.push(format!("a new client after others: {:?} became {:?}", alone.new, after.new));
    }
    let is_let_in = |(with, after): (&Outcome, &Outcome)| {
        *with == Outcome::Refused && matches!(after, Outcome::Resumed(_))
    };
    let lets_in = with.returning.iter().zip(&after.returning).any(is_let_in);
    if lets_in || !is_all_no_worse(situation, alone, after) {
        faults.push(format!("after others: {:?} became {:?}", alone.returning, after.returning));
    }
    faults.extend(no_longer_resumed(alone, after));
    faults
}

fn is_all_no_worse(situation: &Situation, alone: &Seen, with: &Seen) -> bool {
    // The first connection may end.
    let cut = usize::from(situation.is_cut && with.returning[0] == Outcome::Refused);
    let mut visits = alone.returning.iter().zip(&with.returning).zip(&with.new).skip(cut);
    visits.all(|((alone, with), new)| is_no_worse(alone, with, new))
}

fn is_no_worse(alone: &Outcome, with: &Outcome, new: &Outcome) -> bool {
    match (alone, with) {
        (Outcome::Resumed(_), Outcome::Refused) => *new == Outcome::Refused,
        _ => alone.who() == with.who(),
    }
}

/// Returns the outcomes in words, equal ones in a row as one.
fn words(outcomes: &[Outcome]) -> String {
    let mut words: Vec<_> = outcomes.iter().map(Outcome::word).collect();
    words.dedup();
    words.join(", then ")
}
