//! Programs × servers × faults: no cell is worse than the document says. `make check-clients` tries all of them.

use rejoin_testkit::clients::differential::{
    End, Fault, Framing, Ground, Point, Program, Table, run, worse,
};

const PROGRAMS: [&str; 3] = ["curl, HTTP/1.0", "wget", "Python urllib"];

/// The way in which a connection ends, most of all: what is cut must not pass for the whole.
fn is_tried(program: &Program, table: &Table, fault: Fault) -> bool {
    let is_tried = match fault {
        Fault::Ends(end, point) => {
            let is_half = point == Point::Half;
            let is_whole = point == Point::All && table.framing == Framing::Close;
            (is_half || is_whole) && end != End::Stalls
        }
        Fault::TicketKeys
        | Fault::Certificate
        | Fault::Expired
        | Fault::ManagerGone
        | Fault::ManagerKilled
        | Fault::ManagerRestarted
        | Fault::ManagerFull => true,
        _ => false,
    };
    is_tried && PROGRAMS.contains(&program.name)
}

#[test]
fn no_fault_tells_rejoin_apart() {
    let cells = run(&Ground::new(), &is_tried, &|line| eprintln!("{line}"));
    let worse = worse(&cells);
    assert!(worse.is_empty(), "worse than docs/compat-clients.md says: {worse:#?}");
}
