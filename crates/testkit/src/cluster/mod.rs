//! Connections of `rejoin-cluster` to Valkey, and a Valkey cluster of three nodes.

pub mod replay;

use rejoin_cluster::{Link, NodeAddress, Place, Servers};

use crate::port;
use crate::process::wait_until;
use crate::valkey::Valkey;

/// Connects to this server alone.
///
/// # Panics
///
/// If it does not answer.
pub async fn link(valkey: &Valkey) -> Link {
    Link::connect(&servers(&[valkey], false)).await.expect("a connection")
}

/// The settings of a connection to these servers.
pub fn servers(nodes: &[&Valkey], clustered: bool) -> Servers {
    let addresses = nodes.iter().map(|node| address(node.port)).collect();
    Servers::new(if clustered { Place::Cluster(addresses) } else { Place::Primary(addresses) })
}

/// The address of this port on loopback.
///
/// # Panics
///
/// Never.
pub fn address(port: u16) -> NodeAddress {
    NodeAddress::new("127.0.0.1", port).expect("a host")
}

/// A Valkey cluster.
#[derive(Debug)]
pub struct ValkeyCluster {
    /// Its nodes, each of which has a part of the slots.
    pub nodes: Vec<Valkey>,
}

/// A node that knows no other.
fn node() -> Valkey {
    let bus = port::reserve().to_string();
    Valkey::start(&["--cluster-enabled", "yes", "--cluster-port", &bus])
}

/// The port on which nodes speak with each other.
fn bus(node: &Valkey) -> String {
    let told = node.say("CONFIG GET cluster-port");
    told.lines().nth(1).expect("a port").to_owned()
}

impl ValkeyCluster {
    /// Starts a cluster of this many nodes, each of which is the primary of as many slots, and waits until it serves all.
    pub fn of(primaries: u16) -> Self {
        const SLOTS: u32 = 16_384;
        let begins = |at: u16| SLOTS * u32::from(at) / u32::from(primaries);
        let mut nodes: Vec<Valkey> = Vec::new();
        for at in 0..primaries {
            let (first, last) = (begins(at), begins(at + 1) - 1);
            let node = node();
            node.say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            node.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", nodes.len() + 1));
            if let Some(met) = nodes.first() {
                met.say(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.port, bus(&node)));
            }
            nodes.push(node);
        }
        let cluster = Self { nodes };
        wait_until("a cluster of Valkey", || cluster.is_whole());
        cluster
    }

    /// Starts a cluster of three primaries, each with a replica that takes its place after a second without it.
    pub fn with_replicas() -> Self {
        let mut cluster = Self::of(3);
        let primaries: Vec<_> =
            cluster.nodes.iter().map(|node| (node.port, node.say("CLUSTER MYID"))).collect();
        for (port, id) in primaries {
            let replica = node();
            let met = &cluster.nodes[0];
            met.say(&format!("CLUSTER MEET 127.0.0.1 {} {}", replica.port, bus(&replica)));
            wait_until("a node that knows the primary", || {
                replica.say("CLUSTER NODES").contains(&id)
            });
            replica.say(&format!("CLUSTER REPLICATE {id}"));
            let is_linked = || replica.say("INFO replication").contains("master_link_status:up");
            wait_until(&format!("a replica of {port}"), is_linked);
            cluster.nodes.push(replica);
        }
        wait_until("a cluster of Valkey", || cluster.is_whole());
        for node in &cluster.nodes {
            node.say("CONFIG SET cluster-node-timeout 1000");
        }
        cluster
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// If no node runs.
    pub fn slot(&self, key: &str) -> u16 {
        let told = self.running().next().expect("a node").say(&format!("CLUSTER KEYSLOT {key}"));
        told.parse().expect("a slot")
    }

    /// The primary of a slot, by what the first node says that runs.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn owner(&self, slot: u16) -> &Valkey {
        // Each line of an entry is a number, a host, a port or an id: first, last, host, port.
        let told = self.running().next().expect("a node").say("CLUSTER SLOTS");
        let lines: Vec<_> = told.lines().collect();
        let port = lines.windows(4).find_map(|lines| {
            let [first, last, "127.0.0.1", port] = lines else { return None };
            let range = first.parse::<u16>().ok()?..=last.parse().ok()?;
            range.contains(&slot).then(|| port.parse::<u16>().ok())?
        });
        self.nodes.iter().find(|node| Some(node.port) == port).expect("an owner")
    }

    /// Kills the primary of a slot, and waits until its replica has taken its place. Returns its port.
    pub fn fail_over(&mut self, slot: u16) -> u16 {
        let failed = self.owner(slot).port;
        self.node(failed).stop();
        wait_until("another primary", || {
            let is_ok = |node: &Valkey| node.say("CLUSTER INFO").contains("cluster_state:ok");
            let owner = self.owner(slot);
            owner.port != failed
                && owner.say("ROLE").starts_with("master")
                && self.running().all(is_ok)
        });
        failed
    }

    /// Starts a node again, and waits until it is a replica.
    pub fn start_again(&mut self, port: u16) {
        let node = self.node(port);
        node.start_again();
        wait_until("a replica", || node.say("INFO replication").contains("master_link_status:up"));
        wait_until("a cluster of Valkey", || self.is_whole());
    }

    fn node(&mut self, port: u16) -> &mut Valkey {
        self.nodes.iter_mut().find(|node| node.port == port).expect("one of them")
    }

    fn running(&self) -> impl Iterator<Item = &Valkey> {
        self.nodes.iter().filter(|node| node.runs())
    }

    /// Connects to the cluster.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub async fn link(&self) -> Link {
        let nodes: Vec<_> = self.nodes.iter().collect();
        Link::connect(&servers(&nodes, true)).await.expect("a connection")
    }

    fn is_whole(&self) -> bool {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        self.nodes.iter().all(|node| {
            let info = node.say("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains(&known)
        })
    }
}
