//! The decision about each connection: one line if `REJOIN_DEBUG` is set, and a count in the manager.

use std::sync::OnceLock;

use rejoin_abi::gate::get_or_make;
use rejoin_client::protocol::{Connected, Directly};

use crate::counted::count;

fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *get_or_make(&ON, rejoin_abi::is_debugging)
}

/// Reports that a connection goes directly.
pub fn directly(why: Directly) {
    tell(|| format!("directly: {why}"));
    count(why);
}

/// Reports that the manager refused a connection.
pub(crate) fn refused(service: &str, why: Directly, error: &rejoin_client::Error) {
    tell(|| format!("{service}: directly: {why}: {error}"));
}

/// Reports that the manager made a connection.
pub fn stands(found: &Connected, is_verified: bool) {
    tell(|| {
        let how = if found.resumed { "resumed" } else { "in full" };
        let verified = if is_verified { "verified" } else { "not verified" };
        format!("{}: through the manager: {how}, {}, {verified}", found.peer, found.version)
    });
}

fn tell(line: impl FnOnce() -> String) {
    if is_on() {
        rejoin_abi::report(&line());
    }
}
