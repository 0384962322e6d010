//! More servers of Debian's packages, each beside itself without Rejoin: the second table of `docs/compat.md`.
//!
//! The packages are extracted into folders and not installed (`make target/servers target/openssl-3.5`). Each server
//! starts in a file system of its own, where they lie over this machine's. That needs root.
//!
//! In no cell does a server resume less, refuse more or accept more with Rejoin than without. `REJOIN_BLESS=1` writes
//! the table anew.

mod radius;
mod servers;
pub(crate) mod table;
mod visits;
mod world;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rejoin_testkit::site::{Client, Versions};

use servers::{SERVERS, Server};
use table::Row;
use visits::{Both, Tally, visit};
use world::{Certificate, World};

/// The outcomes of visits to one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// More connections to the same server.
    again: Both,
    /// A connection to another server with the same configuration, at another port.
    second: Option<Both>,
    restart: Option<Both>,
    /// Only where certificates are asked for.
    asked: Option<Asked>,
}

/// The outcomes where a server asks for certificates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The client's session after a restart under another authority, which has not signed its certificate.
    distrusted: Both,
    /// A client without a certificate.
    nobody: Both,
    /// A client whose certificate another authority has signed.
    stranger: Both,
}

#[test]
#[ignore = "slow: needs make target/servers target/openssl-3.5"]
fn no_server_does_worse_than_without() {
    if let Some(why) = world::impossible() {
        eprintln!("{why}: nothing is tested");
        return;
    }
    let only = std::env::var("REJOIN_ONLY").ok();
    let is_wanted = |server: &&Server| only.as_ref().is_none_or(|only| server.name.contains(only));
    let servers: Vec<_> = SERVERS.iter().filter(is_wanted).collect();
    let mut rows = all_measured(&servers);
    if only.as_ref().is_none_or(|only| servers::FREERADIUS.name.contains(only)) {
        rows.extend(radius::rows());
    }
    let worse: Vec<_> = rows.iter().flat_map(Row::faults).collect();
    assert!(worse.is_empty(), "{}", worse.join("\n"));
    if only.is_some() {
        return;
    }
    if std::env::var_os("REJOIN_BLESS").is_some() {
        table::write(&rows);
    } else {
        table::compare(&rows);
    }
}

/// Measures two servers at a time, because they wait for much of their time.
fn all_measured(servers: &[&'static Server]) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mine = std::iter::from_fn(|| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            servers.get(at).map(|server| (at, *server))
        });
        mine.map(|(at, server)| (at, rows_of(server))).collect::<Vec<_>>()
    };
    let mut rows = thread::scope(|scope| {
        let other = scope.spawn(some);
        let mut rows = some();
        rows.extend(other.join().expect("it has told why"));
        rows
    });
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().flat_map(|(_, rows)| rows).collect()
}

fn rows_of(server: &'static Server) -> Vec<Row> {
    let rows_where = |asks| {
        let without = measured(server, asks, None);
        let row = move |settings| {
            let with = measured(server, asks, Some(settings));
            let row = Row { server, asks, settings, without, with };
            eprintln!("{}", row.line());
            row
        };
        server.settings[usize::from(asks)].iter().copied().map(row)
    };
    [false, true].into_iter().flat_map(rows_where).collect()
}

/// Measures a server, with the settings of Rejoin, or without it.
fn measured(server: &'static Server, asks: bool, settings: Option<&str>) -> Seen {
    let mut world = World::new(server, asks, settings);
    world.listen();
    let shown = if asks { Certificate::Good } else { Certificate::None };
    let mut clients = [Versions::Tls12, Versions::Tls13].map(|tls| world.client(tls, shown));
    let what = format!("{}, asks {asks}, {settings:?}", server.name);
    for client in &mut clients {
        let first = visit(client, &server.talk);
        let told = || world.told();
        assert_eq!(first, Ok(false), "{what}: {}", told());
    }
    let again = each(server, &mut clients, 3);
    let second = {
        let address = world.beside();
        introduce(&world, address, shown);
        clients.each_mut().map(|client| {
            let home = std::mem::replace(&mut client.address, address);
            let outcome = tally(server, client, 1);
            client.address = home;
            outcome
        })
    };
    // The session comes from the first server.
    each(server, &mut clients, 1);
    world.restart();
    introduce(&world, world.address(), shown);
    let restart = each(server, &mut clients, 1);
    let asked = asks.then(|| {
        let of = |certificate| {
            let mut clients =
                [Versions::Tls12, Versions::Tls13].map(|tls| world.client(tls, certificate));
            each(server, &mut clients, 1)
        };
        let (nobody, stranger) = (of(Certificate::None), of(Certificate::Stranger));
        world.trust_the_other_authority();
        introduce(&world, world.address(), Certificate::Stranger);
        Asked { distrusted: each(server, &mut clients, 1), nobody, stranger }
    });
    assert_eq!(world.lines_of_ours(), [""; 0], "{what}");
    Seen { again, second: Some(second), restart: Some(restart), asked }
}

/// Lets a new client connect first: in a process that asks for certificates the first handshake is full.
fn introduce(world: &World, address: SocketAddr, shown: Certificate) {
    let mut client = world.client(Versions::Tls12, shown);
    client.address = address;
    let first = visit(&mut client, world.talk());
    assert_eq!(first, Ok(false), "a new client: {}", world.told());
}

fn each(server: &Server, clients: &mut [Client; 2], visits: u32) -> Both {
    clients.each_mut().map(|client| tally(server, client, visits))
}

fn tally(server: &Server, client: &mut Client, visits: u32) -> Tally {
    let told = |refused: &String| eprintln!("{} refused: {refused:?}", server.name);
    (0..visits).map(|_| visit(client, &server.talk).inspect_err(told)).collect()
}
