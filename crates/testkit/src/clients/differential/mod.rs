//! Programs × servers × faults, each with Rejoin and without: exit code, bytes, standard error, and what the server
//! saw. Nothing may differ.
//!
//! A cell is two visits in a row, so that the second may resume the first one's session. What differs is tried again
//! beside another run without Rejoin, and then compared with more of those: chance is in both.

mod dialects;
mod faults;
mod ground;
mod programs;
mod server;
mod side;
mod table;
mod visits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use faults::{End, Fault, Point, TABLES, Table};
pub use ground::Ground;
pub use programs::{PROGRAMS, Program};
pub use server::Framing;
pub use table::{Counts, Worse, bless, worse};
use visits::Difference;
pub use visits::{Unlike, Visit};

use crate::manager::Managed;
use crate::stacks::Tls;
use side::{Certificates, Side};

/// One program at one server, with one fault.
#[derive(Debug, Clone)]
pub struct Cell {
    pub program: &'static Program,
    pub table: &'static Table,
    /// The place of the fault in the table.
    pub column: usize,
    pub tls: Tls,
    pub verdict: Verdict,
    /// The differences that were seen once and not again.
    pub once: Vec<String>,
}

/// The difference that Rejoin makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// None, and the manager made a connection.
    Same,
    /// None, and no connection went through the manager.
    Direct,
    /// None for the program's user.
    Unlike(Unlike),
    Differs(String),
}

impl Cell {
    /// Returns its program, version, fault and table in one line.
    pub fn name(&self) -> String {
        let (column, _) = self.table.columns[self.column];
        format!(
            "{}, TLS {}, {:?}, {column}",
            self.program.name,
            self.tls.number(),
            self.table.framing
        ) + &format!(" {:?}", self.table.columns[self.column].1)
    }
}

/// The most runs of a cell.
const RUNS: usize = 3;
/// The most runs without Rejoin for one with it that differs from all so far: some programs' exit code is chance.
const MORE_WITHOUT: usize = 20;

/// Runs all cells that are chosen, several programs at the same time, and tells of each program when it is done. The
/// cells are in the order of the tables.
pub fn run(
    ground: &Ground,
    chosen: &(dyn Fn(&Program, &Table, Fault) -> bool + Sync),
    tell: &(dyn Fn(&str) + Sync),
) -> Vec<Cell> {
    let jobs: Vec<_> =
        PROGRAMS.iter().flat_map(|program| Tls::ALL.map(|tls| (program, tls))).collect();
    let (next, cells) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((program, tls)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let done = of_program(ground, program, *tls, chosen, tell);
            cells.lock().expect("no panic").extend(done);
        }
    };
    // Programs and servers mostly wait.
    let workers = 8 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut cells = cells.into_inner().expect("no panic");
    let program = |cell: &Cell| PROGRAMS.iter().position(|other| std::ptr::eq(other, cell.program));
    let table = |cell: &Cell| TABLES.iter().position(|other| std::ptr::eq(other, cell.table));
    cells.sort_by_key(|cell| (table(cell), program(cell), cell.column, cell.tls == Tls::V13));
    cells
}

fn of_program(
    ground: &Ground,
    program: &'static Program,
    tls: Tls,
    chosen: &(dyn Fn(&Program, &Table, Fault) -> bool + Sync),
    tell: &(dyn Fn(&str) + Sync),
) -> Vec<Cell> {
    let columns = TABLES.iter().flat_map(|table| {
        let columns = table.columns.iter().enumerate();
        columns.map(move |(column, (_, fault))| (table, column, *fault))
    });
    let columns: Vec<_> = columns
        .filter(|(table, _, fault)| program.is_in(table) && chosen(program, table, *fault))
        .collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let since = std::time::Instant::now();
    let name = format!("{}, TLS {}", program.name, tls.number());
    let mut managed = Managed::start(&format!("d-{}", ground.number()));
    if let Err(why) = side::is_here(ground, program, tls, &managed) {
        tell(&format!("{name}: not tried: {why}"));
        return Vec::new();
    }
    let mut cells = Vec::new();
    for (table, column, fault) in columns {
        let tried = AssertUnwindSafe(|| cell(ground, (program, table), (fault, tls), &mut managed));
        let (verdict, once) = match catch_unwind(tried) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(_) => {
                managed = Managed::start(&format!("d-{}", ground.number()));
                (Verdict::Differs("the test itself failed".to_owned()), Vec::new())
            }
        };
        let cell = Cell { program, table, column, tls, verdict, once };
        if let Verdict::Differs(difference) = &cell.verdict {
            tell(&format!("DIFFERS  {}: {difference}", cell.name()));
        }
        for once in cell.once.iter().filter(|_| !matches!(cell.verdict, Verdict::Differs(_))) {
            tell(&format!("once     {}: {once}", cell.name()));
        }
        cells.push(cell);
    }
    let same = cells.iter().filter(|cell| !matches!(cell.verdict, Verdict::Differs(_))).count();
    tell(&format!("{name}: {same} of {} cells alike, {:.0?}", cells.len(), since.elapsed()));
    cells
}

/// Runs one cell, until it is the same or was tried often enough. `None` if it cannot be tried here.
fn cell(
    ground: &Ground,
    (program, table): (&'static Program, &'static Table),
    (fault, tls): (Fault, Tls),
    managed: &mut Managed,
) -> Option<(Verdict, Vec<String>)> {
    if fault == Fault::NoNetwork && !ground.has_namespaces {
        return None;
    }
    let side = |managed: &Managed| {
        let certificates = Certificates::of(fault, managed);
        Side { ground, program, fault, tls, framing: table.framing, certificates }
    };
    let mut known: [Vec<Visit>; 2] = [Vec::new(), Vec::new()];
    let mut once = Vec::new();
    for run in 1.. {
        let made = side(managed);
        let (plain, (with, told)) = thread::scope(|scope| {
            let plain = scope.spawn(|| made.without());
            let with = made.with(managed);
            (plain.join().expect("no panic"), with)
        });
        known.iter_mut().zip(plain).for_each(|(known, visit)| known.push(visit));
        let difference = |known: &[Vec<Visit>; 2]| {
            let mut visits = with.iter().zip(known);
            visits.find_map(|(visit, known)| visit.difference(known, fault.shows_clients()))
        };
        let mut found = difference(&known);
        for _ in 0..if run == RUNS { MORE_WITHOUT } else { 0 } {
            let is_noticed = |found: &Difference| {
                matches!(found, Difference::Program(_) | Difference::Server(Unlike::Asked, _))
            };
            if !found.as_ref().is_some_and(is_noticed) {
                break;
            }
            let plain = side(managed).without();
            known.iter_mut().zip(plain).for_each(|(known, visit)| known.push(visit));
            found = difference(&known);
        }
        let verdict = match found {
            None if told.iter().any(|line| line.contains(": through the manager: ")) => {
                Verdict::Same
            }
            None => Verdict::Direct,
            Some(
                Difference::Server(Unlike::End | Unlike::Asked, text) | Difference::Program(text),
            ) if run < RUNS => {
                once.push(text);
                continue;
            }
            Some(Difference::Server(Unlike::Asked, text) | Difference::Program(text)) => {
                Verdict::Differs(text)
            }
            Some(Difference::Server(unlike, _)) => Verdict::Unlike(unlike),
        };
        return Some((verdict, once));
    }
    None
}
