//! The findings of `rejoin doctor` in this machine's servers: all that stands in the way, each with its mend.

use std::path::Path;

use rejoin_cache::Counters;
use rejoin_openssl::{Certificates, ContextNotes, Handshakes, Notes, Outcome, Subject};
use rejoin_report::distinct;
use rejoin_store::Store;
use rejoin_tickets::{KeyRing, KeyState};

use super::found::{Found, Server};
use super::obstacle::Obstacle;
use super::verdict;

/// The handshakes below which a share says nothing.
const ENOUGH: u64 = 50;
/// The time by which a rotation may be late, in seconds: it comes with a handshake.
const LATE_S: u64 = 3_600;

/// Returns the obstacles, each once, with the unit or the program that it is about.
pub(super) fn of(found: &Found) -> Vec<(String, Obstacle)> {
    let of_server = |server: &Server| {
        let label = server.first().map_or_else(String::new, |process| process.label().to_owned());
        on(server).into_iter().map(move |obstacle| (label.clone(), obstacle))
    };
    let servers = found.servers.iter().flat_map(of_server);
    let others = found.others.iter().map(|of| (of.process.label().to_owned(), of.why.clone()));
    // A master that serves nobody has processes that do.
    let is_served = |label: &str| {
        let mut served = found.servers.iter().filter(|server| server.has_served());
        served.any(|server| server.first().is_some_and(|process| process.label() == label))
    };
    distinct(servers.chain(others.filter(|(label, _)| !is_served(label))))
}

fn on(server: &Server) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = server.verdict().err().into_iter().collect();
    if server.is_outdated() {
        obstacles.push(Obstacle::new(verdict::OUTDATED, "restart it"));
    }
    let lost = server.lost();
    let lost = lost.iter().map(|cache| Obstacle::new(verdict::lost(cache), "restart the server"));
    let is_well = obstacles.is_empty();
    obstacles.extend(lost);
    let Ok(notes) = &server.notes else { return obstacles };
    if is_well {
        obstacles.extend(notes.contexts.iter().filter_map(on_context));
        if notes.unattached > 0 {
            let why = format!(
                "{} connections are not Rejoin's: {}",
                notes.unattached,
                verdict::UNATTACHED
            );
            obstacles.push(Obstacle::new(why, verdict::LOADED_LATE));
        }
        obstacles.extend(on_share(notes.handshakes));
    }
    obstacles.extend(on_cache(notes));
    obstacles
}

fn on_context(context: &ContextNotes) -> Option<Obstacle> {
    let name = context.name.as_deref().unwrap_or("a context");
    if let Some((why, mend)) = verdict::alone(context) {
        return Some(Obstacle::new(format!("{name} is left alone: {why}"), mend));
    }
    let is_attached = context.outcome == Some(Outcome::Attached);
    (is_attached && context.certificates == Some(Certificates::Process)).then(|| {
        let why = format!("sessions with client certificates of {name} resume in the process that made them alone");
        Obstacle::new(why, "if you vouch for its check of certificates: `client_certificates = context` (docs/servers.md)")
    })
}

fn on_share(handshakes: Handshakes) -> Option<Obstacle> {
    let all = handshakes.full + handshakes.resumed;
    (all >= ENOUGH && handshakes.resumed * 10 < all).then(|| {
        let why = format!("of {all} handshakes only {} were resumed", handshakes.resumed);
        Obstacle::new(why, "`rejoin capture` tells whether clients offer sessions, and `rejoin doctor HOST` what becomes of them")
    })
}

/// Looks into the cache, where this user may.
fn on_cache(notes: &Notes) -> Vec<Obstacle> {
    let (Some(name), folder) = (notes.text(Subject::Cache), notes.text(Subject::Folder)) else {
        return Vec::new();
    };
    let folder = Path::new(folder.unwrap_or(Store::FOLDER));
    let store = name.parse().ok().and_then(|known| Store::open(folder, &known, None).ok());
    let Some(store) = store else { return Vec::new() };
    let mut obstacles: Vec<Obstacle> = on_size(name, &store.counters()).into_iter().collect();
    let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let is_cluster = store.mailbox().is_some();
    match store.ring() {
        Ok(Some(ring)) => obstacles.extend(on_ring(name, &ring, now_s, is_cluster)),
        // Its agent alone makes them.
        Ok(None) if is_cluster && notes.features.shares_ticket_keys => {
            obstacles.push(no_ring(name))
        }
        _ => {}
    }
    obstacles
}

fn no_ring(cache: &str) -> Obstacle {
    let why = format!(
        "the cache {cache} has no ticket keys of its cluster: they have not reached this machine, and a ticket that its servers \
         issue opens on this machine alone"
    );
    Obstacle::new(why, REACHES_VALKEY)
}

const REACHES_VALKEY: &str = "`rejoin cluster status` tells whether the agent reaches Valkey";

fn on_size(cache: &str, counters: &Counters) -> Option<Obstacle> {
    let Counters { hits, misses, wanted_after_eviction: wanted, .. } = *counters;
    (hits + misses >= ENOUGH && wanted * 20 > hits + misses).then(|| {
        let why = format!(
            "the cache {cache} is too small: of {} lookups {wanted} asked for a session that it had to evict",
            hits + misses
        );
        Obstacle::new(why, "give it more `capacity`; `rejoin plan` computes how much")
    })
}

fn on_ring(cache: &str, ring: &KeyRing, now_s: u64, is_cluster: bool) -> Option<Obstacle> {
    let late_s = ring.next_turn_s(now_s).map_or(0, |turn_s| now_s.saturating_sub(turn_s));
    let is_encrypting = ring.list(now_s).any(|key| key.state == KeyState::Encrypting);
    (is_encrypting && late_s > LATE_S).then(|| {
        let why =
            format!("the ticket keys of {cache} should have rotated {} hours ago", late_s / 3_600);
        let mend = if is_cluster {
            REACHES_VALKEY
        } else {
            "they rotate with the next handshake; `rejoin keys rotate` does it now"
        };
        Obstacle::new(why, mend)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_evicts_what_is_wanted_is_too_small() {
        let counters = |misses, wanted_after_eviction| Counters {
            hits: 100,
            misses,
            wanted_after_eviction,
            ..Counters::default()
        };
        let told = on_size("web", &counters(100, 40)).expect("an obstacle").to_string();
        assert!(told.contains("web") && told.contains("of 200 lookups 40"), "{told}");
        assert_eq!(on_size("web", &counters(100, 4)), None);
        assert_eq!(on_size("web", &Counters { hits: 5, ..counters(2, 7) }), None);
    }

    #[test]
    fn a_share_counts_only_among_many() {
        let handshakes = |full, resumed| Handshakes { full, resumed };
        assert!(on_share(handshakes(99, 1)).is_some());
        assert_eq!(on_share(handshakes(20, 0)), None);
        assert_eq!(on_share(handshakes(50, 50)), None);
    }
}
