//! The search for the primary, and the change to another one.
//!
//! Every server is asked for its role, or every sentinel for the primary's address, once a second, and at once when a command
//! shows that something has changed. Of several servers that say that they are the primary, none is chosen: the two would
//! remember different things. One that is in use stays in use as long as it is a primary, and only then; another one beside it is told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::asker::{Answer, Asker, Named, Node, Question, Role, Task, Told, lost};
use super::servers::{Login, NodeAddress, Place, Sentinels, Servers, Tls};
use super::{Connection, State, Trouble, Up};
use crate::Error;

/// The search, which lasts as long as the link.
pub(super) struct Search {
    login: Login,
    tls: Option<Tls>,
    state: watch::Sender<State>,
    majority: Arc<Majority>,
    /// Makes all tasks ask at once.
    poke: watch::Sender<()>,
    answers: mpsc::UnboundedSender<(u64, Answer)>,
    heard: mpsc::UnboundedReceiver<(u64, Answer)>,
    /// The number of the next task.
    next: u64,
    /// The servers that may be the primary: all, or the one that sentinels name.
    servers: Vec<Asked>,
    sentinels: Vec<Asked>,
    /// The promotion that the sentinels told last.
    epoch: u64,
    /// The time at which servers that have not answered are no longer waited for.
    patient_until: Option<Instant>,
    rival: Rival,
}

/// A server that says that it is the primary, while another one is in use.
#[derive(Default)]
struct Rival {
    since: Option<Instant>,
    is_told: bool,
    /// The place to which it is told.
    told: Arc<Mutex<Option<Error>>>,
}

/// A server or sentinel that a task asks.
struct Asked {
    number: u64,
    address: NodeAddress,
    /// The last answer, since it was in doubt.
    latest: Option<Answer>,
    _task: Task,
}

/// The knowledge of a majority that the primary in use is the primary.
///
/// A primary that is cut off goes on, while another one is promoted on the other side. Only one side has a majority: of the
/// sentinels, or of the servers whose data are of the same lineage.
#[derive(Debug, Default)]
pub(crate) struct Majority {
    /// The connection, since when a majority is for it, and when it last was.
    known: Mutex<Option<(u64, Instant, Instant)>>,
}

impl Search {
    /// The time for which servers are waited for that do not answer, when another one says that it is the primary.
    const PATIENCE: Duration = Duration::from_millis(300);

    pub(super) fn new(
        servers: Servers,
        state: watch::Sender<State>,
        majority: Arc<Majority>,
        rival: Arc<Mutex<Option<Error>>>,
    ) -> Self {
        let (answers, heard) = mpsc::unbounded_channel();
        let Servers { place, login, tls } = servers;
        let mut search = Self {
            login,
            tls,
            state,
            majority,
            poke: watch::Sender::new(()),
            answers,
            heard,
            next: 0,
            servers: Vec::new(),
            sentinels: Vec::new(),
            epoch: 0,
            patient_until: None,
            rival: Rival { told: rival, ..Rival::default() },
        };
        match place {
            Place::Primary(addresses) | Place::Cluster(addresses) => {
                let question = match addresses.len() {
                    1 => Question::RoleOfOnlyOne,
                    _ => Question::Role,
                };
                search.servers = addresses
                    .into_iter()
                    .map(|address| search.ask_server(address, question.clone()))
                    .collect();
            }
            Place::Sentinels(Sentinels { addresses, master, login, tls }) => {
                let ask = |address| {
                    let (login, tls) = (login.clone(), tls.clone());
                    let question = Question::Master(master.clone());
                    search.ask(Asker { address, login, tls, question })
                };
                search.sentinels = addresses.into_iter().map(ask).collect();
            }
        }
        search
    }

    fn ask_server(&mut self, address: NodeAddress, question: Question) -> Asked {
        let (login, tls) = (self.login.clone(), self.tls.clone());
        self.ask(Asker { address, login, tls, question })
    }

    fn ask(&mut self, asker: Asker) -> Asked {
        let (number, address) = (self.next, asker.address.clone());
        self.next += 1;
        let task = asker.start(number, self.poke.subscribe(), self.answers.clone());
        Asked { number, address, latest: None, _task: task }
    }

    /// Searches until nobody needs the link.
    pub(super) async fn run(mut self, mut troubles: mpsc::Receiver<Trouble>) {
        loop {
            let patient_until = self.patient_until;
            let patience = async {
                match patient_until {
                    Some(until) => sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((number, answer)) = self.heard.recv() => self.hear(number, answer),
                trouble = troubles.recv() => match trouble {
                    Some(trouble) => self.doubt(trouble),
                    None => return,
                },
                () = patience => {}
            }
            self.follow_sentinels();
            self.decide();
            self.count_majority();
        }
    }

    fn hear(&mut self, number: u64, answer: Answer) {
        let all = self.servers.iter_mut().chain(&mut self.sentinels);
        // A server that sentinels no longer name may still answer.
        for asked in all.filter(|asked| asked.number == number) {
            asked.latest = Some(answer.clone());
        }
    }

    /// Stops using a connection that failed, until its server answers again.
    fn doubt(&mut self, Trouble { serial, error }: Trouble) {
        if self.current() != Some(serial) {
            return;
        }
        self.state.send_replace(State::Down(error));
        for server in &mut self.servers {
            if server.node().is_some_and(|node| node.serial == serial) {
                server.latest = None;
            }
        }
        self.poke.send_replace(());
    }

    /// Turns to the server that the sentinels name: the one of the latest promotion. The sentinel that
    /// makes it counts it already while it still names the server before. Where only sentinels answer that
    /// have not heard of the promotion, the server stays the same. Sentinels that were set up anew count
    /// promotions anew: then a majority decides.
    fn follow_sentinels(&mut self) {
        let all_named = || self.sentinels.iter().filter_map(Asked::named);
        let latest = all_named().max_by_key(|named| (named.epoch, !named.is_down));
        let Some(named) = latest else { return };
        let is_outdated = named.epoch < self.epoch || named.is_down && !self.servers.is_empty();
        let for_it = all_named().filter(|other| other.address == named.address).count();
        if is_outdated && 2 * for_it <= self.sentinels.len() {
            return;
        }
        let Named { address, epoch, .. } = named.clone();
        self.epoch = epoch;
        if self.servers.first().is_none_or(|server| server.address != address) {
            self.servers = vec![self.ask_server(address, Question::Role)];
        }
    }

    fn current(&self) -> Option<u64> {
        self.state.borrow().up().map(|up| up.serial)
    }

    fn decide(&mut self) {
        let current = self.current();
        let is_alone = self.servers.len() == 1;
        let primaries: Vec<(&Asked, &Node)> = self
            .servers
            .iter()
            .filter_map(|server| Some((server, server.primary(is_alone)?)))
            .collect();
        let is_complete = self.servers.iter().all(|server| server.latest.is_some())
            || self.patient_until.is_some_and(|until| until <= Instant::now());
        let is_current = |(_, node): &&(&Asked, &Node)| current == Some(node.serial);
        if let Some((used, _)) = primaries.iter().find(is_current) {
            let rival = primaries.iter().find(|of| !is_current(of)).map(|(other, _)| {
                let (used, other) = (used.address.clone(), other.address.clone());
                Error::TwoPrimaries { used, other }
            });
            let all_answer = self.servers.iter().all(|server| server.told().is_some());
            self.rival.note(rival, all_answer, Instant::now());
            self.patient_until = None;
            return;
        }
        let next = match &primaries[..] {
            [] => self.nobody().map(State::Down),
            _ if !is_complete => {
                self.patient_until.get_or_insert_with(|| Instant::now() + Self::PATIENCE);
                return;
            }
            [(server, node)] => Some(State::Up(Up {
                serial: node.serial,
                connection: Connection::One(node.connection.clone()),
                name: server.address.to_string().into(),
            })),
            [(one, _), (other, _), ..] => Some(State::Down(lost(format!(
                "{} and {} both say that they are the primary: make one a replica of the other (REPLICAOF)",
                one.address, other.address
            )))),
        };
        self.patient_until = None;
        if let Some(next) = next {
            self.state.send_replace(next);
        }
    }

    /// Returns the reason why there is no primary; `None` if that is not known yet.
    fn nobody(&self) -> Option<RedisError> {
        // A sentinel that has not answered yet may know of a later promotion.
        if self.sentinels.iter().any(|sentinel| sentinel.latest.is_none()) {
            return None;
        }
        let asked = if self.servers.is_empty() { &self.sentinels } else { &self.servers };
        let reasons: Option<Vec<String>> = asked
            .iter()
            .map(|asked| asked.latest.as_ref().map(|latest| asked.reason(latest)))
            .collect();
        let reasons = reasons?;
        Some(lost(match (&reasons[..], self.sentinels.is_empty()) {
            ([reason], _) => reason.clone(),
            (_, true) => format!("no server is the primary: {}", reasons.join("; ")),
            (_, false) => format!("no sentinel knows the primary: {}", reasons.join("; ")),
        }))
    }

    fn count_majority(&self) {
        let current = self.current();
        let of = |server: &&Asked| server.node().is_some_and(|node| current == Some(node.serial));
        let Some((server, node)) =
            self.servers.iter().find(of).and_then(|server| Some((server, server.node()?)))
        else {
            return;
        };
        let (are_for_it, of_all) = match self.sentinels.is_empty() {
            true => {
                let lineage = |asked: &&Asked| {
                    asked
                        .node()
                        .is_some_and(|of| of.lineage.is_some() && of.lineage == node.lineage)
                };
                (self.servers.iter().filter(lineage).count(), self.servers.len())
            }
            false => {
                let named = || self.sentinels.iter().filter_map(Asked::named);
                let names_it = |named: &&Named| named.address == server.address && !named.is_down;
                let known = named().map(|named| named.sentinels).max().unwrap_or_default();
                (named().filter(names_it).count(), known.max(self.sentinels.len()))
            }
        };
        if 2 * are_for_it > of_all {
            self.majority.note(node.serial, Instant::now());
        }
    }
}

impl Rival {
    /// The time for which there may be two while the primary is changed by hand.
    const TOLD_AFTER: Duration = Duration::from_secs(2);

    /// Notes another primary, or that there is none. It is over once all servers answer and none of them is one.
    fn note(&mut self, rival: Option<Error>, all_answer: bool, now: Instant) {
        let Some(error) = rival else {
            self.since = None;
            self.is_told &= !all_answer;
            return;
        };
        let since = *self.since.get_or_insert(now);
        if !self.is_told && now >= since + Self::TOLD_AFTER {
            self.is_told = true;
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

impl Asked {
    fn told(&self) -> Option<&Told> {
        self.latest.as_ref()?.as_ref().ok()
    }

    fn node(&self) -> Option<&Node> {
        match self.told()? {
            Told::Node(node) => Some(node),
            Told::Master(_) => None,
        }
    }

    fn named(&self) -> Option<&Named> {
        match self.told()? {
            Told::Master(named) => Some(named),
            Told::Node(_) => None,
        }
    }

    /// Returns the server if it is a primary. One that does not say counts as one if it is alone.
    fn primary(&self, is_alone: bool) -> Option<&Node> {
        let is_primary = |node: &&Node| match node.role {
            Role::Primary => true,
            Role::Unknown => is_alone,
            _ => false,
        };
        self.node().filter(is_primary)
    }

    /// Returns the reason why this server is not used.
    fn reason(&self, latest: &Answer) -> String {
        let address = &self.address;
        match latest {
            Err(error) => error.to_string(),
            Ok(Told::Master(named)) => format!("sentinel {address} names {}", named.address),
            Ok(Told::Node(node)) => match &node.role {
                Role::Primary => format!("{address} is the primary"),
                Role::Replica { of } => format!(
                    "{address} is a replica of {of}; unless it is being promoted, name the primary, all servers, or \
                     the sentinels"
                ),
                Role::Loading => format!("{address} is still reading its data"),
                Role::Sentinel => {
                    format!("{address} is a sentinel: name it in sentinel.servers")
                }
                Role::Unknown => format!(
                    "{address} does not tell its role: give the user +info, as docs/cluster.md says"
                ),
            },
        }
    }
}

impl Majority {
    /// The time for which a majority's word counts: a majority is asked every second.
    const COUNTS_FOR: Duration = Duration::from_secs(4);

    /// Notes that a majority is for the primary of this connection.
    pub(crate) fn note(&self, serial: u64, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match *known {
            Some((of, since, last)) if of == serial && now <= last + Self::COUNTS_FOR => since,
            _ => now,
        };
        *known = Some((serial, since, now));
    }

    /// Returns true if a majority is for the primary of this connection, and every majority for an earlier one is over:
    /// at no time is that so of two primaries.
    pub(super) fn is_for(&self, serial: u64) -> bool {
        self.is_for_at(serial, Instant::now())
    }

    pub(crate) fn is_for_at(&self, serial: u64, now: Instant) -> bool {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_some_and(|(of, since, last)| {
            of == serial && now <= last + Self::COUNTS_FOR && now >= since + Self::COUNTS_FOR
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_counts_once_every_other_one_is_over_and_no_longer_than_it_is_asked() {
        let (majority, begin) = (Majority::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!majority.is_for_at(1, begin));
        for seconds in 0..=5 {
            assert_eq!(majority.is_for_at(1, after(seconds)), seconds >= 4);
            majority.note(1, after(seconds));
        }
        assert!(majority.is_for_at(1, after(9)) && !majority.is_for_at(1, after(10)));
        assert!(!majority.is_for_at(2, after(6)), "of another primary");
        // After a gap, it begins anew.
        majority.note(1, after(20));
        assert!(!majority.is_for_at(1, after(20)) && majority.is_for_at(1, after(24)));
        majority.note(2, after(24));
        assert!(!majority.is_for_at(1, after(24)) && !majority.is_for_at(2, after(24)));
    }
}
