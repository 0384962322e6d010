//! The secrets of connections: the manager holds them and shows them to nobody, and no program holds them. The test kit
//! searches for them.

use std::collections::BTreeSet;

use super::{Effort, Found};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::programs::hidden::{Exposed, Hidden, look};
use rejoin_testkit::programs::secrets::{Held, Holder, hold};
use rejoin_testkit::stacks::Tls;

pub(crate) fn programs(_: Effort) -> Option<Found> {
    let (mut secrets, mut bytes, mut found) = (0, 0, BTreeSet::new());
    let (mut control, mut kinds) = (0, 0);
    for tls in Tls::ALL {
        for holder in [Holder::Connect, Holder::Python, Holder::Preloaded] {
            let held = hold(&Managed::start("check-secrets"), holder, tls);
            secrets += held.secrets.len();
            bytes += held.search.bytes;
            found.extend(held.search.found);
        }
        let held: Held = hold(&Managed::start("check-control"), Holder::SClient, tls);
        control += held.search.found.len();
        kinds += held.kinds().len();
    }
    let figure = format!(
        "{} of {secrets} in {} MB of rejoin connect and Python, which held their connections; \
         in OpenSSL's own client {control} of {kinds} kinds",
        if found.is_empty() { "none".to_owned() } else { format!("{found:?}") },
        bytes / 1_000_000
    );
    Some(Found { figure, holds: found.is_empty() && control == kinds })
}

pub(crate) fn manager(_: Effort) -> Option<Found> {
    let Hidden { manager, other } = look();
    let told = |of: &Exposed| {
        let readable = if of.is_readable { "can be read" } else { "cannot be read" };
        let core = if of.leaves_core { "leaves a core" } else { "leaves no core" };
        format!("{readable} and {core}")
    };
    let figure = format!("{}; another program {}", told(&manager), told(&other));
    let hides = manager == Exposed { is_readable: false, leaves_core: false };
    // If no process can be read here, the check proves nothing.
    let shows = other == Exposed { is_readable: true, leaves_core: true };
    shows.then_some(Found { figure, holds: hides })
}
