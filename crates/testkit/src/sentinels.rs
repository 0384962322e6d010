//! A primary of Valkey with replicas, and sentinels that promote one of them when it fails.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::folder::Folder;
use crate::port;
use crate::process::{Process, wait_until};
use crate::valkey::{Valkey, say};

/// A sentinel on loopback, which ends with the test.
#[derive(Debug)]
pub struct Sentinel {
    /// The port of 127.0.0.1 that it listens on.
    pub port: u16,
    pub process: Process,
    _folder: Folder,
}

/// Servers of which one is the primary, and sentinels.
#[derive(Debug)]
pub struct Watched {
    /// The servers. The first one is the primary at first.
    pub servers: Vec<Valkey>,
    /// The sentinels.
    pub sentinels: Vec<Sentinel>,
}

impl Sentinel {
    /// Starts one for the primary on this port, which counts as down after two seconds if `quorum` sentinels agree.
    ///
    /// # Panics
    ///
    /// If neither Valkey nor Redis is installed.
    pub fn start(primary: u16, quorum: usize) -> Self {
        const NAME: &str = Watched::NAME;
        let (port, folder) = (port::reserve(), Folder::new());
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds {NAME} 2000\nsentinel failover-timeout {NAME} 3000\n",
            folder.path().display()
        );
        let file = folder.write("sentinel.conf", settings);
        let process = start("valkey-server", &file).or_else(|| start("redis-server", &file));
        port::wait_until_open(port);
        let process = process.expect("valkey-server or redis-server is installed");
        Self { port, process, _folder: folder }
    }
}

fn start(program: &str, file: &Path) -> Option<Process> {
    let mut command = Command::new(program);
    command.arg(file).arg("--sentinel").stdout(Stdio::null());
    Process::try_start(&mut command).ok()
}

impl Watched {
    /// The name under which sentinels watch the primary.
    pub const NAME: &str = "rejoin";

    /// Starts a primary, replicas, and three sentinels, and waits until all know each other. `more` are arguments of each
    /// server.
    ///
    /// # Panics
    ///
    /// If neither Valkey nor Redis is installed.
    pub fn start(replicas: usize, more: &[&str]) -> Self {
        const SENTINELS: usize = 3;
        let mut servers = vec![Valkey::start(more)];
        let primary = servers[0].port;
        servers.extend((0..replicas).map(|_| replica(primary, more)));
        let sentinels = (0..SENTINELS).map(|_| Sentinel::start(primary, 2)).collect();
        let watched = Self { servers, sentinels };
        watched.wait_until_whole();
        watched
    }

    /// Waits until every sentinel knows the others, and all servers that run as the primary's replicas.
    pub fn wait_until_whole(&self) {
        wait_until("sentinels and replicas", || self.is_whole());
    }

    fn is_whole(&self) -> bool {
        let running = self.servers.iter().filter(|server| server.runs()).count();
        let primary = self.primary();
        let [others, replicas] =
            [self.sentinels.len() - 1, running - 1].map(|count| count.to_string());
        self.sentinels.iter().all(|sentinel| {
            let told = say(sentinel.port, &format!("SENTINEL MASTER {}", Self::NAME));
            let lines: Vec<_> = told.lines().collect();
            let is = |name, value: &str| lines.windows(2).any(|pair| pair == [name, value]);
            is("flags", "master")
                && is("port", &primary.to_string())
                && is("num-other-sentinels", &others)
                && is("num-slaves", &replicas)
        }) && self
            .servers
            .iter()
            .filter(|server| server.runs() && server.port != primary)
            .all(is_linked)
    }

    /// Returns the port of the server that a majority of the sentinels names.
    pub fn primary(&self) -> u16 {
        let named = |sentinel: &Sentinel| {
            let told =
                say(sentinel.port, &format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME));
            told.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or_default()
        };
        let mut ports: Vec<u16> = self.sentinels.iter().map(named).collect();
        ports.sort_unstable();
        ports[ports.len() / 2]
    }

    /// Kills the primary, and waits until another one is named. Returns the port of the one that was killed.
    ///
    /// # Panics
    ///
    /// If none is.
    pub fn fail_over(&mut self) -> u16 {
        let failed = self.primary();
        let server = self.servers.iter_mut().find(|server| server.port == failed);
        server.expect("one of them").stop();
        wait_until("another primary", || {
            let primary = self.primary();
            primary != failed && say(primary, "ROLE").starts_with("master")
        });
        failed
    }

    /// Starts a server again as a replica, and waits until it is one.
    ///
    /// # Panics
    ///
    /// If it is none of the servers.
    pub fn start_again(&mut self, port: u16) {
        let primary = self.primary();
        let server =
            self.servers.iter_mut().find(|server| server.port == port).expect("one of them");
        server.start_again();
        wait_until("its data", || server.say("INFO persistence").contains("\nloading:0"));
        // Sentinels would do that in ten seconds.
        server.say(&format!("REPLICAOF 127.0.0.1 {primary}"));
        self.wait_until_whole();
    }
}

/// Starts a replica of the server on this port, and waits until it has its data and that server sends it what changes.
pub fn replica(of: u16, more: &[&str]) -> Valkey {
    let primary = of.to_string();
    let replica = Valkey::start(&[&["--replicaof", "127.0.0.1", &primary], more].concat());
    wait_until("a replica", || is_linked(&replica));
    // Its primary learns it from what the replica says once a second.
    let online = format!("port={},state=online", replica.port);
    wait_until("its primary", || say(of, "INFO replication").contains(&online));
    replica
}

fn is_linked(replica: &Valkey) -> bool {
    replica.say("INFO replication").contains("master_link_status:up")
}
