//! The conclusions from the facts: a pure function.

mod losses;
mod machines;
mod names;

use serde::Serialize;

use crate::connection::Failure;
use crate::facts::{AddressFacts, Facts, Key, Tally, Way, WayFacts};
use crate::mends::{Mends, mends};
use losses::loss;

/// The longest time that a ticket key should live, in seconds (RFC 9325, section 3.4: once every week).
const KEY_LIFE_S: u64 = 7 * 86_400;

/// Two that know nothing of each other resume half of the returns.
const RARE_SHARE: f64 = 0.75;

/// The weight of a finding, the heaviest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Connections fail.
    Broken,
    /// Clients make full handshakes that they could be spared.
    Loss,
    /// Clients resume, and something else suffers.
    Risk,
    /// Good to know.
    Note,
}

/// The cause of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// An address with which no handshake succeeds.
    NoHandshake,
    /// A connection fails that offers a session.
    OfferBreaks,
    /// TLS 1.2 with neither session ids nor tickets.
    NothingIssued,
    /// TLS 1.3 without tickets.
    NoTickets,
    /// Session ids are issued, and never found again.
    IdsNeverFound,
    /// Tickets are issued, and never resume.
    TicketsNeverOpen,
    /// Some returns to one address resume.
    WorkersApart,
    /// Addresses do not resume each other's sessions.
    MachinesApart,
    /// Some addresses speak TLS 1.3, and others do not.
    VersionsApart,
    /// Another name of the server resumes, and this one does not.
    NameApart,
    /// A session is gone after a few others.
    CacheTooSmall,
    /// A session is gone after a time.
    ForgottenEarly,
    /// Few returns do not resume.
    SometimesLost,
    /// Handshakes fail now and then.
    HandshakesFail,
    /// A version fails where another one succeeds.
    VersionFails,
    /// Ticket keys stay the same for too long.
    KeyNotRotated,
    /// A copy of a first flight is answered.
    ReplayAnswered,
    /// TLS 1.3 is not spoken.
    OnlyTls12,
    /// TLS 1.2 is not spoken.
    OnlyTls13,
    /// TLS 1.2 resumes by ticket only.
    NoIds,
    /// TLS 1.2 resumes by session id only.
    NoTicketsTls12,
    /// Tickets of TLS 1.3 only name a session that the server keeps.
    KeptByServer,
    /// Resumption over TLS 1.3 without a new key.
    NoKeyAgreement,
    /// Sessions of one name resume under another.
    NamesShare,
    /// The certificate does not verify.
    Certificate,
    /// Client certificates are asked for.
    ClientCertificate,
}

/// Something that was found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How heavy it is.
    pub severity: Severity,
    /// The cause.
    pub cause: Cause,
    /// The cause in a few words.
    pub title: &'static str,
    /// The versions that it concerns.
    pub versions: Vec<&'static str>,
    /// The observations, a sentence each.
    pub seen: Vec<String>,
    /// The losses.
    pub losses: Vec<Loss>,
    /// The mend. `None`: nothing needs to be mended, or nobody outside can say how.
    pub mends: Option<&'static Mends>,
}

/// The loss over one version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loss {
    /// The version.
    pub version: &'static str,
    /// The share of returning clients that resume, from 0 to 1, if each returns to any of the addresses.
    pub resuming_share: Option<f64>,
    /// The bytes that a full handshake takes more than a resumed one. `None`: none resumed here.
    pub bytes: Option<u64>,
    /// The round trips that it takes more.
    pub round_trips: Option<u32>,
}

/// Returns the findings, the heaviest first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut seen = Seen { facts, raw: Vec::new() };
    for at in &facts.addresses {
        seen.address(at);
    }
    seen.versions();
    seen.broken_crossings();
    seen.crossings();
    seen.ways_apart();
    seen.versions_apart();
    seen.names();
    seen.keys();
    seen.gathered()
}

impl Finding {
    /// Returns true if it stands in the way of resumption.
    pub fn is_in_the_way(&self) -> bool {
        self.severity <= Severity::Loss
    }
}

/// A finding at one place.
struct Raw {
    severity: Severity,
    cause: Cause,
    way: Option<Way>,
    text: String,
}

struct Seen<'f> {
    facts: &'f Facts,
    raw: Vec<Raw>,
}

impl Seen<'_> {
    fn add(&mut self, severity: Severity, cause: Cause, way: Option<Way>, text: String) {
        self.raw.push(Raw { severity, cause, way, text });
    }

    fn address(&mut self, at: &AddressFacts) {
        let address = at.address;
        if let Some(failure) = &at.failure {
            let is_here = *failure == Failure::NoRoute;
            let severity = if is_here { Severity::Note } else { Severity::Broken };
            self.add(severity, Cause::NoHandshake, None, format!("{address}: {failure}."));
        }
        if let Some(reason) = at.certificate.as_ref().and_then(|known| known.reason.as_ref()) {
            self.add(Severity::Note, Cause::Certificate, None, format!("{address}: {reason}."));
        }
        if at.asks_client_certificate == Some(true) {
            let text = format!("{address} asks for a client certificate. None was sent.");
            self.add(Severity::Note, Cause::ClientCertificate, None, text);
        }
        if let Some(replay) = at.replay.filter(|replay| replay.copies_answered > 0) {
            let text = format!(
                "{address}: {} of {} copies of a first flight were answered. Who copies a request on its way can have it \
                 processed again.",
                replay.copies_answered, replay.copies
            );
            self.add(Severity::Risk, Cause::ReplayAnswered, Some(Way::Tls13), text);
        }
        for facts in &at.ways {
            self.way(at, facts);
            // Both ways of TLS 1.2 fail alike, and what is told twice is joined.
            if let Some(failure) = facts.version_failure(at) {
                let version = facts.way.version();
                let text =
                    format!("{address}: TLS {version} fails: {failure}. Another version succeeds.");
                self.add(Severity::Risk, Cause::VersionFails, Some(facts.way), text);
            }
        }
        let of = |way| at.ways.iter().find(|facts| facts.way == way);
        if let (Some(ids), Some(tickets)) = (of(Way::Ids), of(Way::Tickets)) {
            self.tls12(at, ids, tickets);
        }
        if let Some(facts) = of(Way::Tls13) {
            self.tls13(at, facts);
        }
    }

    /// Finds what any way may show.
    fn way(&mut self, at: &AddressFacts, facts: &WayFacts) {
        let (address, way, tally) = (at.address, facts.way, facts.at_once);
        let what = format!("TLS {}, {}", way.version(), way.token());
        let severity = weight(at, way);
        let why = facts.failure.as_ref().map(ToString::to_string).unwrap_or_default();
        if facts.full_failures > 0 {
            let text = format!(
                "{address}, {what}: {} full handshakes failed after others had succeeded ({why}).",
                facts.full_failures
            );
            self.add(Severity::Risk, Cause::HandshakesFail, Some(way), text);
        }
        if facts.later_failures > 0 {
            let text = format!(
                "{address}, {what}: {} returns failed after others had succeeded ({why}).",
                facts.later_failures
            );
            self.add(Severity::Risk, Cause::HandshakesFail, Some(way), text);
        }
        let is_breaking = is_breaking(at, tally);
        if tally.broken > 0 && !is_breaking {
            let text = format!(
                "{address}, {what}: {} of {} connections failed that offered a session ({why}).",
                tally.broken, tally.tried
            );
            self.add(Severity::Risk, Cause::HandshakesFail, Some(way), text);
        }
        if is_breaking {
            let text = format!(
                "{address}, {what}: {} of {} connections failed that offered a session ({why}). Those \
                 without one succeeded.",
                tally.broken, tally.tried
            );
            self.add(Severity::Broken, Cause::OfferBreaks, Some(way), text);
        } else if is_rare(facts) {
            let text = format!(
                "{address}, {what}: {} of {} returns resumed. That can be one machine among many, a full \
                 cache, or chance: try again with more --attempts.",
                tally.resumed,
                tally.answered()
            );
            self.add(Severity::Risk, Cause::SometimesLost, Some(way), text);
        } else if is_apart(facts) {
            let text = format!(
                "{address}, {what}: {} of {} returns resumed. {}",
                tally.resumed,
                tally.answered(),
                holders(facts)
            );
            self.add(severity, Cause::WorkersApart, Some(way), text);
        }
        if let Some(later) = facts.after_others.filter(|later| !later.resumed) {
            let text = format!(
                "{address}, {what}: a session was gone after {} others, and a new one resumed.",
                later.after
            );
            self.add(severity, Cause::CacheTooSmall, Some(way), text);
        } else if let Some(later) = facts.after_wait.filter(|later| !later.resumed) {
            let announced = match facts.lifetime_s {
                Some(lifetime_s) if lifetime_s > 0 => {
                    format!(" The lifetime announced is {lifetime_s} s.")
                }
                _ => String::new(),
            };
            let text = format!(
                "{address}, {what}: a session was gone after {} s, and a new one resumed.{announced}",
                later.after
            );
            self.add(severity, Cause::ForgottenEarly, Some(way), text);
        }
    }

    fn tls12(&mut self, at: &AddressFacts, ids: &WayFacts, tickets: &WayFacts) {
        let (address, any) = (at.address, [ids, tickets]);
        if any.iter().any(|facts| is_breaking(at, facts.at_once)) {
            return;
        }
        let naught = any.iter().all(|facts| facts.at_once.resumed == 0);
        let never = |facts: &WayFacts| facts.at_once.is_naught() && !is_apart(facts);
        let tried = tickets.at_once.answered().max(ids.at_once.answered());
        let version = "TLS 1.2";
        if naught {
            let (cause, way, text) = if never(tickets) {
                (
                    Cause::TicketsNeverOpen,
                    Way::Tickets,
                    format!("none of {tried} returns with a ticket resumed."),
                )
            } else if never(ids) && tickets.issued == Some(false) {
                (
                    Cause::IdsNeverFound,
                    Way::Ids,
                    format!(
                        "session ids are issued, none of {tried} was found again, and there are no tickets."
                    ),
                )
            } else if ids.issued == Some(false) && tickets.issued == Some(false) {
                (
                    Cause::NothingIssued,
                    Way::Ids,
                    "neither session ids nor tickets are issued.".to_owned(),
                )
            } else {
                return;
            };
            self.add(Severity::Loss, cause, Some(way), format!("{address}, {version}: {text}"));
        } else if tickets.at_once.resumed > 0 && (ids.issued == Some(false) || never(ids)) {
            let why = if ids.issued == Some(false) {
                "not issued"
            } else {
                "issued and never found again"
            };
            let text = format!(
                "{address}, {version}: session ids are {why}. Only clients that take no tickets miss them."
            );
            self.add(Severity::Note, Cause::NoIds, Some(Way::Ids), text);
        } else if tickets.issued == Some(true) && never(tickets) {
            let text = format!(
                "{address}, {version}: none of {} returns with a ticket resumed. Session ids resume, and who has a ticket \
                 has none.",
                tickets.at_once.answered()
            );
            self.add(Severity::Loss, Cause::TicketsNeverOpen, Some(Way::Tickets), text);
        } else if ids.at_once.resumed > 0 && (tickets.issued == Some(false) || never(tickets)) {
            let text = format!(
                "{address}, {version}: no ticket resumes, and programs in Go know nothing else."
            );
            self.add(Severity::Note, Cause::NoTicketsTls12, Some(Way::Tickets), text);
        }
    }

    fn tls13(&mut self, at: &AddressFacts, facts: &WayFacts) {
        let (address, way, tally) = (at.address, Some(Way::Tls13), facts.at_once);
        // Where workers differ, none of few returns may have come to its own.
        if facts.agrees_on_key == Some(false) && !is_apart(facts) {
            let text = format!(
                "{address}: only clients resume that forgo a new key (psk_ke). OpenSSL's and browsers do not."
            );
            self.add(Severity::Loss, Cause::NoKeyAgreement, way, text);
        } else if facts.issued == Some(false) {
            let text = format!("{address}: no ticket came, neither by itself nor with an answer.");
            self.add(Severity::Loss, Cause::NoTickets, way, text);
        } else if tally.is_naught() && !is_breaking(at, tally) && !is_apart(facts) {
            let kept = match (facts.is_kept_by_server(), facts.ticket_bytes) {
                (true, Some(bytes)) => format!(
                    " Those of {bytes} bytes only name sessions, which the server does not keep."
                ),
                _ => String::new(),
            };
            let text = format!(
                "{address}, TLS 1.3: none of {} returns with a ticket resumed.{kept}",
                tally.answered()
            );
            self.add(Severity::Loss, Cause::TicketsNeverOpen, way, text);
        } else if tally.resumed > 0 && facts.is_kept_by_server() {
            let bytes = facts.ticket_bytes.unwrap_or(0);
            let text = format!(
                "{address}: tickets of {bytes} bytes are too short for a session. What bounds the server's cache bounds TLS 1.3, too."
            );
            self.add(Severity::Note, Cause::KeptByServer, way, text);
        }
    }

    fn versions(&mut self) {
        let is = |way, spoken| {
            let mut all =
                self.facts.of_way(way).map(|(_, facts)| facts.spoken == Some(spoken)).peekable();
            all.peek().is_some() && all.all(|is_so| is_so)
        };
        if is(Way::Tls13, false) && is(Way::Tickets, true) {
            let text = "A full handshake takes two round trips, and who records can link returns by their ticket.";
            self.add(Severity::Note, Cause::OnlyTls12, Some(Way::Tickets), text.to_owned());
        } else if is(Way::Tickets, false) && is(Way::Tls13, true) {
            let text = "Clients that know no TLS 1.3 cannot connect, and there are no session ids.";
            self.add(Severity::Note, Cause::OnlyTls13, Some(Way::Tls13), text.to_owned());
        }
    }

    fn keys(&mut self) {
        let ways = self.facts.addresses.iter().flat_map(|at| &at.ways);
        let waited = ways.filter_map(|facts| match facts.key() {
            Key::Same(for_s) => Some(for_s),
            Key::Changed(_) | Key::Unknown => None,
        });
        let since =
            self.facts.same_key_since_s.map(|since_s| self.facts.at_s.saturating_sub(since_s));
        let longest = waited.chain(since).max().filter(|for_s| *for_s >= KEY_LIFE_S);
        if let Some(for_s) = longest {
            let text = format!(
                "Tickets are sealed with the same key for {} days at least. Who steals it reads the recorded connections of TLS 1.2 that used tickets.",
                for_s / 86_400
            );
            self.add(Severity::Risk, Cause::KeyNotRotated, None, text);
        }
    }

    /// Joins what has one cause and one weight.
    fn gathered(self) -> Vec<Finding> {
        let mut raw = self.raw;
        raw.sort_by_key(|raw| (raw.severity, raw.cause));
        let groups = raw.chunk_by(|a, b| (a.severity, a.cause) == (b.severity, b.cause));
        let finding = |group: &[Raw]| {
            let Raw { severity, cause, .. } = group[0];
            let ways = group.iter().filter_map(|raw| raw.way);
            let mut versions = rejoin_report::distinct(ways.map(Way::version));
            versions.sort_unstable();
            let is_lost = severity == Severity::Loss;
            // How many return before their session is gone, only the server knows; the versions that clients speak, too.
            let is_known = !matches!(
                cause,
                Cause::CacheTooSmall | Cause::ForgottenEarly | Cause::VersionsApart
            );
            let losses = versions.iter().filter(|_| is_lost).map(|version| {
                let loss = loss(self.facts, version);
                Loss { resuming_share: loss.resuming_share.filter(|_| is_known), ..loss }
            });
            Finding {
                severity,
                cause,
                title: cause.title(),
                losses: losses.collect(),
                versions,
                seen: rejoin_report::distinct(group.iter().map(|raw| raw.text.clone())),
                mends: mends(cause),
            }
        };
        groups.map(finding).collect()
    }
}

/// Returns the weight of a loss: none if clients of this version have another way, which is whole.
fn weight(at: &AddressFacts, way: Way) -> Severity {
    let is_other = |facts: &&WayFacts| facts.way != way && facts.way.version() == way.version();
    let other = at.ways.iter().find(is_other);
    let is_well = |facts: &WayFacts| {
        let stays = [facts.after_others, facts.after_wait];
        facts.at_once.is_whole() && stays.iter().flatten().all(|later| later.resumed)
    };
    match way {
        // Clients that take tickets do so where they are issued.
        Way::Ids if other.is_some_and(is_well) => Severity::Note,
        _ => Severity::Loss,
    }
}

/// Returns true if sessions break connections: most of those that offer one fail at this address, and no others.
fn is_breaking(at: &AddressFacts, tally: Tally) -> bool {
    tally.is_breaking() && at.ways.iter().all(|facts| facts.full_failures == 0)
}

/// Returns true if several have keys or caches of their own at one address.
fn is_apart(facts: &WayFacts) -> bool {
    let (tally, names) = (facts.at_once, facts.key_names.as_ref().map_or(0, Vec::len));
    tally.resumed < tally.answered() && (tally.resumed > 0 || names > 1)
}

/// Returns true if so few sessions are lost that two with keys or caches of their own are no explanation.
fn is_rare(facts: &WayFacts) -> bool {
    let names = facts.key_names.as_ref().map_or(0, Vec::len);
    let share = facts.at_once.share().filter(|share| *share > RARE_SHARE && *share < 1.0);
    names < 2 && share.is_some()
}

/// Says how many have keys or caches of their own.
fn holders(facts: &WayFacts) -> String {
    let what = if facts.is_kept_by_server() { "caches" } else { "keys" };
    let share = facts.at_once.share().filter(|share| *share > 0.0);
    let about = share.map(|share| (1.0 / share).round().max(2.0));
    let names = facts.key_names.as_ref().map(Vec::len).filter(|count| *count > 1);
    match (names, about) {
        (Some(count), _) => format!(
            "Tickets name {count} keys: at least {count} processes or machines have keys of their own."
        ),
        (None, Some(about)) => {
            format!("As if about {about} processes or machines had {what} of their own.")
        }
        (None, None) => String::new(),
    }
}

impl Cause {
    /// Returns the cause in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::NoHandshake => "no handshake succeeds",
            Self::OfferBreaks => "offering a session breaks the connection",
            Self::NothingIssued => "nothing to resume with is issued",
            Self::NoTickets => "no tickets are issued",
            Self::IdsNeverFound => "session ids are issued and never found again",
            Self::TicketsNeverOpen => "tickets are issued and never resume",
            Self::WorkersApart => "workers at one address have keys or caches of their own",
            Self::MachinesApart => "machines do not resume each other's sessions",
            Self::VersionsApart => "machines speak different versions",
            Self::NameApart => "one name resumes and another does not",
            Self::CacheTooSmall => "the cache is too small",
            Self::ForgottenEarly => "sessions are forgotten early",
            Self::SometimesLost => "a session is lost now and then",
            Self::HandshakesFail => "handshakes fail now and then",
            Self::VersionFails => "a version fails",
            Self::KeyNotRotated => "ticket keys are not rotated",
            Self::ReplayAnswered => "a copied first flight is answered again",
            Self::OnlyTls12 => "TLS 1.3 is not spoken",
            Self::OnlyTls13 => "TLS 1.2 is not spoken",
            Self::NoIds => "TLS 1.2 resumes by ticket only",
            Self::NoTicketsTls12 => "TLS 1.2 resumes by session id only",
            Self::KeptByServer => "the server keeps the sessions of TLS 1.3 itself",
            Self::NoKeyAgreement => "TLS 1.3 resumes only without a new key",
            Self::NamesShare => "sessions are shared between names",
            Self::Certificate => "the certificate does not verify",
            Self::ClientCertificate => "client certificates are asked for",
        }
    }
}

#[cfg(test)]
mod tests;
