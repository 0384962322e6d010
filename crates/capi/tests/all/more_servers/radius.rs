//! FreeRADIUS, whose peers log in over EAP: PEAP without a client certificate, and TLS with one.

use super::Seen;
use super::servers::{FREERADIUS, FREERADIUS_WITHOUT_CACHE, Server};
use super::table::Row;
use super::visits::{Both, Tally};
use crate::faults::foreign::seen_of_freeradius;

/// Measures it with its own cache and without. Empty if it is not installed.
pub(crate) fn rows() -> Vec<Row> {
    [("yes", &FREERADIUS), ("no", &FREERADIUS_WITHOUT_CACHE)]
        .into_iter()
        .filter_map(|(cache, server)| rows_with(cache, server))
        .flatten()
        .collect()
}

fn rows_with(cache: &str, server: &'static Server) -> Option<[Row; 2]> {
    let (without, with) = (seen(cache, false)?, seen(cache, true)?);
    let row = |asks: bool| {
        let only_again = |again: Both| Seen { again, second: None, restart: None, asked: None };
        let at = usize::from(asks);
        Row {
            server,
            asks,
            settings: "",
            without: only_again(without[at]),
            with: only_again(with[at]),
        }
    };
    Some([row(false), row(true)])
}

/// Returns what came of the returns of a peer by PEAP and by TLS.
fn seen(cache: &str, with: bool) -> Option<[Both; 2]> {
    let [tls12, tls13] = ["1.2", "1.3"].map(|version| seen_of_freeradius(version, cache, with));
    let (tls12, tls13) = (tls12?, tls13?);
    Some([0, 1].map(|method| [tally(&tls12[method]), tally(&tls13[method])]))
}

/// Counts the logins after the first.
fn tally(told: &str) -> Tally {
    const LOGINS: u32 = 4;
    let count = |what: &str| told.matches(what).count() as u32;
    Tally {
        visits: LOGINS - 1,
        refused: LOGINS.saturating_sub(count("EAP-SUCCESS")),
        resumed: count("- resumed=1"),
    }
}
