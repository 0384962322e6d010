//! The facts, before anything is concluded. `None` is everywhere "not known".

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::connection::{Cost, Failure};
use crate::settings::{Host, Target};

/// The bytes of a key's name at the start of a ticket, in the format that RFC 5077, section 4, recommends.
const KEY_NAME_BYTES: usize = 16;
/// The least bytes of a ticket in this format: a name, an initial vector and a digest, without any state.
const LEAST_TICKET_BYTES: usize = 64;

/// A way of resuming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Way {
    /// Session ids of TLS 1.2, where the client takes no tickets.
    #[serde(rename = "tls1.2-session-id")]
    Ids,
    /// Tickets of TLS 1.2.
    #[serde(rename = "tls1.2-ticket")]
    Tickets,
    /// Tickets of TLS 1.3, the only way there.
    #[serde(rename = "tls1.3-ticket")]
    Tls13,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Ids, Self::Tickets, Self::Tls13];

    /// Returns the version, `1.2` or `1.3`.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Ids | Self::Tickets => "1.2",
            Self::Tls13 => "1.3",
        }
    }

    /// Returns the thing that the client brings back.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Ids => "session id",
            Self::Tickets | Self::Tls13 => "ticket",
        }
    }
}

/// All that was found at a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// The server.
    pub target: Target,
    /// The Unix time of the examination, in seconds.
    pub at_s: u64,
    /// Its addresses, each for a machine of its own.
    pub addresses: Vec<AddressFacts>,
    /// Addresses that it has besides, and that were not examined.
    pub addresses_left_out: usize,
    /// Sessions of one address, offered to another.
    pub crossings: Vec<Crossing>,
    /// Crossings that were due, and that no session was offered for.
    pub crossings_not_tried: Vec<NotTried>,
    /// Sessions under other names, at the first address.
    pub names: Vec<NameFacts>,
    /// The connections that were made.
    pub connections: u32,
    /// True if an address needed more connections than it may have.
    pub bound_reached: bool,
    /// True if the examination was interrupted.
    pub interrupted: bool,
    /// The Unix time of an earlier report with a key name that tickets have still, in seconds.
    pub same_key_since_s: Option<u64>,
    /// The Unix time of an earlier report that names keys, none of which was seen now, in seconds.
    pub other_key_since_s: Option<u64>,
}

/// The facts about an address.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddressFacts {
    /// The address.
    pub address: SocketAddr,
    /// The reason for which no handshake at all succeeded.
    pub failure: Option<Failure>,
    /// The verdict on its certificate by the system's authorities, with the reason if it does not verify.
    pub certificate: Option<Certificate>,
    /// True if it asks for client certificates.
    pub asks_client_certificate: Option<bool>,
    /// The facts about each way of resuming.
    pub ways: Vec<WayFacts>,
    /// The fate of early data and of its copies.
    pub replay: Option<Replay>,
}

/// First flights with early data, and copies of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Replay {
    /// First flights whose session the server took, each of its own.
    pub sent: u32,
    /// First flights whose session the server did not take: they show nothing of early data.
    pub untaken: u32,
    /// Those whose early data the server accepted.
    pub accepted: u32,
    /// Those that it answered before the handshake was done.
    pub answered: u32,
    /// Those that the application answered with 425 (Too Early).
    pub too_early: u32,
    /// Copies of a first flight that was answered, to this address and to others.
    pub copies: u32,
    /// Copies that were answered.
    pub copies_answered: u32,
}

/// A server's certificate, checked with the system's authorities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// True if it verifies, with the name that was asked for.
    pub verifies: bool,
    /// The reason if it does not.
    pub reason: Option<String>,
}

/// Returns of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Sessions offered.
    pub tried: u32,
    /// Those that resumed.
    pub resumed: u32,
    /// Those at which the connection failed.
    pub broken: u32,
}

impl Tally {
    /// Returns true if all resumed, and there was one at least.
    pub const fn is_whole(self) -> bool {
        self.tried > 0 && self.resumed == self.tried
    }

    /// Returns the sessions that the server took or did not take: the connection did not fail.
    pub const fn answered(self) -> u32 {
        self.tried.saturating_sub(self.broken)
    }

    /// Returns true if sessions were answered, and none resumed.
    pub const fn is_naught(self) -> bool {
        self.answered() > 0 && self.resumed == 0
    }

    /// Returns true if most connections fail that offer a session. A single one may fail by chance.
    pub const fn is_breaking(self) -> bool {
        self.broken > 1 && self.broken > self.tried / 2
    }

    /// Returns the share of those answered that resumed; 0 if none was answered. `None`: none was offered.
    pub fn share(self) -> Option<f64> {
        (self.tried > 0).then(|| f64::from(self.resumed) / f64::from(self.answered().max(1)))
    }
}

/// A return after something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Later {
    /// Other sessions made in between, or the seconds that went by.
    pub after: u64,
    /// True if the session resumed.
    pub resumed: bool,
}

/// The facts about a way of resuming.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WayFacts {
    /// The way.
    pub way: Way,
    /// True if the server speaks the version.
    pub spoken: Option<bool>,
    /// True if it issues session ids, or tickets.
    pub issued: Option<bool>,
    /// The most tickets that came on a connection.
    pub tickets_per_connection: Option<usize>,
    /// A ticket's length.
    pub ticket_bytes: Option<usize>,
    /// The lifetime that it announces, in seconds; 0 if it leaves that to the client.
    pub lifetime_s: Option<u32>,
    /// The most early data that it takes, in bytes; 0 for none.
    pub early_data_bytes: Option<u32>,
    /// Returns at once to the same address.
    pub at_once: Tally,
    /// True if a ticket of TLS 1.3 resumes a second time.
    pub reusable: Option<bool>,
    /// True if resumption over TLS 1.3 agrees on a new key (`psk_dhe_ke`).
    pub agrees_on_key: Option<bool>,
    /// A return after other sessions, where the server keeps sessions itself.
    pub after_others: Option<Later>,
    /// A return after a time.
    pub after_wait: Option<Later>,
    /// The names of the keys that tickets were sealed with. `None`: none can be told, or the format is another one.
    pub key_names: Option<Vec<String>>,
    /// The same, after the time.
    pub key_names_later: Option<Vec<String>>,
    /// Full handshakes that failed, after one had succeeded.
    pub full_failures: u32,
    /// Returns that failed besides those at once: whether their sessions would have resumed is unknown.
    pub later_failures: u32,
    /// The first reason for which a connection failed.
    pub failure: Option<Failure>,
    /// The cost of a full handshake, the median.
    pub full: Option<Cost>,
    /// The cost of a resumed one, the median.
    pub resumed: Option<Cost>,
}

impl WayFacts {
    pub(crate) const fn new(way: Way) -> Self {
        Self {
            way,
            spoken: None,
            issued: None,
            tickets_per_connection: None,
            ticket_bytes: None,
            lifetime_s: None,
            early_data_bytes: None,
            at_once: Tally { tried: 0, resumed: 0, broken: 0 },
            reusable: None,
            agrees_on_key: None,
            after_others: None,
            after_wait: None,
            key_names: None,
            key_names_later: None,
            full_failures: 0,
            later_failures: 0,
            failure: None,
            full: None,
            resumed: None,
        }
    }

    /// Returns true if the server keeps the sessions itself: a ticket is too short for a session.
    pub fn is_kept_by_server(&self) -> bool {
        match self.way {
            Way::Ids => true,
            Way::Tickets | Way::Tls13 => {
                self.ticket_bytes.is_some_and(|bytes| bytes < LEAST_TICKET_BYTES)
            }
        }
    }

    /// Returns true if a session resumed at once.
    pub(crate) const fn is_taken(&self) -> bool {
        self.at_once.resumed > 0
    }

    /// Returns the failure of the version at an address where another one succeeds.
    pub(crate) fn version_failure(&self, at: &AddressFacts) -> Option<&Failure> {
        let is_beside = at.ways.iter().any(|facts| facts.spoken == Some(true));
        let failure = self.failure.as_ref().filter(|failure| !failure.is_end());
        failure.filter(|_| self.spoken.is_none() && is_beside)
    }

    /// Returns true if it is not known whether sessions resume at once, though the server may speak this version.
    fn is_open(&self, at: &AddressFacts) -> bool {
        let is_end = self.failure.as_ref().is_some_and(Failure::is_end);
        match self.spoken {
            None => is_end || self.version_failure(at).is_some(),
            Some(spoken) => spoken && self.issued == Some(true) && self.at_once.tried == 0,
        }
    }

    /// Returns what is known of the change of keys. A server of several keys at a time tells nothing: another worker may
    /// have answered.
    pub fn key(&self) -> Key {
        let waited_s = self.after_wait.map(|later| later.after);
        match (&self.key_names, &self.key_names_later, waited_s) {
            (Some(names), Some(later), Some(waited_s)) if names.len() == 1 => {
                if later == names {
                    Key::Same(waited_s)
                } else {
                    Key::Changed(waited_s)
                }
            }
            _ => Key::Unknown,
        }
    }
}

/// The key of tickets over a time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Not known.
    Unknown,
    /// It was the same.
    Same(u64),
    /// It changed.
    Changed(u64),
}

/// Sessions of one address, offered to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// The address that made them.
    pub from: SocketAddr,
    /// The address that was offered them.
    pub to: SocketAddr,
    /// The way.
    pub way: Way,
    /// The returns.
    #[serde(flatten)]
    pub tally: Tally,
}

/// A crossing that a failure, the bound of connections or an interruption left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotTried {
    /// The address that would have made the sessions.
    pub from: SocketAddr,
    /// The address that would have been offered them.
    pub to: SocketAddr,
    /// The way.
    pub way: Way,
}

/// Sessions and another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NameFacts {
    /// The name; `None` where the client names no server.
    pub name: Option<Host>,
    /// The way.
    pub way: Way,
    /// True if clients of this name get sessions.
    pub issued: Option<bool>,
    /// True if sessions of this name resume under it.
    pub own: Option<bool>,
    /// True if a session of the server's first name resumes under it.
    pub of_first: Option<bool>,
    /// The reason for which it is not known whether this name's sessions resume.
    pub failure: Option<Failure>,
}

impl NameFacts {
    /// Returns true if it is not known whether sessions resume under a name that the server may have for this version.
    fn is_open(&self) -> bool {
        let failure = self.failure.as_ref().filter(|failure| **failure != Failure::Version);
        self.name.is_some() && failure.is_some()
    }
}

/// The keys in an earlier report, read from its JSON.
#[derive(Debug, Clone, Deserialize)]
pub struct Earlier {
    target: String,
    at_s: u64,
    addresses: Vec<EarlierAddress>,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierAddress {
    ways: Vec<EarlierWay>,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierWay {
    key_names: Option<Vec<String>>,
}

impl Earlier {
    /// Returns true if it is a report on this server, whose keys can be compared with.
    pub fn is_on(&self, target: &Target) -> bool {
        self.target == target.to_string()
    }

    /// Returns the server that it is a report on, as the report says.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl Facts {
    /// Notes the time of an earlier report, whether tickets are still sealed with a key that it names, or none is. Where
    /// either names no key, nothing is known.
    pub fn compare(&mut self, earlier: &Earlier) {
        let before = earlier.addresses.iter().flat_map(|address| &address.ways);
        let before: Vec<&String> =
            before.filter_map(|way| way.key_names.as_ref()).flatten().collect();
        let ways = self.addresses.iter().flat_map(|address| &address.ways);
        let now: Vec<&String> = ways.filter_map(|way| way.key_names.as_ref()).flatten().collect();
        if earlier.at_s >= self.at_s || before.is_empty() || now.is_empty() {
            return;
        }
        let is_same = now.iter().any(|name| before.contains(name));
        self.same_key_since_s = is_same.then_some(earlier.at_s);
        self.other_key_since_s = (!is_same).then_some(earlier.at_s);
    }

    /// Returns true if, over each version that an address speaks, all returns of one way at least resumed, and nothing was
    /// left open.
    pub(crate) fn all_resume(&self) -> bool {
        let whole = |at: &AddressFacts, version| {
            let mut ways = at.ways.iter().filter(|facts| facts.way.version() == version);
            ways.any(|facts| facts.at_once.is_whole())
        };
        let spoken = self.addresses.iter().flat_map(|at| {
            let ways = at.ways.iter().filter(|facts| facts.spoken == Some(true));
            ways.map(move |facts| (at, facts.way.version()))
        });
        let mut spoken = spoken.peekable();
        let mut all = self.addresses.iter();
        !self.interrupted
            && !all.any(|at| at.ways.iter().any(|facts| facts.is_open(at)))
            && !self.leaves_crossings_open()
            && !self.names.iter().any(NameFacts::is_open)
            && spoken.peek().is_some()
            && spoken.all(|(at, version)| whole(at, version))
    }

    /// Returns true if a crossing was not tried or not answered that counts: one of session ids does not where all tickets
    /// cross.
    fn leaves_crossings_open(&self) -> bool {
        let is_unanswered =
            |crossing: &Crossing, way| crossing.way == way && crossing.tally.answered() == 0;
        let is_open = |way| {
            self.crossings_not_tried.iter().any(|pair| pair.way == way)
                || self.crossings.iter().any(|crossing| is_unanswered(crossing, way))
        };
        is_open(Way::Tickets)
            || is_open(Way::Tls13)
            || is_open(Way::Ids) && !self.all_tickets_cross()
    }

    /// Returns true if tickets of TLS 1.2 resumed in all directions between addresses, and there was one at least. All
    /// addresses take them: who met one that takes none has a session id.
    pub(crate) fn all_tickets_cross(&self) -> bool {
        let is_open = self.crossings_not_tried.iter().any(|pair| pair.way == Way::Tickets);
        let of_tickets = |crossing: &&Crossing| crossing.way == Way::Tickets;
        let mut tickets = self.crossings.iter().filter(of_tickets).peekable();
        let mut all = self.of_way(Way::Tickets);
        let are_taken = all.all(|(_, facts)| facts.spoken == Some(false) || facts.is_taken());
        !is_open
            && are_taken
            && tickets.peek().is_some()
            && tickets.all(|crossing| crossing.tally.resumed > 0)
    }

    /// Returns all that was found for a way, with its address.
    pub fn of_way(&self, way: Way) -> impl Iterator<Item = (&AddressFacts, &WayFacts)> {
        let all = self.addresses.iter();
        all.filter_map(move |at| Some((at, at.ways.iter().find(|facts| facts.way == way)?)))
    }
}

/// Returns the names of the keys of tickets, one list for each connection, each once.
///
/// The first bytes name a key if they are the same in two tickets that differ after them. Otherwise nothing is known: the
/// format may be another, or each connection had another key.
pub(crate) fn key_names(connections: &[Vec<Vec<u8>>]) -> Option<Vec<String>> {
    let all: Vec<&[u8]> = connections.iter().flatten().map(Vec::as_slice).collect();
    if all.iter().any(|ticket| ticket.len() < LEAST_TICKET_BYTES) {
        return None;
    }
    let named = |ticket: &[u8]| ticket[..KEY_NAME_BYTES].to_vec();
    let is_pair = |a: &[u8], b: &[u8]| named(a) == named(b) && a != b;
    let is_known = all.iter().enumerate().any(|(at, a)| all[..at].iter().any(|b| is_pair(a, b)));
    let hex = |name: Vec<u8>| name.iter().map(|byte| format!("{byte:02x}")).collect();
    is_known
        .then(|| rejoin_report::distinct(all.into_iter().map(named)).into_iter().map(hex).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: u8, rest: u8) -> Vec<u8> {
        [vec![name; 16], vec![rest; 64]].concat()
    }

    #[test]
    fn a_name_is_one_that_two_tickets_share() {
        let names = |tickets: &[(u8, u8)]| {
            key_names(&[tickets.iter().map(|(name, rest)| ticket(*name, *rest)).collect()])
        };
        assert_eq!(names(&[(1, 1), (1, 2)]), Some(vec!["01".repeat(16)]));
        assert_eq!(names(&[(1, 1), (2, 2), (1, 3)]).map(|names| names.len()), Some(2));
        // Random bytes at the front, or the same ticket again.
        assert_eq!(names(&[(1, 1), (2, 2), (3, 3)]), None);
        assert_eq!(names(&[(1, 1), (1, 1)]), None);
        assert_eq!(key_names(&[vec![vec![7; 32], vec![7; 33]]]), None);
    }

    #[test]
    fn the_key_of_several_workers_is_not_known_to_change() {
        let way = |before: &[&str], later: &[&str]| {
            let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
            let after_wait = Some(Later { after: 60, resumed: true });
            let (key_names, key_names_later) = (names(before), names(later));
            WayFacts { key_names, key_names_later, after_wait, ..WayFacts::new(Way::Tickets) }.key()
        };
        assert_eq!(way(&["a"], &["a"]), Key::Same(60));
        assert_eq!(way(&["a"], &["b"]), Key::Changed(60));
        assert_eq!(way(&["a", "b"], &["c"]), Key::Unknown);
        assert_eq!(WayFacts::new(Way::Tickets).key(), Key::Unknown);
    }
}
