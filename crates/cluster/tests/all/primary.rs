//! The link to a primary, wherever it is, with a real Valkey or Redis.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cluster::{Link, Servers, Settings};
use rejoin_testkit::cluster::{ValkeyCluster, address, servers};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Signal, wait_until};
use rejoin_testkit::sentinels::replica;
use rejoin_testkit::valkey::Valkey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::agent::{Machine, settings};

pub(crate) async fn writes(link: &Link) -> Result<(), String> {
    let set = redis::cmd("SET").arg("written").arg(1).to_owned();
    let written: Result<(), _> = set.query_async(&mut link.clone()).await;
    written.map_err(|error| error.to_string())
}

/// Waits until a write succeeds. Returns the reasons why earlier ones failed.
pub(crate) async fn until_written(link: &Link) -> Vec<String> {
    let mut why = Vec::new();
    wait_until("a write", || {
        let written = tokio::task::block_in_place(|| Handle::current().block_on(writes(link)));
        why.extend(written.as_ref().err().cloned());
        written.is_ok()
    });
    why
}

/// Waits until a command fails for this reason.
pub(crate) async fn until_told(link: &Link, reason: &str) {
    wait_until(reason, || {
        let written = tokio::task::block_in_place(|| Handle::current().block_on(writes(link)));
        written.is_err_and(|why| why.contains(reason))
    });
}

pub(crate) async fn refused(servers: &Servers) -> String {
    Link::connect(servers).await.expect_err("no primary").to_string()
}

pub(crate) fn is_at(link: &Link, port: u16) -> bool {
    link.primary().as_deref() == Some(&address(port).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_servers_the_primary_is_used_and_then_its_successor() {
    let mut one = Valkey::start(&[]);
    let other = replica(one.port, &[]);
    for order in [[&one, &other], [&other, &one]] {
        let link = Link::connect(&servers(&order, false)).await.expect("a primary");
        assert!(is_at(&link, one.port));
        writes(&link).await.expect("written");
    }
    let all = servers(&[&one, &other], false);
    let link = Link::connect(&all).await.expect("a primary");
    one.stop();
    until_told(&link, "is a replica of").await;
    assert_eq!(other.say("REPLICAOF NO ONE"), "OK");
    until_written(&link).await;
    assert!(is_at(&link, other.port));
    // The old one comes back, and does not know.
    one.start_again();
    let told = refused(&all).await;
    assert!(told.contains("both say that they are the primary"), "{told}");
    writes(&link).await.expect("it stays");
    assert!(is_at(&link, other.port));
    one.say(&format!("REPLICAOF 127.0.0.1 {}", other.port));
    let again = Link::connect(&all).await.expect("a primary");
    assert!(is_at(&again, other.port) && is_at(&link, other.port));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_demoted_or_stands_still_is_left() {
    let one = Valkey::start(&[]);
    let other = replica(one.port, &[]);
    let link = Link::connect(&servers(&[&one, &other], false)).await.expect("a primary");
    other.say("REPLICAOF NO ONE");
    one.say(&format!("REPLICAOF 127.0.0.1 {}", other.port));
    until_written(&link).await;
    assert!(is_at(&link, other.port));
    let is_in_step = || one.say("INFO replication").contains("master_link_status:up");
    wait_until("the replica is in step", is_in_step);
    other.process().signal(Signal::STOP);
    assert_eq!(one.say("REPLICAOF NO ONE"), "OK");
    until_written(&link).await;
    assert!(is_at(&link, one.port));
    other.process().signal(Signal::CONT);
    writes(&link).await.expect("it stays");
    assert!(is_at(&link, one.port));
}

/// Whoever promotes a replica by hand may forget the primary. Agents that start then use neither.
#[test]
fn an_agent_tells_once_that_there_are_two_primaries() {
    let one = Valkey::start(&[]);
    let other = replica(one.port, &[]);
    let folder = Folder::new();
    let servers = [&one, &other].map(|valkey| address(valkey.port).to_string()).to_vec();
    let settings = Settings { servers, ..settings(&one, &folder) };
    let (machine, told) = Machine::noting(settings, &folder);
    let of_two = || told().iter().filter(|line| line.contains("TwoPrimaries")).count();
    for times in 1..=2 {
        other.say("REPLICAOF NO ONE");
        wait_until("the news", || of_two() == times);
        thread::sleep(Duration::from_secs(4));
        assert_eq!(of_two(), times, "{:?}", told());
        let health = machine.health.read();
        assert!(health.is_linked && health.unanswered == 0, "it stays linked: {:?}", told());
        other.say(&format!("REPLICAOF 127.0.0.1 {}", one.port));
        let is_in_step = || other.say("INFO replication").contains("master_link_status:up");
        wait_until("the replica is in step", is_in_step);
        // It asks once a second.
        thread::sleep(Duration::from_secs(2));
    }
}

/// Passes connections on to whatever port the target is.
async fn relay(target: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let target = target.load(Relaxed);
            tokio::spawn(async move {
                let mut to = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_may_move_to_another_server() {
    let one = Valkey::start(&[]);
    let mut other = replica(one.port, &[]);
    let target = Arc::new(AtomicU16::new(one.port));
    let port = relay(Arc::clone(&target)).await;
    let place = rejoin_cluster::Place::Primary(vec![address(port)]);
    let link = Link::connect(&Servers::new(place)).await.expect("a primary");
    writes(&link).await.expect("written");
    // Connections stay where they were.
    target.store(other.port, Relaxed);
    other.say("REPLICAOF NO ONE");
    one.say(&format!("REPLICAOF 127.0.0.1 {}", other.port));
    until_written(&link).await;
    assert_eq!(other.say("GET written"), "1");
    target.store(one.port, Relaxed);
    other.stop();
    until_told(&link, "is a replica of").await;
    one.say("REPLICAOF NO ONE");
    until_written(&link).await;
}

#[tokio::test]
async fn a_wrong_kind_of_server_is_named_with_its_remedy() {
    let nodes = ValkeyCluster::of(3).nodes;
    let link = Link::connect(&servers(&[&nodes[0]], false)).await.expect("a connection");
    let mut why = Vec::new();
    for key in ["a", "b", "c", "d"] {
        let set: Result<(), _> =
            redis::cmd("SET").arg(key).arg(1).query_async(&mut link.clone()).await;
        why.extend(set.err().map(|error| rejoin_cluster::Error::from(error).to_string()));
    }
    let of_cluster = |why: &String| why.contains("set clustered = true");
    assert!(why.iter().any(of_cluster), "{why:?}");
    let alone = Valkey::start(&[]);
    let told = refused(&servers(&[&alone], true)).await;
    assert!(told.contains("set clustered = false"), "{told}");
}

/// A node that stands still closes no connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_clusters_node_that_stands_still_is_left_when_it_has_a_successor() {
    let valkey = ValkeyCluster::with_replicas();
    let link = valkey.link().await;
    writes(&link).await.expect("written");
    let owner = valkey.owner(valkey.slot("written"));
    owner.process().signal(Signal::STOP);
    until_written(&link).await;
    owner.process().signal(Signal::CONT);
}

/// Starts a server whose answers never end, but for the first ones on each connection. It sends how long each connection
/// then stayed open.
async fn endless(head: &'static [u8], ends: usize) -> (u16, mpsc::UnboundedReceiver<Duration>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (lasted, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let lasted = lasted.clone();
            tokio::spawn(async move {
                let mut asked = [0; 4_096];
                for _ in 0..ends {
                    let _ = from.read(&mut asked).await?;
                    from.write_all(b"+OK\r\n").await?;
                }
                let _ = from.read(&mut asked).await?;
                from.write_all(head).await?;
                let begun = Instant::now();
                // Slow enough for the memory of whoever runs the test.
                while from.write_all(&b":1\r\n".repeat(1_000)).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let _ = lasted.send(begun.elapsed());
                std::io::Result::Ok(())
            });
        }
    });
    (port, received)
}

/// Time alone bounds what is kept of it: the library for Redis bounds no answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_never_ends_ends_the_connection() {
    for head in [&b"$9000000000000000\r\n"[..], b"*9000000000000000\r\n"] {
        for ends in [0, 1] {
            let (port, mut lasted) = endless(head, ends).await;
            let place = rejoin_cluster::Place::Primary(vec![address(port)]);
            let link = Link::open(Servers::new(place));
            for _ in 0..2 {
                let what = || String::from_utf8_lossy(head);
                assert!(writes(&link).await.is_err(), "{} {ends}", what());
                let lasted = timeout(Duration::from_secs(10), lasted.recv()).await;
                let lasted = lasted.expect("it is left").expect("it runs");
                assert!(lasted < Duration::from_secs(3), "{} {ends}: {lasted:?}", what());
            }
        }
    }
}
