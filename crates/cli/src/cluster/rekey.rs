//! `rejoin cluster rekey`, and what `rejoin cluster status` shows of the cluster's key.

use std::io::ErrorKind;

use rejoin_cluster::{ClusterSecret, Error, KeyName, RekeyStep, Settings, Turn};
use serde_json::{Value, json};

use crate::arguments::Choice;
use crate::terminal;

/// The values of STEP.
pub(super) const STEPS: &[Choice<RekeyStep>] = &[
    (RekeyStep::Add, "add", "make the next key, which all machines accept from now on"),
    (RekeyStep::Use, "use", "use the next key, and still accept the last one"),
    (RekeyStep::Drop, "drop", "no longer accept the last key"),
];

/// Returns the consequence and remedy of a changed key file that cannot be used. A process that is started anew as root reads
/// what this one may not, and no other file that is refused here: the last keys would be lost with this one.
pub(super) fn stays(error: &Error) -> &'static str {
    match error {
        Error::Unreadable { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => {
            "the last keys stay in use: let the user of this process read the file, or restart this process"
        }
        _ => {
            "the last keys stay in use, which only this process has: do not restart it before the file is right"
        }
    }
}

/// Takes a step in the key file of these settings, and says what comes next.
pub(super) fn take(settings: &Settings, step: RekeyStep, json: bool) -> anyhow::Result<()> {
    let secret = ClusterSecret::rekey(&settings.key_file, settings.agent_uid, step)?;
    if json {
        return terminal::print_result(&record(&secret).to_string());
    }
    let next = match step {
        RekeyStep::Add => "then run rejoin cluster rekey use",
        RekeyStep::Use => {
            "then run rejoin cluster rekey drop, after which sessions from before this step are not found"
        }
        RekeyStep::Drop => "then the key is replaced",
    };
    let file = settings.key_file.display();
    terminal::print_result(&format!(
        "{file}: {}\ncopy it to all machines of the cluster, wait until their agents say that it has changed, {next}",
        keys(&secret)
    ))
}

/// Says which keys are used and accepted.
pub(super) fn keys(secret: &ClusterSecret) -> String {
    let key = secret.key_name();
    match secret.other_name() {
        None => format!("key {key} is used"),
        Some((Turn::Next, next)) => {
            format!("key {key} is used, and key {next} is accepted, which is used next")
        }
        Some((Turn::Last, last)) => {
            format!("key {key} is used, and key {last} is accepted, which was used before")
        }
    }
}

/// Says which keys this machine has, and which of them the ring of ticket keys in Valkey is under.
pub(super) fn status(secret: &ClusterSecret, ring: Option<KeyName>) -> String {
    let other = secret.other_name().filter(|(_, name)| ring == Some(*name));
    let ring = match (ring, other) {
        (None, _) => "none is in Valkey",
        (Some(_), None) => "the ones in Valkey are under it",
        (Some(_), Some((Turn::Next, _))) => "the ones in Valkey are under the next one",
        (Some(_), Some((Turn::Last, _))) => "the ones in Valkey are under the last one",
    };
    format!("{}; of ticket keys, {ring}", keys(secret))
}

/// The names of the keys.
pub(super) fn record(secret: &ClusterSecret) -> Value {
    let other = |wanted: Turn| {
        let name = secret.other_name().filter(|(turn, _)| *turn == wanted);
        name.map(|(_, name)| name.to_string())
    };
    json!({
        "used": secret.key_name().to_string(),
        "next": other(Turn::Next),
        "last": other(Turn::Last),
    })
}
