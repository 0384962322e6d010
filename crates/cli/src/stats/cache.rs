//! `rejoin stats NAME`: the counters of a shared cache.

mod reading;
mod successors;
mod watched;

use rejoin_cache::Counters;
use rejoin_store::{CacheName, Reset, Store};
use rejoin_trace::grouped;
use serde_json::json;

use super::{Arguments, second, serve, shown_percent};
use crate::terminal;
use crate::watch::Watch;
use reading::{Reading, found_percent, resumed_percent};
use successors::Successors;
use watched::Watched;

pub(super) fn run(name: &CacheName, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { folder, json, watch, serve, reset, .. } = arguments;
    let store = Store::open(folder, name, None)?;
    if let Some(address) = *serve {
        return serve::serve(Watched::new(folder.clone(), store), address);
    }
    if *watch && reset.is_none() {
        let mut stores = Successors::new(folder.clone(), store);
        return match json {
            true => second::each(|_| Ok(told(stores.newest()))),
            false => lines(&mut stores),
        };
    }
    Watch::over(&store);
    match reset {
        Some(part) => {
            store.reset(*part);
            if *json {
                terminal::print_result(&json!({"reset": named(*part)}).to_string())?;
            }
        }
        None if *json => return terminal::print_result(&told(&store)),
        None => return terminal::print_result(&table(&Reading::of(&store))),
    }
    Ok(())
}

/// Returns a part as `--reset` names it.
fn named(part: Reset) -> &'static str {
    super::PARTS.iter().find(|(of, ..)| *of == part).map_or("", |(_, name, _)| name)
}

fn told(store: &Store) -> String {
    Reading::of(store).json().to_string()
}

fn table(reading: &Reading) -> String {
    let Reading { name, counters, facts, occupancy, capacity_sessions, .. } = reading;
    let head = format!(
        "{name}: of {} handshakes {} were resumed\n{} of {} sessions, {} bytes; {} of lookups found a session\n",
        grouped(counters.full_handshakes + counters.resumed_handshakes),
        shown_percent(resumed_percent(counters)),
        grouped(counters.sessions),
        grouped(*capacity_sessions),
        grouped(facts.bytes),
        shown_percent(found_percent(counters))
    );
    let memory =
        if facts.is_named { "" } else { "removed while in use: no new process can open it\n" };
    let row = |(name, count): (&str, u64)| vec![name.replace('_', " "), grouped(count)];
    let counts = rejoin_report::table(&[0], ["counted", ""], reading.counts().map(row));
    let returns = occupancy.named().into_iter().map(row);
    let returns = rejoin_report::table(&[0], ["expected back", "sessions"], returns);
    format!("{head}{memory}{counts}\n\n{returns}")
}

/// Prints a line for each second.
fn lines(stores: &mut Successors) -> anyhow::Result<()> {
    let head =
        "handshakes/s  resumed    hits/s  misses/s  stored/s  evicted/s  forged/s   sessions";
    let mut before = stores.newest().cache().counters();
    let mut replaced = stores.replaced;
    second::each(|number| {
        let now = stores.newest().cache().counters();
        if std::mem::replace(&mut replaced, stores.replaced) != stores.replaced {
            // The counts of another cache, which is as old as what has replaced the last one.
            before = Counters::default();
        }
        let told = second::below(head, number, &line(&before, &now));
        before = now;
        Ok(told)
    })
}

fn line(before: &Counters, now: &Counters) -> String {
    let since = |count: fn(&Counters) -> u64| count(now).saturating_sub(count(before));
    let last = Counters {
        full_handshakes: since(|c| c.full_handshakes),
        resumed_handshakes: since(|c| c.resumed_handshakes),
        ..Counters::default()
    };
    format!(
        "{:>12}  {:>7}  {:>8}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}",
        last.full_handshakes + last.resumed_handshakes,
        shown_percent(resumed_percent(&last)),
        since(|c| c.hits),
        since(|c| c.misses),
        since(|c| c.stored),
        since(Counters::evicted),
        since(|c| c.forged),
        now.sessions,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound of a source's share evicts, too.
    #[test]
    fn a_line_counts_evictions_for_every_reason() {
        let before = Counters { stored: 9, ..Counters::default() };
        let now = Counters {
            evicted_overdue: 1,
            evicted_latest: 20,
            evicted_oldest: 300,
            evicted_source_share: 4_000,
            ..before
        };
        let line = line(&before, &now);
        assert_eq!(line.split_whitespace().nth(5), Some("4321"), "{line}");
    }
}
