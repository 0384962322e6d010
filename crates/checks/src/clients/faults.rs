//! Programs × servers × faults, with Rejoin and without.

use rejoin_testkit::clients::differential::{
    Counts, Fault, Ground, Program, Table, Verdict, bless, run, worse,
};
use rejoin_testkit::clients::document::is_blessed;

use super::{Effort, Found};

/// Programs of a quick check.
const QUICK: [&str; 3] = ["curl", "wget", "Python asyncio"];

/// Tries the cells of all programs, or of those that are named, with a line for each program and each cell that differs.
/// `REJOIN_BLESS=1` writes the document's tables.
pub(crate) fn all(effort: Effort) -> Option<Found> {
    let is_tried = |program: &Program| match effort.programs {
        Some(names) => names.split(',').any(|part| program.name.contains(part.trim())),
        None => !effort.quick || QUICK.contains(&program.name),
    };
    let (ground, tell) = (Ground::new(), |line: &str| println!("   {line}"));
    let mut cells = run(&ground, &|program, _, _| is_tried(program), &tell);
    // A program that waited for long goes directly. Now the machine has nothing else to do.
    let first = worse(&cells);
    let again = |program: &Program, table: &Table, fault: Fault| {
        first.iter().any(|worse| worse.is(program, table, fault))
    };
    for cell in run(&ground, &again, &tell) {
        let before = cells.iter_mut().find(|before| before.name() == cell.name());
        let before = before.expect("it was tried");
        // What differs was tried often enough.
        if !matches!(before.verdict, Verdict::Differs(_)) {
            *before = cell;
        }
    }
    if is_blessed() && !effort.quick {
        bless(&cells);
    }
    let (counts, worse) = (Counts::of(&cells), worse(&cells));
    let named: String = worse.iter().map(|cell| format!("; {cell}")).collect();
    let figure = format!("{counts}{named}");
    let is_all = !effort.quick && effort.programs.is_none();
    let least = if is_all { LEAST } else { 1 };
    Some(Found { figure, holds: worse.is_empty() && cells.len() >= least })
}

/// The cells that are promised.
const LEAST: usize = 500;
