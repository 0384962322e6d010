//! The cells that the tables of the terminal and of the page have in common.

use std::net::SocketAddr;

use crate::connection::Cost;
use crate::facts::{AddressFacts, Facts, Key, Later, Replay, Way, WayFacts};
use crate::findings::{Finding, Loss, Severity};

/// The heads of the table of ways.
pub(super) const HEAD: [&str; 9] =
    ["at", "TLS", "by", "at once", "others", "later", "lifetime", "tickets", "keys"];

/// Names an address: A, B, C and so on.
pub(super) fn letter(facts: &Facts, address: SocketAddr) -> String {
    let at = facts.addresses.iter().position(|known| known.address == address);
    let letter = at.and_then(|at| u8::try_from(at).ok()).map_or('?', |at| (b'A' + at % 26) as char);
    letter.to_string()
}

/// Returns the rows of the table of ways, each with the first cell.
pub(super) fn rows(facts: &Facts) -> Vec<Vec<String>> {
    let of_address = |at: &AddressFacts| {
        let letter = letter(facts, at.address);
        at.ways.iter().map(move |way| row(&letter, way)).collect::<Vec<_>>()
    };
    facts.addresses.iter().flat_map(of_address).collect()
}

fn row(at: &str, facts: &WayFacts) -> Vec<String> {
    let way = facts.way;
    let by = if way == Way::Ids { "id" } else { "ticket" };
    let only = |text: &str, rest: &str| [text, rest, rest, rest, rest, rest].map(str::to_owned);
    let rest = match (facts.spoken, facts.issued) {
        (Some(false), _) => only("not spoken", "–"),
        (None, _) => only("?", "?"),
        (_, Some(false)) => only("no such", "–"),
        _ => [
            match facts.at_once.tried {
                0 => "?".to_owned(),
                tried => format!("{} of {tried}", facts.at_once.resumed),
            },
            later(facts.after_others, |after| after.to_string()),
            later(facts.after_wait, time),
            lifetime(facts),
            tickets(facts),
            keys(facts),
        ],
    };
    [at, way.version(), by].map(str::to_owned).into_iter().chain(rest).collect()
}

fn later(later: Option<Later>, after: impl Fn(u64) -> String) -> String {
    let Some(Later { resumed, after: number }) = later else { return "?".to_owned() };
    format!("{}, {}", if resumed { "yes" } else { "no" }, after(number))
}

fn lifetime(facts: &WayFacts) -> String {
    match facts.lifetime_s {
        _ if facts.way == Way::Ids => "–".to_owned(),
        None => "?".to_owned(),
        Some(0) => "open".to_owned(),
        Some(seconds) => time(seconds.into()),
    }
}

/// Formats a time in its largest unit.
fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit || seconds == *unit);
    let (unit, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

fn tickets(facts: &WayFacts) -> String {
    match (facts.way, facts.tickets_per_connection, facts.ticket_bytes) {
        (Way::Ids, ..) => "–".to_owned(),
        (_, Some(count), Some(bytes)) => format!("{count}×{bytes} B"),
        _ => "?".to_owned(),
    }
}

fn keys(facts: &WayFacts) -> String {
    let names = facts.key_names.as_ref().map(Vec::len);
    match (names, facts.key()) {
        _ if facts.is_kept_by_server() => "–".to_owned(),
        (None, _) => "?".to_owned(),
        (Some(1), Key::Changed(_)) => "new".to_owned(),
        (Some(count), _) => count.to_string(),
    }
}

/// Returns a line for each way between addresses: the directions in which sessions resumed, the others, and those that were
/// not tried.
pub(super) fn crossings(facts: &Facts) -> Vec<String> {
    let pairs = |all: &mut dyn Iterator<Item = (SocketAddr, SocketAddr)>| {
        let pair = |(from, to)| format!("{}→{}", letter(facts, from), letter(facts, to));
        let pairs = all.map(pair).collect::<Vec<_>>().join(" ");
        if pairs.is_empty() { "none".to_owned() } else { pairs }
    };
    let tried = |way, resumed| {
        let all = facts.crossings.iter().filter(move |crossing| crossing.way == way);
        let mut all = all
            .filter(move |crossing| (crossing.tally.resumed > 0) == resumed)
            .map(|crossing| (crossing.from, crossing.to));
        pairs(&mut all)
    };
    let not_tried = |way| {
        let all = facts.crossings_not_tried.iter().filter(move |pair| pair.way == way);
        let mut all = all.map(|pair| (pair.from, pair.to)).peekable();
        all.peek().is_some().then(|| format!("; not tried: {}", pairs(&mut all)))
    };
    let is_due = |way: &Way| {
        let mut ways = facts.crossings.iter().map(|crossing| crossing.way);
        ways.any(|of| of == *way) || not_tried(*way).is_some()
    };
    let line = |way: Way| {
        let (yes, no) = (tried(way, true), tried(way, false));
        let open = not_tried(way).unwrap_or_default();
        format!("TLS {} {} elsewhere: resumed {yes}; not {no}{open}.", way.version(), way.token())
    };
    Way::ALL.into_iter().filter(is_due).map(line).collect()
}

/// Returns sentences on what the tables have no column for.
pub(super) fn remarks(facts: &Facts) -> Vec<String> {
    let mut remarks = Vec::new();
    for version in ["1.2", "1.3"] {
        let ways = Way::ALL.into_iter().filter(|way| way.version() == version);
        let costs = ways.flat_map(|way| facts.of_way(way));
        let costs = costs.filter_map(|(_, facts)| Some((facts.full?, facts.resumed)));
        // A way that resumed tells more.
        if let Some((full, resumed)) = costs.max_by_key(|(_, resumed)| resumed.is_some()) {
            let resumed = resumed.map_or_else(|| "none resumed".to_owned(), cost);
            remarks.push(format!(
                "TLS {version}: a full handshake takes {}; a resumed one: {resumed}.",
                cost(full)
            ));
        }
    }
    if let Some((_, tls13)) = facts.of_way(Way::Tls13).find(|(_, facts)| facts.at_once.tried > 0) {
        let early = match tls13.early_data_bytes {
            None => "early data unknown".to_owned(),
            Some(0) => "no early data".to_owned(),
            Some(bytes) => format!("early data up to {bytes} bytes"),
        };
        let again = match tls13.reusable {
            None => "whether a ticket resumes twice is unknown",
            Some(true) => "a ticket resumes again and again",
            Some(false) => "a ticket resumes once",
        };
        let key = match tls13.agrees_on_key {
            None => "key agreement unknown",
            Some(true) => "resumption agrees on a new key",
            Some(false) => "resumption agrees on no new key",
        };
        remarks.push(format!("TLS 1.3: {again}; {key}; {early}."));
    }
    remarks.extend(facts.addresses.iter().filter_map(|at| {
        Some(format!("Early data at {}: {}", letter(facts, at.address), replay(at.replay?)))
    }));
    remarks.push(key(facts));
    if facts.bound_reached {
        remarks.push("The bound of connections was reached: raise --connections.".to_owned());
    }
    if facts.interrupted {
        remarks.push("Interrupted: what was found by then.".to_owned());
    }
    if facts.addresses_left_out > 0 {
        remarks.push(format!("{} more addresses were not examined.", facts.addresses_left_out));
    }
    remarks
}

fn replay(replay: Replay) -> String {
    let Replay { sent, untaken, accepted, answered, too_early, copies, copies_answered } = replay;
    match (sent, accepted, answered, too_early) {
        (0, ..) if untaken > 0 => format!(
            "of {untaken} first flights none had its session taken: whether copies are answered is unknown."
        ),
        (0, ..) => "none is offered, so none was sent.".to_owned(),
        (_, 0, ..) => format!("rejected in {sent} first flights, so none was copied."),
        (.., 0, 0) => {
            "accepted, and not answered before the handshake was done: whether a copy is acted on is unknown."
                .to_owned()
        }
        (.., 0, _) => "answered with 425 (Too Early), so none was copied.".to_owned(),
        _ => format!(
            "accepted and answered; of {copies} copies {copies_answered} were answered, too."
        ),
    }
}

fn key(facts: &Facts) -> String {
    let mut keys = facts.addresses.iter().flat_map(|at| &at.ways).map(WayFacts::key);
    let known = keys.find(|key| *key != Key::Unknown);
    let hours = |since_s: u64| facts.at_s.saturating_sub(since_s) / 3_600;
    match (facts.same_key_since_s, facts.other_key_since_s, known) {
        (Some(since_s), ..) => {
            format!("Ticket keys: one is the same as {} hours ago.", hours(since_s))
        }
        (None, Some(since_s), _) => {
            format!("Ticket keys: none is the same as {} hours ago.", hours(since_s))
        }
        (None, None, Some(Key::Same(for_s))) => {
            format!("Ticket keys: the same after {for_s} s; whether they rotate is unknown.")
        }
        (None, None, Some(Key::Changed(after_s))) => {
            format!("Ticket keys: another one after {after_s} s.")
        }
        (None, None, Some(Key::Unknown) | None) => {
            "Ticket keys: whether they rotate is unknown.".to_owned()
        }
    }
}

fn cost(cost: Cost) -> String {
    let Cost { bytes, round_trips, ms } = cost;
    format!("{}, {bytes} bytes, {ms:.1} ms", trips(round_trips))
}

fn trips(count: u32) -> String {
    format!("{count} round trip{}", if count == 1 { "" } else { "s" })
}

/// Returns a finding's heading.
pub(super) fn heading(finding: &Finding) -> String {
    let weight = match finding.severity {
        Severity::Broken => "BROKEN",
        Severity::Loss => "LOSS",
        Severity::Risk => "RISK",
        Severity::Note => "note",
    };
    let versions = finding.versions.iter().map(|version| format!("TLS {version}"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    let versions = if versions.is_empty() { versions } else { format!(" ({versions})") };
    format!("{weight}: {}{versions}", finding.title)
}

/// Returns what is lost as a sentence.
pub(super) fn lost(loss: &Loss) -> String {
    let Loss { version, resuming_share, bytes, round_trips } = loss;
    let share = match resuming_share {
        Some(share) => format!("about {:.0} % of returning clients resume", share * 100.0),
        None => "the share of returning clients that resume is unknown".to_owned(),
    };
    let more = match (bytes, round_trips) {
        (Some(bytes), Some(0)) => format!("each full handshake takes {bytes} bytes more"),
        (Some(bytes), Some(count)) => {
            format!("each full handshake takes {} and {bytes} bytes more", trips(*count))
        }
        _ => "what a resumed handshake would save is unknown: there was none".to_owned(),
    };
    format!("Lost over TLS {version}: {share}; {more}.")
}
