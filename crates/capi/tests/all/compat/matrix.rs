//! A client that returns to one server after the other, and the answer to the question whether its session was known.

use rejoin_testkit::port::reserve;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rejoin_store::Store;

use super::means::Means;
use super::servers::Server;
use rejoin_testkit::process::{DEADLINE, wait_until};
use rejoin_testkit::site::{Client, Site, Versions};

/// The setting of stateless tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tickets {
    Off,
    /// The server issues none, and Rejoin's setting keeps its sessions, whether it has a cache or not.
    Kept,
    On,
    /// The server issues them, and Rejoin's setting forbids it.
    Forbidden,
}

impl Tickets {
    /// Returns true if the server is configured to issue them.
    fn are_on(self) -> bool {
        matches!(self, Self::On | Self::Forbidden)
    }

    fn is_stateful(self) -> bool {
        matches!(self, Self::Kept | Self::Forbidden)
    }
}

impl fmt::Display for Tickets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Off => "off",
            Self::Kept => "off, `stateful = yes`",
            Self::On => "on",
            Self::Forbidden => "`stateful = yes`",
        })
    }
}

/// Resumption in another process, after a reload, and after a restart. `None`: the server has no such thing.
pub(crate) type Known = [Option<bool>; 3];

/// Measures a server with clients of TLS 1.2 and TLS 1.3. `None`: the server is not installed.
pub(crate) fn measured(server: &Server, tickets: Tickets, means: Means) -> Option<[Known; 2]> {
    let mut running = Running::start(server, tickets, means)?;
    let mut clients =
        [Versions::Tls12, Versions::Tls13].map(|versions| running.site.client(versions));
    let process = clients.each_mut().map(|client| running.in_another_process(client));
    let reload = running.after_a_reload(&mut clients);
    let restart = running.after_a_restart(&mut clients);
    running.look_into_the_cache();
    Some([0, 1].map(|at| [Some(process[at]), reload.map(|known| known[at]), Some(restart[at])]))
}

/// Measures whether sessions made by one server resume at the other, for TLS 1.2 and 1.3.
pub(crate) fn from_one_to_the_other(
    [one, other]: [&Server; 2],
    tickets: Tickets,
    means: Means,
) -> Option<[bool; 2]> {
    let mut running = Running::start(one, tickets, means)?;
    let mut clients =
        [Versions::Tls12, Versions::Tls13].map(|versions| running.site.client(versions));
    for client in &mut clients {
        assert!(!client.connect(), "nobody knows it yet");
    }
    running.server = other;
    let other = running.beside();
    Some(clients.each_mut().map(|client| {
        client.address = other;
        client.connect()
    }))
}

/// Measures a program that Rejoin cannot reach. Returns the number of its sessions in the cache, too.
pub(crate) fn of_one_process(server: &Server, means: Means) -> Option<([Known; 2], u64)> {
    let mut running = Running::start(server, Tickets::On, means)?;
    let mut clients =
        [Versions::Tls12, Versions::Tls13].map(|versions| running.site.client(versions));
    let again = clients.each_mut().map(|client| {
        client.connect();
        client.connect()
    });
    let restart = running.after_a_restart(&mut clients);
    let store = Store::open(&means.folder(&running.site), &running.site.cache(), None);
    let stored = store.map_or(0, |store| store.cache().counters().stored);
    Some(([0, 1].map(|at| [Some(again[at]), None, Some(restart[at])]), stored))
}

struct Running<'a> {
    server: &'a Server,
    site: Site,
    tickets: Tickets,
    means: Means,
}

impl<'a> Running<'a> {
    fn start(server: &'a Server, tickets: Tickets, means: Means) -> Option<Self> {
        let name = format!("compat-{}-{tickets:?}-{means:?}", server.label());
        let mut site = Site::new(&name);
        means.bring(&mut site, tickets.is_stateful());
        server.build(&site.folder)?;
        let mut running = Self { server, site, tickets, means };
        running.listen().map(|()| running)
    }

    /// Starts another server of the same site at a port of its own.
    fn beside(&mut self) -> SocketAddr {
        let port = self.site.port;
        self.site.port = reserve();
        self.listen().expect("it is installed");
        let address = self.site.address();
        self.site.port = port;
        address
    }

    fn listen(&mut self) -> Option<()> {
        let tickets = self.tickets.are_on();
        let (file, text) = self.server.configuration;
        self.site.write(&self.site.filled(file), &self.server.filled(text, tickets));
        let arguments: Vec<_> = self
            .server
            .arguments
            .iter()
            .map(|argument| self.site.filled(&self.server.filled(argument, tickets)))
            .collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.site.start(&self.site.filled(self.server.program), &arguments)
    }

    fn in_another_process(&mut self, client: &mut Client) -> bool {
        if self.server.has_workers {
            self.in_another_worker(client)
        } else {
            self.in_another_server(client)
        }
    }

    /// Returns true if the session resumed each time that another worker answered. On a busy machine one worker may answer
    /// long before another one has started.
    fn in_another_worker(&self, client: &mut Client) -> bool {
        const CONNECTIONS_AT_MOST: usize = 100;
        const CHANGES: usize = 4;
        let (mut known, end) = (Vec::new(), Instant::now() + DEADLINE);
        client.connect();
        let mut before = self.answered(client);
        for number in 0.. {
            let is_enough = number >= CONNECTIONS_AT_MOST && !known.is_empty();
            if is_enough || Instant::now() >= end {
                break;
            }
            let resumed = client.connect();
            let now = self.answered(client);
            if now != before {
                known.push(resumed);
            }
            if known.len() == CHANGES {
                break;
            }
            before = now;
        }
        assert!(!known.is_empty(), "{}: one process answered all", self.server.name);
        let what = (self.server.name, self.tickets, self.means);
        unanimous(&known).unwrap_or_else(|| panic!("{what:?}: now and then: {known:?}"))
    }

    /// Returns true if the session resumed in a second server, which keeps running.
    fn in_another_server(&mut self, client: &mut Client) -> bool {
        client.connect();
        let address = std::mem::replace(&mut client.address, self.beside());
        let known = client.connect();
        client.address = address;
        known
    }

    fn after_a_reload(&mut self, clients: &mut [Client; 2]) -> Option<[bool; 2]> {
        let signal = self.server.reload?;
        // The sessions must come from the running server, and not from the one that was started beside it.
        clients.iter_mut().for_each(|client| {
            client.connect();
        });
        let running = self.site.running.first().expect("it runs").id().to_string();
        let old = children(&running);
        let told = Command::new("kill").args([&format!("-{signal}"), &running]).status();
        assert!(told.expect("it runs").success());
        let mut probe = self.site.client(Versions::Tls13);
        wait_until(&format!("{}: a reload", self.server.name), || {
            self.all_that_answer(&mut probe).is_disjoint(&old)
        });
        Some(clients.each_mut().map(|client| {
            let known = client.connect();
            assert!(!old.contains(&self.answered(client)), "{}: an old process", self.server.name);
            known
        }))
    }

    fn after_a_restart(&mut self, clients: &mut [Client; 2]) -> [bool; 2] {
        clients.iter_mut().for_each(|client| {
            client.connect();
        });
        self.site.stop();
        self.listen().expect("it is installed");
        clients.each_mut().map(Client::connect)
    }

    /// Asserts that the sessions were found in the cache, if no stateless tickets are issued and resumption is not off.
    fn look_into_the_cache(&self) {
        // The other ways make a cache that belongs to another user.
        if self.means != Means::Module {
            return;
        }
        let store = Store::open(Path::new(Store::FOLDER), &self.site.cache(), None).expect("there");
        let counters = store.cache().counters();
        let is_used = match self.tickets {
            Tickets::On => true,
            Tickets::Off if !self.server.is_caching => counters.stored == 0,
            _ => counters.hits >= 4,
        };
        assert!(is_used && counters.forged == 0, "{}: {counters:?}", self.server.name);
        assert!(store.check().iter().all(Result::is_ok), "{}", self.server.name);
    }

    /// Returns the processes that answer some connections.
    fn all_that_answer(&self, client: &mut Client) -> HashSet<String> {
        (0..12)
            .map(|_| {
                client.connect();
                self.answered(client)
            })
            .collect()
    }

    /// Returns the process that answered last.
    fn answered(&self, client: &Client) -> String {
        match fs::read_to_string(self.site.shown("answered")) {
            Ok(log) => log.lines().last().unwrap_or_default().to_owned(),
            Err(_) => client.answers.last().cloned().unwrap_or_default(),
        }
    }
}

/// Returns the children of a server, which answer until a reload.
pub(crate) fn children(process: &str) -> HashSet<String> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children: HashSet<_> =
        children.expect("Linux tells").split_whitespace().map(str::to_owned).collect();
    assert!(!children.is_empty(), "a server that has a process to replace");
    children
}

fn unanimous(known: &[bool]) -> Option<bool> {
    let first = *known.first()?;
    known.iter().all(|other| *other == first).then_some(first)
}
