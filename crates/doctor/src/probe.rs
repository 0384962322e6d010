//! The examination: which connections are made, and in which order.
//!
//! Everything happens one connection after the other. What a failure, an interruption or the bound of connections leaves
//! open stays unknown.

mod names;
mod replays;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use openssl::ssl::SslContext;
use openssl::x509::X509VerifyResult;

use crate::connection::{Cost, Failure, Made, Tickets, Wanted};
use crate::facts::{
    AddressFacts, Certificate, Crossing, Facts, Later, NotTried, Tally, Way, WayFacts, key_names,
};
use crate::heard::{Heard, Mode, Token, context};
use crate::settings::{Host, Settings};
use crate::{Error, Watch};

/// Returns to another address, or under another name, until one resumes.
const TRIES: u32 = 3;
/// The other addresses that sessions of one address are offered to.
const CROSSED: usize = 3;
/// Returns in a row that do not resume, after which a newer session is offered.
///
/// A balancer that takes turns sends a new session always to the next machine, and it would never resume. The same one
/// comes back to its own among so many machines.
const MISSES: u32 = 8;
/// Returns of one session before a version counts as one over which nothing resumes: so many machines may take turns.
const TURNS: u32 = 24;
/// Connections without a ticket after which none is waited for.
const TICKETLESS: u32 = 2;
/// The alert of servers that know nothing of TLS 1.3: they find no suite of theirs.
const HANDSHAKE_FAILURE: Failure = Failure::Alert(40);
const STEP: Duration = Duration::from_millis(50);

/// Examines a server.
///
/// # Errors
///
/// A name without addresses, a TLS library without memory, and a server that no handshake succeeds with.
pub fn examine(settings: &Settings, watch: Watch<'_>) -> Result<Facts, Error> {
    let (addresses, addresses_left_out) = settings.resolve()?;
    let mut probe = Probe::new(settings, watch)?;
    let mut places: Vec<Place> =
        addresses.into_iter().map(|address| probe.first_round(address)).collect();
    let (crossings, crossings_not_tried) = probe.crossings(&places);
    let names = probe.names(&places);
    if settings.replay {
        probe.replays(&mut places);
    }
    probe.later(&mut places);
    let addresses: Vec<AddressFacts> = places.into_iter().map(Place::into_facts).collect();
    let interrupted = watch.stop.load(Ordering::Relaxed);
    let all_failed = addresses.iter().map(|at| at.failure.clone()).collect::<Option<Vec<_>>>();
    if let (Some(failures), false) = (all_failed, interrupted) {
        let reasons = failures.iter().map(ToString::to_string);
        let reasons = rejoin_report::distinct(reasons).join("; ");
        return Err(Error::NoHandshake(settings.target.to_string(), reasons));
    }
    Ok(Facts {
        target: settings.target.clone(),
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        addresses,
        addresses_left_out,
        crossings,
        crossings_not_tried,
        names,
        connections: probe.spent.values().sum(),
        bound_reached: probe.bound_reached,
        interrupted,
        same_key_since_s: None,
        other_key_since_s: None,
    })
}

/// An address while it is examined.
struct Place {
    address: SocketAddr,
    facts: AddressFacts,
    studies: Vec<Study>,
}

impl Place {
    fn into_facts(self) -> AddressFacts {
        let ways = self.studies.into_iter().map(Study::into_facts).collect();
        AddressFacts { ways, ..self.facts }
    }

    fn study(&self, way: Way) -> Option<&WayFacts> {
        self.studies.iter().map(|study| &study.facts).find(|facts| facts.way == way)
    }
}

/// A way of resuming at an address while it is examined.
struct Study {
    facts: WayFacts,
    /// The tickets of each connection of a phase.
    tickets: Vec<Vec<Vec<u8>>>,
    full: Vec<Cost>,
    resumed: Vec<Cost>,
    /// A session that was never offered, and its time.
    kept: Option<(Token, Instant)>,
}

impl Study {
    fn new(way: Way) -> Self {
        Self {
            facts: WayFacts::new(way),
            tickets: Vec::new(),
            full: Vec::new(),
            resumed: Vec::new(),
            kept: None,
        }
    }

    fn into_facts(mut self) -> WayFacts {
        self.facts.full = median(&self.full);
        self.facts.resumed = median(&self.resumed);
        self.facts
    }

    /// Notes what a connection showed, and returns the session that it brought.
    fn note(&mut self, made: Made) -> Option<Token> {
        let (facts, heard) = (&mut self.facts, &made.heard);
        facts.spoken = Some(true);
        if !made.is_resumed {
            self.full.push(made.cost);
            facts.issued = Some(facts.issued == Some(true) || brings_session(facts.way, heard));
            if facts.way != Way::Ids {
                let count = facts.tickets_per_connection.unwrap_or(0).max(heard.tickets.len());
                facts.tickets_per_connection = Some(count);
            }
        } else {
            self.resumed.push(made.cost);
        }
        if let Some(first) = heard.tickets.first() {
            facts.ticket_bytes = Some(first.ticket.len());
            facts.lifetime_s = Some(first.lifetime_s);
            if facts.way == Way::Tls13 {
                facts.early_data_bytes = Some(first.early_data_bytes.unwrap_or(0));
            }
            self.tickets.push(heard.tickets.iter().map(|ticket| ticket.ticket.clone()).collect());
        }
        session(facts.way, made)
    }
}

/// True if a full handshake brought something to return with in this way.
fn brings_session(way: Way, heard: &Heard) -> bool {
    match way {
        Way::Ids => heard.session_id_bytes > 0,
        // Over TLS 1.2, a server without tickets gives an id to who would take tickets.
        Way::Tickets | Way::Tls13 => !heard.tickets.is_empty(),
    }
}

/// The session that a connection brought for this way.
fn session(way: Way, made: Made) -> Option<Token> {
    made.token.filter(|_| brings_session(way, &made.heard))
}

/// The median of each figure by itself.
fn median(costs: &[Cost]) -> Option<Cost> {
    let of = |figure: fn(&Cost) -> f64| rejoin_report::median(costs.iter().map(figure).collect());
    (!costs.is_empty()).then(|| Cost {
        bytes: of(|cost| cost.bytes as f64).round() as u64,
        round_trips: of(|cost| f64::from(cost.round_trips)).round() as u32,
        ms: of(|cost| cost.ms),
    })
}

/// The outcome of a session that was offered.
enum Offered {
    Resumed(Option<Token>),
    Full(Option<Token>),
    Broken,
    /// The run ended.
    Unknown,
}

struct Probe<'a> {
    settings: &'a Settings,
    watch: Watch<'a>,
    contexts: HashMap<Mode, SslContext>,
    /// Connections to each address.
    spent: HashMap<SocketAddr, u32>,
    /// True if a connection was not made for their number.
    bound_reached: bool,
    /// How the tickets of TLS 1.3 come at each address, and the connections in a row without.
    tickets: HashMap<SocketAddr, (Tickets, u32)>,
}

impl<'a> Probe<'a> {
    fn new(settings: &'a Settings, watch: Watch<'a>) -> Result<Self, Error> {
        let modes = [Mode::Ids, Mode::Tickets, Mode::Tls13, Mode::Tls13Weak];
        let made = modes.into_iter().map(|mode| Ok((mode, context(mode)?)));
        let contexts = made.collect::<Result<_, openssl::error::ErrorStack>>();
        let contexts = contexts.map_err(|error| Error::Library(error.to_string()))?;
        let (spent, tickets) = (HashMap::new(), HashMap::new());
        Ok(Self { settings, watch, contexts, spent, bound_reached: false, tickets })
    }

    /// Counts a connection that is about to be made.
    fn spend(&mut self, address: SocketAddr) -> Result<(), Failure> {
        if self.watch.stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        let spent = self.spent.entry(address).or_default();
        if *spent >= self.settings.connections {
            self.bound_reached = true;
            return Err(Failure::Spent);
        }
        *spent += 1;
        (self.watch.told)(address, *spent);
        Ok(())
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        mode: Mode,
        name: Option<&Host>,
        token: Option<&Token>,
    ) -> Result<Made, Failure> {
        self.spend(address)?;
        let is_tls13 = matches!(mode, Mode::Tls13 | Mode::Tls13Weak);
        let (way, without) = *self.tickets.entry(address).or_insert((Tickets::Wait, 0));
        let hopeless = without >= TICKETLESS;
        let wanted = Wanted {
            address,
            context: &self.contexts[&mode],
            name,
            token,
            deadline: self.settings.deadline,
            stop: self.watch.stop,
            tickets: if is_tls13 && !hopeless { way } else { Tickets::None },
        };
        let made = wanted.make()?;
        if is_tls13 && !hopeless && !made.is_resumed {
            let without = if made.heard.tickets.is_empty() { without + 1 } else { 0 };
            let way = if made.had_to_ask { Tickets::Ask } else { way };
            self.tickets.insert(address, (way, without));
        }
        Ok(made)
    }

    fn host(&self) -> Option<&'a Host> {
        Some(&self.settings.target.host)
    }

    fn full(&mut self, address: SocketAddr, study: &mut Study) -> Option<Token> {
        match self.connect(address, mode(study.facts.way), self.host(), None) {
            Ok(made) => study.note(made),
            Err(failure) => {
                if study.facts.spoken == Some(true) && !failure.is_end() {
                    study.facts.full_failures += 1;
                }
                study.facts.failure.get_or_insert(failure);
                None
            }
        }
    }

    fn offer(&mut self, address: SocketAddr, study: &mut Study, token: &Token) -> Offered {
        match self.connect(address, mode(study.facts.way), self.host(), Some(token)) {
            Ok(made) if made.is_resumed => Offered::Resumed(study.note(made)),
            Ok(made) => Offered::Full(study.note(made)),
            Err(failure) if failure.is_end() => Offered::Unknown,
            Err(failure) => {
                study.facts.failure.get_or_insert(failure);
                Offered::Broken
            }
        }
    }

    /// True if a session resumes. A connection that fails tells nothing, and is counted.
    fn returns(&mut self, address: SocketAddr, study: &mut Study, token: &Token) -> Option<bool> {
        match self.offer(address, study, token) {
            Offered::Resumed(_) => Some(true),
            Offered::Full(_) => Some(false),
            Offered::Broken => {
                study.facts.later_failures += 1;
                None
            }
            Offered::Unknown => None,
        }
    }

    /// True if a session resumes that was made earlier. A server that resumes none any more does not count.
    fn later_return(
        &mut self,
        address: SocketAddr,
        study: &mut Study,
        token: &Token,
    ) -> Option<bool> {
        if self.returns(address, study, token)? {
            return Some(true);
        }
        let new = self.full(address, study)?;
        self.returns(address, study, &new)?.then_some(false)
    }

    fn first_round(&mut self, address: SocketAddr) -> Place {
        let mut facts = AddressFacts {
            address,
            failure: None,
            certificate: None,
            asks_client_certificate: None,
            ways: Vec::new(),
            replay: None,
        };
        let mut failures = Vec::new();
        let mut studies = Vec::new();
        for way in Way::ALL {
            let mut study = Study::new(way);
            // Both ways of TLS 1.2 fail alike.
            let known =
                studies.iter().find(|known: &&Study| known.facts.way.version() == way.version());
            match known
                .and_then(|known| known.facts.failure.clone().filter(|_| known.full.is_empty()))
            {
                Some(failure) => {
                    study.facts.spoken = (failure == Failure::Version).then_some(false);
                    study.facts.failure = Some(failure);
                }
                None => match self.connect(address, mode(way), self.host(), None) {
                    Ok(made) => {
                        facts.certificate.get_or_insert_with(|| certificate(made.verified));
                        facts.asks_client_certificate = Some(made.heard.asks_certificate);
                        let began = Instant::now();
                        study.kept = study.note(made).map(|token| (token, began));
                        self.study(address, &mut study);
                    }
                    Err(failure) => {
                        let is_tls12 = studies.iter().any(|known: &Study| !known.full.is_empty());
                        let is_old = failure == HANDSHAKE_FAILURE && is_tls12;
                        let is_unspoken = failure == Failure::Version || is_old;
                        study.facts.spoken = is_unspoken.then_some(false);
                        failures.push(failure.clone());
                        study.facts.failure = Some(failure);
                    }
                },
            }
            studies.push(study);
        }
        for version in ["1.2", "1.3"] {
            let mut of_version: Vec<&mut Study> =
                studies.iter_mut().filter(|study| study.facts.way.version() == version).collect();
            if !of_version.iter().any(|study| study.facts.is_taken()) {
                of_version.iter_mut().for_each(|study| self.turns(address, study));
            }
        }
        let is_mute = studies.iter().all(|study| study.full.is_empty());
        facts.failure = telling(&failures).cloned().filter(|_| is_mute);
        Place { address, facts, studies }
    }

    /// Examines a way of resuming whose first handshake has succeeded.
    fn study(&mut self, address: SocketAddr, study: &mut Study) {
        let early = self.full(address, study);
        self.at_once(address, study);
        let is_tls13 = study.facts.way == Way::Tls13;
        if is_tls13 && study.facts.at_once.resumed > 0 {
            // The client offers no resumption without key agreement.
            study.facts.agrees_on_key = Some(true);
        } else if is_tls13 && study.facts.at_once.is_naught() && self.resumes_weakly(address) {
            study.facts.agrees_on_key = Some(false);
        }
        if study.facts.at_once.is_whole() {
            if is_tls13 {
                self.again(address, study);
            }
            if let Some(early) = early.filter(|_| study.facts.is_kept_by_server()) {
                self.after_others(address, study, &early);
            }
        }
        study.facts.key_names = key_names(&std::mem::take(&mut study.tickets));
    }

    fn at_once(&mut self, address: SocketAddr, study: &mut Study) {
        let mut token = self.first(address, study);
        // The misses of the session in hand, those that tell nothing new of a session that is lost, and whether one came back.
        let (mut missed, mut idle, mut comes_back) = (0_u32, 0, false);
        for _ in 0..self.settings.attempts {
            let Some(offered) = token else { break };
            let outcome = self.offer(address, study, &offered);
            let tally = &mut study.facts.at_once;
            tally.tried += u32::from(!matches!(outcome, Offered::Unknown));
            let before = missed;
            missed = if matches!(outcome, Offered::Full(_)) { before + 1 } else { 0 };
            idle += u32::from(missed > 1);
            token = match outcome {
                Offered::Resumed(new) => {
                    comes_back |= before > 0;
                    tally.resumed += 1;
                    match (new, study.facts.way) {
                        (Some(new), _) => Some(new),
                        // A ticket of TLS 1.3 may be good for once.
                        (None, Way::Tls13) => self.full(address, study),
                        (None, _) => Some(offered),
                    }
                }
                Offered::Full(Some(new)) if missed == MISSES => {
                    missed = 0;
                    Some(new)
                }
                // Who did not take it has not used it up.
                Offered::Full(_) => Some(offered),
                Offered::Broken => {
                    tally.broken += 1;
                    self.full(address, study)
                }
                Offered::Unknown => break,
            };
        }
        let tally = &mut study.facts.at_once;
        if tally.resumed > 0 && idle > 0 && !comes_back {
            tally.tried -= idle;
            self.new_ones(address, study);
        }
    }

    /// Makes a session to return with. The machine that answers may give none, where another one does.
    fn first(&mut self, address: SocketAddr, study: &mut Study) -> Option<Token> {
        let mut tries = 0..TRIES;
        tries.find_map(|at| {
            let is_given = at == 0 || study.facts.issued == Some(true);
            is_given.then(|| self.full(address, study)).flatten()
        })
    }

    /// Returns at once with new sessions, each of which is offered once. A session that never came back was lost, or is
    /// another machine's: then new ones do not resume either.
    fn new_ones(&mut self, address: SocketAddr, study: &mut Study) {
        for _ in 0..MISSES {
            let Some(token) = self.full(address, study) else { return };
            let outcome = self.offer(address, study, &token);
            let tally = &mut study.facts.at_once;
            tally.tried += u32::from(!matches!(outcome, Offered::Unknown));
            tally.resumed += u32::from(matches!(outcome, Offered::Resumed(_)));
            tally.broken += u32::from(matches!(outcome, Offered::Broken));
        }
    }

    /// Offers one session until it has come to each of many machines, where none has resumed so far.
    fn turns(&mut self, address: SocketAddr, study: &mut Study) {
        let tally = study.facts.at_once;
        if !tally.is_naught() || tally.is_breaking() {
            return;
        }
        let Some(token) = self.full(address, study) else { return };
        for tried in 1..=TURNS {
            match self.returns(address, study, &token) {
                Some(true) => {
                    study.facts.at_once =
                        Tally { tried: tried + tally.broken, resumed: 1, ..tally };
                    let is_tls13 = study.facts.way == Way::Tls13;
                    study.facts.agrees_on_key = is_tls13.then_some(true);
                    return;
                }
                Some(false) => {}
                None => return,
            }
        }
    }

    fn again(&mut self, address: SocketAddr, study: &mut Study) {
        let Some(token) = self.full(address, study) else { return };
        if self.returns(address, study, &token) == Some(true) {
            study.facts.reusable = self.later_return(address, study, &token);
        }
    }

    fn resumes_weakly(&mut self, address: SocketAddr) -> bool {
        let host = self.host();
        let made = self.connect(address, Mode::Tls13Weak, host, None).ok();
        let Some(token) = made.and_then(|made| session(Way::Tls13, made)) else {
            return false;
        };
        let made = self.connect(address, Mode::Tls13Weak, host, Some(&token));
        made.is_ok_and(|made| made.is_resumed)
    }

    fn after_others(&mut self, address: SocketAddr, study: &mut Study, early: &Token) {
        let before = study.full.len();
        for _ in 0..self.settings.others {
            self.full(address, study);
        }
        let after = (study.full.len() - before) as u64;
        let resumed = self.later_return(address, study, early);
        study.facts.after_others = resumed.map(|resumed| Later { after, resumed });
    }

    /// Offers each address's sessions to the next ones. Returns those that were tried, and the others.
    fn crossings(&mut self, places: &[Place]) -> (Vec<Crossing>, Vec<NotTried>) {
        let (mut crossings, mut not_tried) = (Vec::new(), Vec::new());
        for (at, from) in places.iter().enumerate() {
            let next =
                (1..places.len()).take(CROSSED).map(|step| &places[(at + step) % places.len()]);
            for (to, way) in next.flat_map(|to| Way::ALL.map(|way| (to, way))) {
                // A session that no address takes again tells nothing about another.
                let is_taken = |place: &Place| place.study(way).is_some_and(WayFacts::is_taken);
                if is_taken(from) && is_taken(to) {
                    let (from, to) = (from.address, to.address);
                    let tally = self.crossing(from, to, way);
                    match tally.tried {
                        0 => not_tried.push(NotTried { from, to, way }),
                        _ => crossings.push(Crossing { from, to, way, tally }),
                    }
                }
            }
        }
        (crossings, not_tried)
    }

    fn crossing(&mut self, from: SocketAddr, to: SocketAddr, way: Way) -> Tally {
        let mut tally = Tally::default();
        let mut scratch = Study::new(way);
        while tally.tried < TRIES && tally.resumed == 0 {
            let token = self.full(from, &mut scratch);
            match token.map(|token| self.offer(to, &mut scratch, &token)) {
                Some(Offered::Resumed(_)) => tally.resumed += 1,
                Some(Offered::Full(_)) => {}
                Some(Offered::Broken) => tally.broken += 1,
                Some(Offered::Unknown) | None => break,
            }
            tally.tried += 1;
        }
        tally
    }

    /// Waits, and lets sessions return that were kept from the beginning.
    fn later(&mut self, places: &mut [Place]) {
        let studies = places.iter().flat_map(|place| &place.studies);
        let Some(last) = studies.filter_map(|study| study.kept.as_ref()).map(|(_, at)| *at).max()
        else {
            return;
        };
        if self.settings.wait.is_zero() {
            return;
        }
        while last.elapsed() < self.settings.wait && !self.watch.stop.load(Ordering::Relaxed) {
            thread::sleep(STEP);
        }
        for Place { address, studies, .. } in places {
            for study in studies {
                let Some((token, at)) = study.kept.take() else { continue };
                let after = at.elapsed().as_secs();
                let lifetime_s = study.facts.lifetime_s.filter(|lifetime_s| *lifetime_s > 0);
                let is_over = lifetime_s.is_some_and(|lifetime_s| u64::from(lifetime_s) <= after);
                if study.facts.at_once.is_whole() && !is_over {
                    self.full(*address, study);
                    self.full(*address, study);
                    let resumed = self.later_return(*address, study, &token);
                    study.facts.after_wait = resumed.map(|resumed| Later { after, resumed });
                    study.facts.key_names_later = key_names(&std::mem::take(&mut study.tickets));
                }
            }
        }
    }
}

const fn mode(way: Way) -> Mode {
    match way {
        Way::Ids => Mode::Ids,
        Way::Tickets => Mode::Tickets,
        Way::Tls13 => Mode::Tls13,
    }
}

/// Returns the failure of the newest version that the server speaks, or else the first.
fn telling(failures: &[Failure]) -> Option<&Failure> {
    let first = failures.first().filter(|failure| !failure.is_end())?;
    let is_spoken = |failure: &&Failure| !failure.is_end() && **failure != Failure::Version;
    Some(failures.iter().rev().find(is_spoken).unwrap_or(first))
}

fn certificate(result: X509VerifyResult) -> Certificate {
    let verifies = result == X509VerifyResult::OK;
    Certificate { verifies, reason: (!verifies).then(|| result.error_string().to_owned()) }
}
