//! What the manager did, by program and by service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::protocol::{Handshakes, Share, Stats};

/// The counts of all users.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    open: AtomicU64,
    users: Mutex<HashMap<u32, User>>,
}

#[derive(Debug, Default)]
struct User {
    all: Handshakes,
    programs: HashMap<String, Handshakes>,
    services: HashMap<String, Handshakes>,
}

/// Users counted each by themselves; the programs and the services of each. What comes beyond is
/// counted together.
const USERS: usize = 256;
const NAMES: usize = 512;
const OTHERS: &str = "others";
/// Under what users beyond [`USERS`] are counted: nobody's (`chown(2)`).
const OTHER_USERS: u32 = u32::MAX;

impl Counts {
    /// Adds a handshake that a program had with a service.
    pub(crate) fn record(&self, uid: u32, program: &str, service: &str, of: &Handshakes) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = if users.len() < USERS || users.contains_key(&uid) { uid } else { OTHER_USERS };
        let user = users.entry(uid).or_default();
        user.all = plus(&user.all, of);
        for (names, name) in [(&mut user.programs, program), (&mut user.services, service)] {
            let is_named = names.len() < NAMES || names.contains_key(name);
            let counted = names.entry(if is_named { name } else { OTHERS }.to_owned()).or_default();
            *counted = plus(counted, of);
        }
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// What a user may see: root all, others their own.
    pub(crate) fn of(&self, uid: u32, (sessions, session_bytes): (u64, u64)) -> Stats {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = users.iter().filter(|(of, _)| uid == 0 || **of == uid);
        let mut all = User::default();
        for (_, user) in seen {
            all.all = plus(&all.all, &user.all);
            for (into, from) in
                [(&mut all.programs, &user.programs), (&mut all.services, &user.services)]
            {
                for (name, counted) in from {
                    let total = into.entry(name.clone()).or_default();
                    *total = plus(total, counted);
                }
            }
        }
        Stats {
            handshakes: all.all,
            open: self.open.load(Ordering::Relaxed),
            sessions,
            session_bytes,
            programs: busiest(all.programs),
            services: busiest(all.services),
        }
    }
}

fn plus(one: &Handshakes, other: &Handshakes) -> Handshakes {
    Handshakes {
        full: one.full + other.full,
        resumed: one.resumed + other.resumed,
        across_names: one.across_names + other.across_names,
        refused: one.refused + other.refused,
        failed: one.failed + other.failed,
        early_data: one.early_data + other.early_data,
    }
}

fn sum(of: &Handshakes) -> u64 {
    of.full + of.resumed + of.failed
}

fn busiest(names: HashMap<String, Handshakes>) -> Vec<Share> {
    let mut shares: Vec<_> =
        names.into_iter().map(|(name, handshakes)| Share { name, handshakes }).collect();
    shares.sort_by(|a, b| {
        sum(&b.handshakes).cmp(&sum(&a.handshakes)).then_with(|| a.name.cmp(&b.name))
    });
    shares.truncate(NAMES);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_sees_its_own_and_root_sees_all() {
        let counts = Counts::default();
        let full = Handshakes { full: 1, ..Handshakes::default() };
        let resumed = Handshakes { resumed: 1, ..Handshakes::default() };
        counts.record(7, "curl", "a:443", &full);
        counts.record(7, "git", "a:443", &resumed);
        counts.record(8, "curl", "b:443", &full);
        let own = counts.of(7, (0, 0));
        assert_eq!((own.handshakes.full, own.handshakes.resumed), (1, 1));
        assert_eq!(own.services.len(), 1);
        assert_eq!(counts.of(0, (0, 0)).handshakes.full, 2);
        assert_eq!(counts.of(9, (0, 0)).handshakes, Handshakes::default());
    }

    #[test]
    fn names_are_bounded() {
        let counts = Counts::default();
        let full = Handshakes { full: 1, ..Handshakes::default() };
        for number in 0..2 * NAMES {
            counts.record(7, "curl", &format!("{number}:443"), &full);
        }
        let stats = counts.of(7, (2, 3));
        assert!(stats.services.len() <= NAMES + 1);
        assert_eq!(stats.handshakes.full, 2 * NAMES as u64);
    }
}
