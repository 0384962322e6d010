//! Counters of handshakes, by program and by service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::protocol::{Directly, Handshakes, Share, Stats, Went};

/// The counters of all users.
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
    /// Connections that bypassed the manager, by reason.
    directly: HashMap<Directly, u64>,
}

/// The number of users that have counters of their own. All further users share one set.
const USERS: usize = 256;
/// The number of programs, and of services, that a user has counters for. All further ones are counted as
/// [`OTHERS`].
const NAMES: usize = 512;
const OTHERS: &str = "others";
/// The uid under which users beyond [`USERS`] are counted: no user has it (`chown(2)`).
const OTHER_USERS: u32 = u32::MAX;

impl Counts {
    /// Adds a handshake that a program had with a service.
    pub(crate) fn record(&self, uid: u32, program: &str, service: &str, of: &Handshakes) {
        self.of_user(uid, |user| {
            user.all = plus(&user.all, of);
            for (names, name) in [(&mut user.programs, program), (&mut user.services, service)] {
                let is_named = names.len() < NAMES || names.contains_key(name);
                let name = if is_named { name } else { OTHERS };
                let counted = names.entry(name.to_owned()).or_default();
                *counted = plus(counted, of);
            }
        });
    }

    /// Adds connections that bypassed the manager.
    pub(crate) fn went_directly(&self, uid: u32, why: Directly, times: u64) {
        self.of_user(uid, |user| {
            let counted = user.directly.entry(why).or_default();
            *counted = counted.saturating_add(times);
        });
    }

    fn of_user(&self, uid: u32, add: impl FnOnce(&mut User)) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = if users.len() < USERS || users.contains_key(&uid) { uid } else { OTHER_USERS };
        add(users.entry(uid).or_default());
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the counters that a user may see: root sees all, other users their own.
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
            for (why, times) in &user.directly {
                let total = all.directly.entry(*why).or_default();
                *total = total.saturating_add(*times);
            }
        }
        Stats {
            handshakes: all.all,
            open: self.open.load(Ordering::Relaxed),
            sessions,
            session_bytes,
            programs: busiest(all.programs),
            services: busiest(all.services),
            directly: most(all.directly),
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

/// Returns the names with the most handshakes, and all others as one more: root sees the names of several users together.
fn busiest(mut names: HashMap<String, Handshakes>) -> Vec<Share> {
    let mut others = names.remove(OTHERS);
    let mut shares: Vec<_> =
        names.into_iter().map(|(name, handshakes)| Share { name, handshakes }).collect();
    let by_handshakes = |a: &Share, b: &Share| {
        sum(&b.handshakes).cmp(&sum(&a.handshakes)).then_with(|| a.name.cmp(&b.name))
    };
    shares.sort_by(by_handshakes);
    for Share { handshakes, .. } in shares.drain(NAMES.min(shares.len())..) {
        others = Some(plus(&others.unwrap_or_default(), &handshakes));
    }
    let others = others.map(|handshakes| Share { name: OTHERS.to_owned(), handshakes });
    shares.extend(others);
    shares.sort_by(by_handshakes);
    shares
}

fn most(reasons: HashMap<Directly, u64>) -> Vec<Went> {
    let mut all: Vec<_> = reasons.into_iter().map(|(why, times)| Went { why, times }).collect();
    all.sort_by_key(|went| (std::cmp::Reverse(went.times), went.why.name()));
    all
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
    fn reasons_are_counted_by_user_and_the_most_common_comes_first() {
        let counts = Counts::default();
        counts.went_directly(7, Directly::KeyLog, 2);
        counts.went_directly(7, Directly::Callback, 3);
        counts.went_directly(8, Directly::KeyLog, u64::MAX);
        let went = |why, times| Went { why, times };
        let own = [went(Directly::Callback, 3), went(Directly::KeyLog, 2)];
        assert_eq!(counts.of(7, (0, 0)).directly, own);
        assert_eq!(counts.of(0, (0, 0)).directly[0], went(Directly::KeyLog, u64::MAX));
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

    /// A sum over names that lacked some would not be what the manager counted.
    #[test]
    fn names_add_up_to_all_handshakes() {
        let counts = Counts::default();
        let of = |full, failed| Handshakes { full, failed, ..Handshakes::default() };
        for number in 0..2 * NAMES as u64 {
            for uid in [7, 8] {
                let names = [format!("program {uid} {number}"), format!("{uid}.{number}:443")];
                counts.record(uid, &names[0], &names[1], &of(1 + number % 3, uid.into()));
            }
        }
        // The busiest name comes later than others.
        counts.record(8, "program 8 500", "8.500:443", &of(5_000, 0));
        for uid in [0, 7, 8] {
            let stats = counts.of(uid, (0, 0));
            for names in [&stats.services, &stats.programs] {
                let all = names.iter().map(|share| &share.handshakes);
                let all = all.fold(Handshakes::default(), |sum, share| plus(&sum, share));
                assert_eq!(all, stats.handshakes, "what {uid} sees");
                assert!(names.len() <= NAMES + 1, "{} names", names.len());
                let others = names.iter().filter(|share| share.name == OTHERS).count();
                assert_eq!(others, 1, "what {uid} sees");
            }
            let mut first = stats.services.iter().take(2).map(|share| &share.name);
            assert!(uid == 7 || first.any(|name| name == "8.500:443"), "{:?}", stats.services[0]);
        }
    }
}
