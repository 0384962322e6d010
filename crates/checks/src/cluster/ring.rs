//! The ticket keys that machines have, and changes of them by hand.

use std::process::Command;

use rejoin_testkit::machines::Machine;
use rejoin_testkit::shipped::rejoin;

/// The keys of a machine's servers.
pub(super) fn keys(machine: &Machine) -> Vec<String> {
    let ring = machine.store().and_then(|store| store.ring().ok().flatten());
    ring.map_or_else(Vec::new, |ring| ring.list(0).map(|key| key.id.to_string()).collect())
}

/// Runs `rejoin keys` for a machine's cluster.
pub(super) fn change(machine: &Machine, what: &str, more: &[&String]) -> Result<(), String> {
    let cluster = format!("--cluster={}", machine.site.shown("cluster.toml"));
    let mut command = Command::new(rejoin());
    let told = command.args(["keys", what, &cluster]).args(more).output();
    let told = told.map_err(|error| error.to_string())?;
    match told.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&told.stderr).into_owned()),
    }
}
