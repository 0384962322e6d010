//! The reasons why full handshakes were not resumed, as far as a capture shows them.
//!
//! Handshakes are replayed by the clock. A reason is a fact of the capture: the offered session is
//! recognised by its hash where the capture shows it being issued (TLS 1.2 and before), and an offer
//! counts only if the ClientHello shows it. A session ID alone may be made up for middleboxes (RFC
//! 8446, D.4), and is an offer only if a server issued it. If two facts could each be the reason,
//! neither is named.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::counted::{CountedHandshake, Given, Offer, Protocol, Target};
use super::interned::{InternedTexts, NONE};
use super::steps;

/// The reason why a handshake was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The offered ticket was older than its lifetime.
    Expired,
    /// The server chose another version than that of the offered session.
    OtherVersion,
    /// The session came from another address of the server.
    OtherAddress,
    /// The session was made under another name.
    OtherName,
    /// The server has another certificate since.
    OtherCertificate,
    /// The session came from elsewhere in more than one respect.
    Several,
    /// The server declined, though it resumed other sessions.
    DeclinedHere,
    /// The server declined all that it was offered, twice or more.
    DeclinedAll,
    /// The server declined the only offer that the capture shows.
    Declined,
    /// The server had given the client no ticket and no session ID.
    NothingGiven,
    /// The client offered nothing, and the lifetime of its ticket was over.
    LifetimeOver,
    /// Another application of the client's address had a session, this one had none.
    OtherApplication,
    /// The client began before its first handshake with the server was over.
    Parallel,
    /// The client was given a session and did not offer it.
    NotOffered,
    /// The client came back and offered nothing; whether it was given a ticket is encrypted.
    CameBack,
    /// The client is not seen with this name and protocol before.
    FirstVisit,
    /// The capture does not show what was offered, or given.
    Unknown,
}

impl Cause {
    /// The cause in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "offered a ticket older than its lifetime",
            Self::OtherVersion => "offered a session of another version",
            Self::OtherAddress => "offered another address's session",
            Self::OtherName => "offered another name's session",
            Self::OtherCertificate => "offered a session made before the certificate changed",
            Self::Several => "offered a session of another address, name or certificate",
            Self::DeclinedHere => "declined by a server that resumes others",
            Self::DeclinedAll => "declined by a server that resumes none",
            Self::Declined => "declined, seen once",
            Self::NothingGiven => "no ticket and no session id was given",
            Self::LifetimeOver => "not offered: the ticket's lifetime was over",
            Self::OtherApplication => "not offered: another application had it",
            Self::Parallel => "not offered: the first handshake was not over",
            Self::NotOffered => "not offered, though one was given",
            Self::CameBack => "came back without an offer",
            Self::FirstVisit => "first visit in these captures",
            Self::Unknown => "the capture does not show it",
        }
    }

    /// The mend, in a few words.
    pub fn mend(self) -> &'static str {
        match self {
            Self::Expired => "longer lifetimes and older keys on the server",
            Self::OtherVersion => "the same versions on all servers",
            Self::OtherAddress => "ticket keys that servers share",
            Self::OtherName => "one name, or servers that resume across names",
            Self::OtherCertificate => "keys that outlive certificates; passes by itself",
            Self::Several => "ticket keys that servers share",
            Self::DeclinedHere => "keys that survive restarts, a larger cache",
            Self::DeclinedAll => "session tickets or a cache on the server",
            Self::Declined => "more of the server's traffic would tell",
            Self::NothingGiven => "session tickets or a cache on the server",
            Self::LifetimeOver => "longer lifetimes on the server",
            Self::OtherApplication => "sharing on the client: the TLS manager",
            Self::Parallel => "connections that wait for the first",
            Self::NotOffered | Self::CameBack => "a client that keeps sessions: the TLS manager",
            Self::FirstVisit | Self::Unknown => "–",
        }
    }
}

/// The full handshakes by cause, by server and by client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct NotResumed {
    /// The causes, most handshakes first.
    pub causes: Vec<CauseCount>,
    /// The servers with most full handshakes of clients that had come before or offered a session.
    pub by_server: Vec<Party>,
    /// The clients with most of them.
    pub by_client: Vec<Party>,
}

/// The full handshakes of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// Full handshakes.
    pub handshakes: u64,
    /// Their distinct servers, by address.
    pub servers: u64,
    /// Their distinct clients, by address.
    pub clients: u64,
}

/// The handshakes of one server or client, by address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Party {
    /// The address.
    pub address: String,
    /// Resumed handshakes.
    pub resumed: u64,
    /// Full handshakes that could have been resumed: without first visits and unknown ones.
    pub full: u64,
    /// These by cause.
    pub causes: BTreeMap<Cause, u64>,
}

/// Finds the causes. `top` is the most parties of each kind.
pub(super) fn of(uses: &[CountedHandshake], texts: &InternedTexts, top: usize) -> NotResumed {
    let mut order: Vec<u32> = (0..uses.len() as u32).collect();
    let found = Found { uses, answers: answers(uses), origins: origins(uses, &mut order) };
    let mut tally = Tally::default();
    let by_clock = |at: u32| (visitor(&uses[at as usize]), (uses[at as usize].begun_us, at));
    for visits in steps::groups(&mut order, by_clock) {
        let mut before = Before::default();
        for at in visits {
            let used = &uses[*at as usize];
            match used.is_full {
                true => tally.full(used, found.cause(*at, &before)),
                false => tally.resumed(used),
            }
            before.add(*at, used.ids.application);
        }
    }
    tally.finish(texts, top)
}

/// How often each server resumed and declined an offer.
fn answers(uses: &[CountedHandshake]) -> HashMap<u32, [u64; 2]> {
    let mut answers: HashMap<u32, [u64; 2]> = HashMap::new();
    for used in uses {
        let [resumed, declined] = answers.entry(used.ids.host).or_default();
        match (used.is_full, used.visit.offer) {
            (false, _) => *resumed += 1,
            (true, Offer::Certain) => *declined += 1,
            (true, _) => {}
        }
    }
    answers
}

/// The handshakes that issued what full handshakes offered, by the place of those.
fn origins(uses: &[CountedHandshake], order: &mut [u32]) -> HashMap<u32, u32> {
    let offers = uses.iter().filter(|used| used.is_full).flat_map(|used| used.visit.offered);
    // The last handshake so far that issued a ticket or a session ID.
    let mut issuers: HashMap<u64, Option<u32>> =
        offers.filter(|hash| *hash != 0).map(|hash| (hash, None)).collect();
    order.sort_unstable_by_key(|at| (uses[*at as usize].begun_us, *at));
    let mut origins = HashMap::new();
    for at in order {
        let used = &uses[*at as usize];
        let mut offered = used.visit.offered.iter().filter_map(|hash| *issuers.get(hash)?);
        if let Some(origin) = offered.next().filter(|_| used.is_full) {
            origins.insert(*at, origin);
        }
        for hash in used.visit.issued {
            if let Some(issuer) = issuers.get_mut(&hash) {
                *issuer = Some(*at);
            }
        }
    }
    origins
}

/// A client address, a name, and a protocol.
type Visitor = (u32, Target, Protocol);

/// The first and the last handshake of a visitor so far, and of each of its applications.
#[derive(Default)]
struct Before {
    visits: Option<[u32; 2]>,
    by_application: Vec<(u32, [u32; 2])>,
}

impl Before {
    fn add(&mut self, at: u32, application: u32) {
        self.visits.get_or_insert([at; 2])[1] = at;
        match self.by_application.iter_mut().find(|(known, _)| *known == application) {
            Some((_, visits)) => visits[1] = at,
            None => self.by_application.push((application, [at; 2])),
        }
    }

    fn of(&self, application: u32) -> Option<&[u32; 2]> {
        let known = self.by_application.iter().find(|(known, _)| *known == application);
        known.map(|(_, visits)| visits)
    }
}

struct Found<'a> {
    uses: &'a [CountedHandshake],
    answers: HashMap<u32, [u64; 2]>,
    origins: HashMap<u32, u32>,
}

impl Found<'_> {
    fn cause(&self, at: u32, before: &Before) -> Cause {
        let used = &self.uses[at as usize];
        let origin = self.origins.get(&at);
        let origin = origin.map(|at| &self.uses[*at as usize]);
        match (used.visit.offer, origin) {
            (Offer::Certain, origin) => self.declined(used, origin),
            (Offer::SessionOnly, Some(origin)) => self.declined(used, Some(origin)),
            (Offer::Nothing, _) => self.not_offered(used, before),
            // In TLS 1.3 the session ID is made up.
            (Offer::SessionOnly, None) if used.protocol.is_1_3() => self.not_offered(used, before),
            (Offer::SessionOnly, None) | (Offer::Unknown, _) => Cause::Unknown,
        }
    }

    fn declined(&self, used: &CountedHandshake, origin: Option<&CountedHandshake>) -> Cause {
        if used.visit.is_of_other_version {
            return Cause::OtherVersion;
        }
        let Some(origin) = origin else { return self.by_answers(used) };
        let age_us = used.begun_us - origin.done_us;
        if origin.visit.states_lifetime && age_us > i64::from(origin.lifetime_s) * 1_000_000 {
            return Cause::Expired;
        }
        if origin.visit.version != used.visit.version {
            return Cause::OtherVersion;
        }
        let certificates = [origin.ids.certificate, used.ids.certificate];
        let differing = [
            (origin.ids.host != used.ids.host, Cause::OtherAddress),
            (origin.ids.target != used.ids.target, Cause::OtherName),
            (
                !certificates.contains(&NONE) && certificates[0] != certificates[1],
                Cause::OtherCertificate,
            ),
        ];
        let mut differing = differing.iter().filter(|(differs, _)| *differs);
        match (differing.next(), differing.next()) {
            (None, _) => self.by_answers(used),
            (Some((_, cause)), None) => *cause,
            (Some(_), Some(_)) => Cause::Several,
        }
    }

    fn by_answers(&self, used: &CountedHandshake) -> Cause {
        match self.answers.get(&used.ids.host) {
            Some([(1..), _]) => Cause::DeclinedHere,
            Some([0, (2..)]) => Cause::DeclinedAll,
            _ => Cause::Declined,
        }
    }

    fn not_offered(&self, used: &CountedHandshake, before: &Before) -> Cause {
        let Some(all) = &before.visits else { return Cause::FirstVisit };
        let Some(own) = before.of(used.ids.application) else {
            return match self.over(all, used) {
                Some(_) => Cause::OtherApplication,
                None => Cause::Parallel,
            };
        };
        let Some(before) = self.over(own, used) else { return Cause::Parallel };
        let age_us = used.begun_us - before.done_us;
        let is_over = age_us > i64::from(before.lifetime_s) * 1_000_000;
        match before.visit.given {
            Given::Nothing => Cause::NothingGiven,
            _ if before.visit.states_lifetime && is_over => Cause::LifetimeOver,
            Given::Something => Cause::NotOffered,
            Given::Encrypted => Cause::CameBack,
            Given::Unknown => Cause::Unknown,
        }
    }

    /// The last of these handshakes that was over when this one began, or else the first.
    fn over(&self, visits: &[u32; 2], used: &CountedHandshake) -> Option<&CountedHandshake> {
        let [first, last] = visits.map(|at| &self.uses[at as usize]);
        [last, first].into_iter().find(|visit| visit.done_us <= used.begun_us)
    }
}

fn visitor(used: &CountedHandshake) -> Visitor {
    (used.ids.client, used.ids.target, used.protocol)
}

/// The resumed handshakes of a party, and its full ones by cause.
type Handshakes = (u64, BTreeMap<Cause, u64>);

#[derive(Default)]
struct Tally {
    causes: BTreeMap<Cause, (u64, HashSet<u32>, HashSet<u32>)>,
    /// Resumed handshakes and causes, by server and by client.
    parties: [HashMap<u32, Handshakes>; 2],
}

impl Tally {
    fn resumed(&mut self, used: &CountedHandshake) {
        for (parties, id) in self.parties.iter_mut().zip([used.ids.host, used.ids.client]) {
            parties.entry(id).or_default().0 += 1;
        }
    }

    fn full(&mut self, used: &CountedHandshake, cause: Cause) {
        let (count, servers, clients) = self.causes.entry(cause).or_default();
        *count += 1;
        servers.insert(used.ids.host);
        clients.insert(used.ids.client);
        if matches!(cause, Cause::FirstVisit | Cause::Unknown) {
            return;
        }
        for (parties, id) in self.parties.iter_mut().zip([used.ids.host, used.ids.client]) {
            *parties.entry(id).or_default().1.entry(cause).or_default() += 1;
        }
    }

    fn finish(self, texts: &InternedTexts, top: usize) -> NotResumed {
        let counts = self.causes.into_iter().map(|(cause, (handshakes, servers, clients))| {
            let (servers, clients) = (servers.len() as u64, clients.len() as u64);
            CauseCount { cause, handshakes, servers, clients }
        });
        let mut causes: Vec<CauseCount> = counts.collect();
        causes.sort_by_key(|count| std::cmp::Reverse(count.handshakes));
        let [by_server, by_client] = self.parties.map(|parties| {
            let parties = parties.into_iter().filter(|(_, (_, causes))| !causes.is_empty());
            let party = |(id, (resumed, causes)): (u32, Handshakes)| Party {
                address: texts.get(id).into_owned(),
                resumed,
                full: causes.values().sum(),
                causes,
            };
            let mut parties: Vec<Party> = parties.map(party).collect();
            parties.sort_by(Party::order);
            parties.truncate(top);
            parties
        });
        NotResumed { causes, by_server, by_client }
    }
}

impl Party {
    /// Orders by full handshakes, most first, then by address.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.full.cmp(&self.full).then_with(|| self.address.cmp(&other.address))
    }

    /// The cause of most of its full handshakes.
    pub fn main_cause(&self) -> Option<Cause> {
        self.causes.iter().max_by_key(|(_, count)| **count).map(|(cause, _)| *cause)
    }
}
