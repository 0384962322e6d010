//! The names of all settings, and what is said of other names.

use crate::variable;

/// The settings of a server. Each is also a variable: `REJOIN_` and its name in capitals.
pub const SETTINGS: [&str; 17] = [
    "cache",
    "capacity",
    "folder",
    "policy",
    "source_share",
    "source_by",
    "stateful",
    "single_use",
    "early_data",
    "ticket_keys",
    "key_file",
    "rotate_every",
    "ticket_lifetime",
    "resumable_for",
    "context",
    "client_certificates",
    "log",
];

/// The names of the other variables, in the same form.
const OTHERS: [&str; 5] = ["debug", "label", "library", "manager", "patience_ms"];

const PREFIX: &str = "REJOIN_";

/// Returns the name of a setting's variable.
pub fn variable_of(setting: &str) -> String {
    format!("{PREFIX}{}", setting.to_ascii_uppercase())
}

/// Checks a name in the configuration of a server.
///
/// # Errors
/// The complaint about a name that is not in [`SETTINGS`].
pub fn check_setting(name: &str) -> Result<(), String> {
    if SETTINGS.contains(&name) {
        return Ok(());
    }
    Err(match nearest(name, &SETTINGS) {
        Some(meant) => format!("{name}: no such setting; did you mean {meant}?"),
        None => format!("{name}: no such setting; there are {}", SETTINGS.join(", ")),
    })
}

/// Checks the names of the variables that begin with `REJOIN_`. Returns those that resemble none of Rejoin's, in order:
/// they are another program's.
///
/// # Errors
/// The complaint about the first one that is probably misspelled.
pub fn check_variables() -> Result<Vec<String>, String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    // `variable` also ignores the environment of a program with more rights than the user who started it.
    let ours = names.filter(|name| name.starts_with(PREFIX) && variable(name).is_some());
    strangers(ours.collect())
}

fn strangers(mut names: Vec<String>) -> Result<Vec<String>, String> {
    let known = [&SETTINGS[..], &OTHERS].concat();
    names.retain(|name| known.iter().all(|known| variable_of(known) != *name));
    names.sort();
    let misspelled = |name: &String| Some((name.clone(), nearest(&name[PREFIX.len()..], &known)?));
    match names.iter().find_map(misspelled) {
        Some((name, meant)) => {
            Err(format!("{name}: no such setting; did you mean {}?", variable_of(meant)))
        }
        None => Ok(names),
    }
}

/// Returns the known name that another one was probably meant to be: at most a quarter of its letters and one more
/// differ, capitals aside.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let meant = known.iter().min_by_key(|known| distance(name, known))?;
    (distance(name, meant) <= 1 + meant.len() / 4).then_some(meant)
}

/// Returns the number of bytes to insert, remove or replace in order to get from one name to another (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, byte) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, other) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(!byte.eq_ignore_ascii_case(&other));
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(1 + diagonal.min(row[column]));
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        let pairs = [("", ""), ("", "abc"), ("kitten", "sitting"), ("capasity", "Capacity")];
        assert_eq!(pairs.map(|(from, to)| distance(from, to)), [0, 3, 3, 1]);
        assert_eq!(pairs.map(|(from, to)| distance(to, from)), [0, 3, 3, 1]);
    }

    #[test]
    fn the_nearest_name_is_meant_unless_it_is_far() {
        for (name, meant) in [
            ("capasity", Some("capacity")),
            ("rotate_evry", Some("rotate_every")),
            ("ticketkeys", Some("ticket_keys")),
            ("Cache", Some("cache")),
            ("frobnicate", None),
            ("size", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &SETTINGS), meant, "{name}");
        }
    }

    #[test]
    fn variables_are_known_misspelled_or_others() {
        let check = |names: &[&str]| strangers(names.iter().map(|name| (*name).into()).collect());
        assert_eq!(check(&["REJOIN_CACHE", "REJOIN_PATIENCE_MS"]), Ok(vec![]));
        let others = ["REJOIN_PORT", "REJOIN_PORT_443_TCP", "REJOIN_SERVICE_HOST"];
        assert_eq!(check(&others), Ok(others.map(str::to_owned).to_vec()));
        let meant = "REJOIN_LABLE: no such setting; did you mean REJOIN_LABEL?";
        assert_eq!(check(&["REJOIN_PORT", "REJOIN_LABLE"]), Err(meant.to_owned()));
        let meant = "REJOIN_cache: no such setting; did you mean REJOIN_CACHE?";
        assert_eq!(check(&["REJOIN_cache"]), Err(meant.to_owned()));
    }
}
