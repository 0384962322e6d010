//! The addresses of an origin that accept each other's sessions. One name may stand for several hosts, each with
//! ticket keys of its own, which cannot open the others' tickets. Each trial costs a ticket, so there are few.

use std::collections::VecDeque;
use std::net::IpAddr;

/// The trials between one origin's addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The newest last.
    tried: VecDeque<Trial>,
}

#[derive(Debug)]
struct Trial {
    issued_by: IpAddr,
    offered_to: IpAddr,
    was_taken: bool,
}

/// A reason to offer a session to an address, the best reason last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Trial,
    TookOthers,
    IssuedIt,
}

impl Addresses {
    /// The trials remembered.
    const MOST: usize = 64;

    /// Returns the reason to offer a session there. `None`: it must not be offered there.
    pub(super) fn reason(&self, issued_by: IpAddr, offered_to: IpAddr) -> Option<Reason> {
        if issued_by == offered_to {
            return Some(Reason::IssuedIt);
        }
        let is_this = |trial: &&Trial| trial.is(issued_by, offered_to);
        match self.tried.iter().find(is_this) {
            Some(trial) => trial.was_taken.then_some(Reason::TookOthers),
            None => self.may_try(offered_to).then_some(Reason::Trial),
        }
    }

    /// Returns true if another trial is worth a ticket. An address that refused is not tried again, and no address is
    /// tried where more refused than accepted.
    fn may_try(&self, offered_to: IpAddr) -> bool {
        let (taken, refused): (Vec<_>, Vec<_>) =
            self.tried.iter().partition(|trial| trial.was_taken);
        refused.len() <= taken.len() && !refused.iter().any(|trial| trial.offered_to == offered_to)
    }

    pub(super) fn resumed(&mut self, issued_by: IpAddr, offered_to: IpAddr) {
        if issued_by != offered_to {
            self.forget(issued_by, offered_to);
            self.remember(Trial { issued_by, offered_to, was_taken: true });
        }
    }

    /// Notes that an address refused a session. Returns true if this concerns the session's family, and not only the
    /// pair of addresses. Addresses that shared keys no longer share those; the next trial shows if they share others.
    pub(super) fn refused(&mut self, issued_by: IpAddr, offered_to: IpAddr) -> bool {
        if issued_by == offered_to || self.forget(issued_by, offered_to) {
            return true;
        }
        self.remember(Trial { issued_by, offered_to, was_taken: false });
        false
    }

    /// Forgets a trial. Returns true if the session had been accepted.
    fn forget(&mut self, issued_by: IpAddr, offered_to: IpAddr) -> bool {
        let at = self.tried.iter().position(|trial| trial.is(issued_by, offered_to));
        at.and_then(|at| self.tried.remove(at)).is_some_and(|trial| trial.was_taken)
    }

    fn remember(&mut self, trial: Trial) {
        if self.tried.len() >= Self::MOST {
            self.tried.pop_front();
        }
        self.tried.push_back(trial);
    }
}

impl Trial {
    fn is(&self, issued_by: IpAddr, offered_to: IpAddr) -> bool {
        (self.issued_by, self.offered_to) == (issued_by, offered_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn hosts_with_keys_of_their_own_cost_one_trial() {
        let mut addresses = Addresses::default();
        let [a, b, c] = [1, 2, 3].map(address);
        assert_eq!(addresses.reason(a, b), Some(Reason::Trial));
        assert!(!addresses.refused(a, b));
        for (from, to) in [(a, b), (c, b), (b, a), (a, c)] {
            assert_eq!(addresses.reason(from, to), None);
        }
        assert_eq!(addresses.reason(a, a), Some(Reason::IssuedIt));
        assert!(addresses.refused(a, a));
    }

    #[test]
    fn keys_in_common_are_lost_in_common_and_may_be_found_again() {
        let mut addresses = Addresses::default();
        let [a, b] = [1, 2].map(address);
        addresses.resumed(a, b);
        assert_eq!(addresses.reason(a, b), Some(Reason::TookOthers));
        assert!(addresses.refused(a, b));
        assert_eq!(addresses.reason(a, b), Some(Reason::Trial));
        for other in 10..10 + 2 * Addresses::MOST as u32 {
            addresses.resumed(a, address(other));
        }
        assert_eq!(addresses.tried.len(), Addresses::MOST);
    }
}
