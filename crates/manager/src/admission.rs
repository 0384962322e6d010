//! The number of programs that are connected, in all and by user.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::protocol::ErrorKind;
use crate::settings::Settings;

/// The descriptors of a connection, at most: a program's socket, three sockets that it passed, and copies of two of
/// them.
const DESCRIPTORS: u64 = 6;
/// The descriptors reserved for refusals, lookups, and passed sockets that are being closed.
const OTHER_DESCRIPTORS: u64 = 512;
/// The refusals being answered at once. Programs beyond that are disconnected without an answer.
const REFUSALS: usize = 256;
/// The connections that a user may have for each that stays free for others. So however few there are, a user who has one
/// never takes the last, and each further user finds room.
const FOR_EACH_FREE: usize = 2;

/// The programs that are connected.
#[derive(Debug, Default)]
pub(crate) struct Admissions {
    here: Mutex<Here>,
}

#[derive(Debug, Default)]
struct Here {
    all: usize,
    refusals: usize,
    by_user: HashMap<u32, usize>,
}

/// One program's share of the limits, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    admissions: &'a Admissions,
    uid: Option<u32>,
}

impl Admissions {
    /// Admits or refuses a program. `None`: too many refusals are being answered already.
    pub(crate) fn admit(
        &self,
        uid: u32,
        settings: &Settings,
    ) -> Option<(Admission<'_>, Result<(), Failure>)> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = here.by_user.get(&uid).copied().unwrap_or_default();
        let free = settings.connections.saturating_sub(here.all);
        let most = match (of_user, free) {
            (0, 1..) => settings.connections_per_user,
            _ => settings.connections_per_user.min(free.saturating_sub(1) * FOR_EACH_FREE),
        };
        let refusal = if !settings.users.is_empty() && !settings.users.contains(&uid) {
            let detail = format!("user {uid} may not use this manager");
            Some(Failure::new(ErrorKind::NotPermitted, detail))
        } else if of_user >= most {
            Some(Failure::new(ErrorKind::Busy, "the limit of connections is reached"))
        } else {
            None
        };
        if let Some(failure) = refusal {
            if here.refusals >= REFUSALS {
                return None;
            }
            here.refusals += 1;
            return Some((Admission { admissions: self, uid: None }, Err(failure)));
        }
        here.all += 1;
        *here.by_user.entry(uid).or_default() += 1;
        Some((Admission { admissions: self, uid: Some(uid) }, Ok(())))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let mut here = self.admissions.here.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uid) = self.uid else {
            here.refusals -= 1;
            return;
        };
        here.all -= 1;
        if let Some(of_user) = here.by_user.get_mut(&uid) {
            *of_user -= 1;
            if *of_user == 0 {
                here.by_user.remove(&uid);
            }
        }
    }
}

/// Returns the number of connections for which there are descriptors.
pub(crate) fn affordable() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Admits a user as often as possible.
    fn fill<'a>(of: &'a Admissions, uid: u32, settings: &Settings) -> Vec<Admission<'a>> {
        let admit = || of.admit(uid, settings).filter(|(_, let_in)| let_in.is_ok());
        std::iter::from_fn(|| admit().map(|(admission, _)| admission)).collect()
    }

    #[test]
    fn one_user_leaves_room_for_the_next_however_few_there_are() {
        for connections in [2, 31, 85, 10_000] {
            let admissions = Admissions::default();
            let settings = Settings { connections, ..Settings::default() };
            let first = fill(&admissions, 1, &settings);
            let second = fill(&admissions, 2, &settings);
            assert!(!first.is_empty() && !second.is_empty(), "{connections}");
            if connections > 10 {
                assert!(!fill(&admissions, 3, &settings).is_empty(), "{connections}");
            }
            drop(first);
            assert!(!fill(&admissions, 1, &settings).is_empty());
        }
        let settings = Settings { connections: 10_000, ..Settings::default() };
        assert_eq!(fill(&Admissions::default(), 1, &settings).len(), 5_000);
    }
}
