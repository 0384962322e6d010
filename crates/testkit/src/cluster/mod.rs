//! Connections of `rejoin-cluster` to Valkey, and a Valkey cluster of three nodes.

pub mod replay;

use rejoin_cluster::{Link, Servers};

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
    let addresses = nodes.iter().map(|node| ("127.0.0.1".to_owned(), node.port)).collect();
    Servers { addresses, clustered, user: None, password: None, tls: None }
}

/// A Valkey cluster.
#[derive(Debug)]
pub struct ValkeyCluster {
    /// Its nodes, each of which has a part of the slots.
    pub nodes: Vec<Valkey>,
}

impl ValkeyCluster {
    /// Starts a cluster of one node, and waits until it serves all slots.
    pub fn of_one() -> Self {
        Self::start(&[(0, 16_383)])
    }

    /// Starts a cluster of three nodes, and waits until each serves a third of the slots.
    pub fn of_three() -> Self {
        Self::start(&[(0, 5_460), (5_461, 10_922), (10_923, 16_383)])
    }

    fn start(slots: &[(u16, u16)]) -> Self {
        let mut nodes: Vec<Valkey> = Vec::new();
        for (first, last) in slots {
            let bus = port::reserve().to_string();
            let node = Valkey::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
            node.say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            node.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", nodes.len() + 1));
            if let Some(met) = nodes.first() {
                met.say(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port));
            }
            nodes.push(node);
        }
        let cluster = Self { nodes };
        wait_until("a cluster of Valkey", || cluster.is_whole());
        cluster
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
