//! Valkey or Redis, started on loopback for a test and ended with it.

#![allow(dead_code, reason = "each test uses some of it")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::FromRedisValue;
use rejoin_cluster::{Link, Servers};

/// How long a server has to begin, in steps.
const STEPS: u32 = 400;
const STEP: Duration = Duration::from_millis(50);

/// One server.
pub(crate) struct Valkey {
    child: Child,
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    arguments: Vec<String>,
}

impl Valkey {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let port = free_port();
        let folder =
            std::env::temp_dir().join(format!("rejoin-valkey-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let child = spawned(port, &folder, &arguments);
        let valkey = Self { child, port, folder, arguments };
        valkey.answers().await;
        valkey
    }

    /// The only node of a cluster.
    pub(crate) async fn start_clustered() -> Self {
        let valkey = Self::start(&["--cluster-enabled", "yes"]).await;
        let _: () = valkey.say("CLUSTER ADDSLOTSRANGE 0 16383").await;
        valkey
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ended");
    }

    /// After [`Self::stop`], with what was saved.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawned(self.port, &self.folder, &self.arguments);
        self.answers().await;
    }

    /// Ends it, and starts an empty one in its place.
    pub(crate) async fn restart_empty(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(self.folder.join("dump.rdb"));
        self.start_again().await;
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn servers(&self) -> Servers {
        servers(&[self], false)
    }

    async fn answers(&self) {
        for _ in 0..STEPS {
            match std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(STEP).await,
            }
        }
        panic!("no answer on port {}", self.port);
    }

    pub(crate) async fn link(&self) -> Link {
        Link::connect(&self.servers()).await.expect("a connection")
    }

    /// Sends a command, written as one does by hand.
    pub(crate) async fn say<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a word"));
        words.for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut self.link().await).await.expect(command)
    }

    /// How often a command was called, by clients and by scripts.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats: String = self.say("INFO commandstats").await;
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next())
            .map_or(0, |calls| calls.parse().expect("a number"))
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Three servers that are one.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Valkey>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for (first, last) in SLOTS {
            let bus = free_port();
            let node =
                Valkey::start(&["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()])
                    .await;
            let _: () = node.say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await;
            let _: () = node.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", nodes.len() + 1)).await;
            nodes.push(node);
            buses.push(bus);
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port);
            let _: () = nodes[0].say(&meet).await;
        }
        let cluster = Self { nodes };
        for _ in 0..STEPS {
            if cluster.is_whole().await {
                return cluster;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("the nodes do not find each other");
    }

    pub(crate) async fn link(&self) -> Link {
        let nodes: Vec<_> = self.nodes.iter().collect();
        Link::connect(&servers(&nodes, true)).await.expect("a connection")
    }

    async fn is_whole(&self) -> bool {
        for node in &self.nodes {
            let info: String = node.say("CLUSTER INFO").await;
            let agree = ["cluster_state:ok", "cluster_known_nodes:3"];
            if !agree.iter().all(|line| info.contains(line)) {
                return false;
            }
        }
        true
    }
}

fn spawned(port: u16, folder: &Path, arguments: &[String]) -> Child {
    let spawn = |program| {
        Command::new(program)
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            // What is searched must not be compressed.
            .args(["--rdbcompression", "no", "--port", &port.to_string(), "--dir"])
            .arg(folder)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
    };
    let child = spawn("valkey-server").or_else(|_| spawn("redis-server"));
    child.expect("valkey-server or redis-server is installed")
}

fn servers(nodes: &[&Valkey], clustered: bool) -> Servers {
    let addresses = nodes.iter().map(|node| ("127.0.0.1".to_owned(), node.port));
    Servers { addresses: addresses.collect(), clustered, user: None, password: None, tls: None }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}
