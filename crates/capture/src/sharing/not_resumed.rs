//! The reasons why full handshakes were not resumed, as far as a capture shows them.
//!
//! Handshakes are replayed by the clock. A reason is a fact of the capture: the offered session is
//! recognised by its hash where the capture shows it being issued (TLS 1.2 and before), and an offer
//! counts only if the ClientHello shows it. A session ID alone may be made up for middleboxes (RFC
//! 8446, D.4), and is an offer only if a server issued it. If two facts could each be the reason,
//! neither is named, and where the capture gives no time, the reason is unknown.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use serde::Serialize;

use super::best::Best;
use super::counted::{CountedHandshake, Given, Offer, Protocol, Target};
use super::interned::{InternedTexts, NONE};
use super::steps;
use super::uses::{Sight, Uses};
use crate::digest::Digest;

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
pub(super) fn of(uses: &Uses, texts: &InternedTexts, top: usize) -> NotResumed {
    let causes = Found { uses, answers: answers(uses), origins: origins(uses) }.causes();
    let (servers, by_server) = parties(uses, &causes, |used| used.ids.host, texts, top);
    let (clients, by_client) = parties(uses, &causes, |used| used.ids.client, texts, top);
    let mut counts = BTreeMap::<Cause, u64>::new();
    causes.iter().flatten().for_each(|cause| *counts.entry(*cause).or_default() += 1);
    let count = |(cause, handshakes)| CauseCount {
        cause,
        handshakes,
        servers: servers[&cause],
        clients: clients[&cause],
    };
    let mut causes: Vec<CauseCount> = counts.into_iter().map(count).collect();
    causes.sort_by_key(|count| std::cmp::Reverse(count.handshakes));
    NotResumed { causes, by_server, by_client }
}

/// Returns for each handshake the cause if its server declined its offer, by what the server did with others.
fn answers(uses: &Uses) -> Vec<Cause> {
    let mut causes = vec![Cause::Declined; uses.len()];
    for of_host in steps::groups(&mut uses.places(), |at| (uses.get(at).ids.host, at)) {
        let [mut resumed, mut declined] = [0_u64; 2];
        for used in of_host.iter().map(|at| uses.get(*at)) {
            match (used.is_full, used.visit.offer) {
                (false, _) => resumed += 1,
                (true, Offer::Certain) => declined += 1,
                (true, _) => {}
            }
        }
        let cause = match [resumed, declined] {
            [(1..), _] => Cause::DeclinedHere,
            [0, (2..)] => Cause::DeclinedAll,
            [0, _] => continue,
        };
        of_host.iter().for_each(|at| causes[*at as usize] = cause);
    }
    causes
}

/// The handshakes that issued what full handshakes offered, by the place of those.
fn origins(uses: &Uses) -> HashMap<u32, u32> {
    let sights = || uses.sights().filter(|(_, at, _)| uses.has_time(*at));
    let issued = sights().filter(|(sight, ..)| !sight.is_offer());
    let mut issued: Vec<Digest> = issued.map(|(.., hash)| hash).collect();
    issued.sort_unstable();
    let is_offer_of_full =
        |(sight, at, _): &(Sight, u32, _)| sight.is_offer() && uses.get(*at).is_full;
    let offers = sights().filter(is_offer_of_full).map(|(.., hash)| hash);
    // The last handshake so far that issued a ticket or a session ID.
    let mut issuers: HashMap<Digest, Option<u32>> =
        offers.filter(|hash| issued.binary_search(hash).is_ok()).map(|hash| (hash, None)).collect();
    drop(issued);
    let sights = sights().filter(|(.., hash)| issuers.contains_key(hash));
    let mut sights: Vec<_> =
        sights.map(|(sight, at, hash)| ((uses.begun_us(at), at, sight), hash)).collect();
    sights.sort_unstable();
    let mut origins = HashMap::new();
    for ((_, at, sight), hash) in sights {
        let Some(issuer) = issuers.get_mut(&hash) else { continue };
        match (sight.is_offer(), *issuer) {
            (true, Some(issuer)) if uses.get(at).is_full => {
                origins.entry(at).or_insert(issuer);
            }
            (true, _) => {}
            (false, _) => *issuer = Some(at),
        }
    }
    origins
}

/// A client address, a name, and a protocol.
type Visitor = (u32, Target, Protocol);

/// The first and the last handshake of a visitor so far, and of each of its applications. A resumption after which the
/// client keeps its session is not the last one where an earlier handshake gave it something, with its lifetime.
#[derive(Default)]
struct Before {
    visits: Option<[u32; 2]>,
    by_application: HashMap<u32, [u32; 2], FixedState>,
    /// True if there are others, which may have come before or after.
    has_timeless: bool,
}

impl Before {
    fn add(&mut self, at: u32, uses: &Uses) {
        let used = uses.get(at);
        let follow = |[_, last]: &mut [u32; 2]| {
            let is_kept = used.visit.given == Given::Kept
                && matches!(uses.get(*last).visit.given, Given::Something | Given::Kept);
            if !is_kept {
                *last = at;
            }
        };
        follow(self.visits.get_or_insert([at; 2]));
        follow(self.by_application.entry(used.ids.application).or_insert([at; 2]));
    }

    fn of(&self, application: u32) -> Option<[u32; 2]> {
        self.by_application.get(&application).copied()
    }
}

struct Found<'a> {
    uses: &'a Uses,
    answers: Vec<Cause>,
    origins: HashMap<u32, u32>,
}

impl Found<'_> {
    /// Returns the cause of each full handshake.
    fn causes(&self) -> Vec<Option<Cause>> {
        let uses = self.uses;
        let mut causes = vec![None; uses.len()];
        let by_clock =
            |at: u32| (visitor(&uses.get(at)), (uses.has_time(at), uses.begun_us(at), at));
        for visits in steps::groups(&mut uses.places(), by_clock) {
            let mut before = Before::default();
            for at in visits {
                let used = uses.get(*at);
                causes[*at as usize] = used.is_full.then(|| self.cause(*at, &used, &before));
                // Those without a time come first.
                match used.has_time {
                    true => before.add(*at, uses),
                    false => before.has_timeless = true,
                }
            }
        }
        causes
    }

    fn cause(&self, at: u32, used: &CountedHandshake, before: &Before) -> Cause {
        let origin = self.origins.get(&at).map(|at| self.uses.get(*at));
        let answer = self.answers[at as usize];
        match (used.visit.offer, origin) {
            _ if !used.has_time => Cause::Unknown,
            (Offer::Certain, origin) => declined(used, origin.as_ref(), answer),
            (Offer::SessionOnly, Some(origin)) => declined(used, Some(&origin), answer),
            (Offer::Nothing, _) => self.not_offered(used, before),
            // In TLS 1.3 the session ID is made up.
            (Offer::SessionOnly, None) if used.protocol.is_1_3() => self.not_offered(used, before),
            (Offer::SessionOnly, None) | (Offer::Unknown, _) => Cause::Unknown,
        }
    }

    fn not_offered(&self, used: &CountedHandshake, before: &Before) -> Cause {
        let Some(all) = before.visits.filter(|_| !before.has_timeless) else {
            return if before.has_timeless { Cause::Unknown } else { Cause::FirstVisit };
        };
        let Some(own) = before.of(used.ids.application) else {
            return match self.over(all, used) {
                Some(_) => Cause::OtherApplication,
                None => Cause::Parallel,
            };
        };
        let Some(before) = self.over(own, used) else { return Cause::Parallel };
        let age_us = used.begun_us - before.done_us();
        let is_over = age_us > i64::from(before.lifetime_s) * 1_000_000;
        match before.visit.given {
            Given::Nothing => Cause::NothingGiven,
            _ if before.visit.states_lifetime && is_over => Cause::LifetimeOver,
            Given::Something | Given::Kept => Cause::NotOffered,
            Given::Encrypted => Cause::CameBack,
            Given::Unknown => Cause::Unknown,
        }
    }

    /// The last of these handshakes that was over when this one began, or else the first.
    fn over(&self, visits: [u32; 2], used: &CountedHandshake) -> Option<CountedHandshake> {
        let [first, last] = visits.map(|at| self.uses.get(at));
        [last, first].into_iter().find(|visit| visit.done_us() <= used.begun_us)
    }
}

/// Returns the cause where a server declined an offer. `answer` is the one by what it did with others.
fn declined(used: &CountedHandshake, origin: Option<&CountedHandshake>, answer: Cause) -> Cause {
    if used.visit.is_of_other_version {
        return Cause::OtherVersion;
    }
    let Some(origin) = origin else { return answer };
    let age_us = used.begun_us - origin.done_us();
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
        (None, _) => answer,
        (Some((_, cause)), None) => *cause,
        (Some(_), Some(_)) => Cause::Several,
    }
}

fn visitor(used: &CountedHandshake) -> Visitor {
    (used.ids.client, used.ids.target, used.protocol)
}

/// Returns how many parties have full handshakes of each cause, and those with most that could have been resumed.
fn parties(
    uses: &Uses,
    causes: &[Option<Cause>],
    party: impl Fn(&CountedHandshake) -> u32,
    texts: &InternedTexts,
    top: usize,
) -> (BTreeMap<Cause, u64>, Vec<Party>) {
    let mut counts = BTreeMap::<Cause, u64>::new();
    let mut best = Best::new(top, Party::order);
    for handshakes in steps::groups(&mut uses.places(), |at| (party(&uses.get(at)), at)) {
        let mut own = BTreeMap::<Cause, u64>::new();
        let of_each = handshakes.iter().map(|at| causes[*at as usize]);
        of_each.clone().flatten().for_each(|cause| *own.entry(cause).or_default() += 1);
        own.keys().for_each(|cause| *counts.entry(*cause).or_default() += 1);
        own.retain(|cause, _| !matches!(cause, Cause::FirstVisit | Cause::Unknown));
        if !own.is_empty() {
            best.add(Party {
                address: texts.get(party(&uses.get(handshakes[0]))).into_owned(),
                resumed: of_each.filter(Option::is_none).count() as u64,
                full: own.values().sum(),
                causes: own,
            });
        }
    }
    (counts, best.into_sorted())
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
