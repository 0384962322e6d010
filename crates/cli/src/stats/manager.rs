//! `rejoin stats --manager`: the counters of the TLS manager.

mod reading;
mod watched;

use std::path::PathBuf;

use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{Handshakes, Share, Went};
use rejoin_report::printable;
use rejoin_trace::grouped;

use super::{Arguments, second, serve, shown_percent};
use crate::terminal;
use reading::{Reading, resumed_percent};
use watched::Watched;

pub(super) fn run(socket: Option<PathBuf>, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { json, watch, serve, .. } = arguments;
    let manager = socket.map_or_else(Manager::find, Manager::at).of_any_user().found()?;
    let read = || Reading::of(&manager);
    match *serve {
        Some(address) => serve::serve(Watched::new(read()?, manager), address),
        None if *watch && *json => second::each(|_| Ok(read()?.json().to_string())),
        None if *watch => lines(&manager),
        None if *json => terminal::print_result(&read()?.json().to_string()),
        None => terminal::print_result(&table(&read()?)),
    }
}

fn table(Reading { socket, stats }: &Reading) -> String {
    let of = &stats.handshakes;
    let head = format!(
        "the manager at {}: of {} handshakes {} were resumed\n{} sessions in {} bytes; {} connections are open\n",
        printable(socket),
        grouped(of.full + of.resumed),
        shown_percent(resumed_percent(of)),
        grouped(stats.sessions),
        grouped(stats.session_bytes),
        grouped(stats.open),
    );
    let row = |(name, count): (&str, u64)| vec![name.to_owned(), grouped(count)];
    let counts = rejoin_report::table(&[0], ["counted", ""], counts(of).map(row));
    let [programs, services] = [("program", &stats.programs), ("service", &stats.services)]
        .map(|(what, shares)| by(what, shares));
    let directly = without(&stats.directly);
    format!("{head}{counts}\n\n{programs}\n\n{services}{directly}")
}

/// Returns a table of the connections that bypassed the manager, by reason.
fn without(went: &[Went]) -> String {
    if went.is_empty() {
        return String::new();
    }
    let row = |Went { why, times }: &Went| vec![why.to_string(), grouped(*times)];
    let head = ["bypassed the manager, because", "connections"];
    format!("\n\n{}", rejoin_report::table(&[0], head, went.iter().map(row)))
}

fn counts(of: &Handshakes) -> [(&'static str, u64); 6] {
    [
        ("full handshakes", of.full),
        ("  session refused", of.refused),
        ("resumed", of.resumed),
        ("  with a session of another name", of.across_names),
        ("failed", of.failed),
        ("0-RTT data accepted", of.early_data),
    ]
}

fn by(what: &str, shares: &[Share]) -> String {
    let row = |Share { name, handshakes: of }: &Share| {
        let percent = shown_percent(resumed_percent(of));
        let counts = [of.full, of.resumed, of.failed].map(grouped);
        [vec![printable(name), percent], counts.into()].concat()
    };
    let head = [what, "resumed", "full", "resumed", "failed"];
    rejoin_report::table(&[0], head, shares.iter().map(row))
}

/// Prints a line for each second.
fn lines(manager: &Manager) -> anyhow::Result<()> {
    let head = "handshakes/s  resumed  failed/s      open   sessions";
    let mut before = Reading::of(manager)?;
    second::each(|number| {
        let now = Reading::of(manager)?;
        let told = second::below(head, number, &line(&before, &now));
        before = now;
        Ok(told)
    })
}

fn line(Reading { stats: before, .. }: &Reading, Reading { stats: now, .. }: &Reading) -> String {
    let since = |count: fn(&Handshakes) -> u64| {
        count(&now.handshakes).saturating_sub(count(&before.handshakes))
    };
    let (full, resumed) = (since(|of| of.full), since(|of| of.resumed));
    let last = Handshakes { full, resumed, ..Handshakes::default() };
    format!(
        "{:>12}  {:>7}  {:>8}  {:>8}  {:>9}",
        full + resumed,
        shown_percent(resumed_percent(&last)),
        since(|of| of.failed),
        now.open,
        now.sessions,
    )
}

#[cfg(test)]
mod tests {
    use rejoin_manager::protocol::Stats;

    use super::*;

    /// A program names itself.
    #[test]
    fn names_do_not_command_the_terminal() {
        let share = Share { name: "a\u{1b}[2Jb".to_owned(), handshakes: Handshakes::default() };
        let stats = Stats { programs: vec![share], ..Stats::default() };
        let table = table(&Reading { socket: "/m.sock".to_owned(), stats });
        assert!(table.contains("a\u{fffd}[2Jb") && !table.contains('\u{1b}'), "{table}");
    }
}
