//! The effect of Rejoin in each server: `docs/compat.md`, measured, and compared cell by cell.
//!
//! `REJOIN_BLESS=1` writes the document anew. The rows of a program that is not installed are neither measured nor
//! compared.

mod document;
pub(crate) mod matrix;
pub(crate) mod means;
mod servers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use document::{Document, Row, Table};
use matrix::{Known, Tickets};
use means::Means;
use servers::{NGINX, NGINX_OTHER, SERVERS, Server, UNREACHED};

#[test]
#[ignore = "slow: make test-all"]
fn the_document_says_what_servers_do() {
    // The programs that must be compiled come first.
    let compiled = UNREACHED.iter().map(|server| Box::new(move || unreached(server)) as Work);
    let packaged = SERVERS.iter().map(|server| Box::new(move || reached(server)) as Work);
    let work = compiled.chain(packaged).chain([Box::new(pair) as Work]).collect::<Vec<_>>();
    let document = Document::new(all_done(&work));
    if std::env::var_os("REJOIN_BLESS").is_some() {
        document.write();
    } else {
        document.compare();
    }
}

type Work = Box<dyn Fn() -> Vec<Row> + Sync>;

/// Does all work, two servers at a time, because they wait for much of their time.
fn all_done(work: &[Work]) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mine = std::iter::from_fn(|| work.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.flat_map(|work| work()).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let other = scope.spawn(some);
        let mut rows = some();
        rows.extend(other.join().expect("it has told why"));
        rows
    })
}

/// Measures a server in every way, with and without stateless tickets.
fn reached(server: &'static Server) -> Vec<Row> {
    let known = |tickets, means| matrix::measured(server, tickets, means);
    let (Some(off), Some(on)) =
        (known(Tickets::Off, Means::Nothing), known(Tickets::On, Means::Nothing))
    else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (table, means) in [(Table::Module, Means::Module), (Table::Preload, Means::Preload)] {
        let kept = (!server.is_caching).then_some((Tickets::Kept, off));
        let others = [(Tickets::On, on), (Tickets::Forbidden, on)];
        for (tickets, without) in [(Tickets::Off, off)].into_iter().chain(kept).chain(others) {
            let with = known(tickets, means).expect("it is installed");
            let mut cells = vec![tickets.to_string()];
            cells.extend(
                (0..3).map(|at| cell(without.map(|known| known[at]), with.map(|known| known[at]))),
            );
            rows.push(Row { table, name: server.name, cells });
        }
    }
    rows
}

/// Measures two servers of one site with different configurations.
fn pair() -> Vec<Row> {
    let known =
        |tickets, means| matrix::from_one_to_the_other([&NGINX, &NGINX_OTHER], tickets, means);
    let row = |tickets| {
        let (without, with) = (known(tickets, Means::Nothing)?, known(tickets, Means::Module)?);
        let cells = vec![tickets.to_string(), cell(without.map(Some), with.map(Some))];
        Some(Row { table: Table::Pair, name: NGINX.name, cells })
    };
    [Tickets::Off, Tickets::On].into_iter().filter_map(row).collect()
}

/// Measures a program that has no shared libssl.
fn unreached(server: &'static Server) -> Vec<Row> {
    let known = |means| matrix::of_one_process(server, means);
    let Some((without, _)) = known(Means::Nothing) else { return Vec::new() };
    let row = |(means, name): (Means, &str)| {
        let (with, stored) = known(means).expect("it is installed");
        let of = |known: [Known; 2], at: usize| known.map(|known| known[at]);
        let mut cells = vec![name.to_owned()];
        cells.extend([0, 2].map(|at| cell(of(without, at), of(with, at))));
        cells.push(stored.to_string());
        Row { table: Table::Unreached, name: server.name, cells }
    };
    [(Means::Module, "the module"), (Means::Preload, "the preload library")].map(row).into()
}

/// Writes a cell: resumption without and with Rejoin, for TLS 1.2 and TLS 1.3.
fn cell(without: [Option<bool>; 2], with: [Option<bool>; 2]) -> String {
    let word = |known: bool| if known { "yes" } else { "no" };
    let one = |at: usize| Some(format!("{} → {}", word(without[at]?), word(with[at]?)));
    match (one(0), one(1)) {
        (Some(tls12), Some(tls13)) if tls12 == tls13 => tls12,
        (Some(tls12), Some(tls13)) => format!("1.2: {tls12}; 1.3: {tls13}"),
        _ => "–".to_owned(),
    }
}
