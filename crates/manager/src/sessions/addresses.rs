//! Which addresses of a server take each other's sessions. Behind one name there may be several
//! hosts, and each may have ticket keys of its own: what one of them issued is nothing to the
//! others. It costs a ticket to find out, so little is tried.

use std::collections::VecDeque;
use std::net::IpAddr;

/// What is known of one place's addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The last that was learned last.
    tried: VecDeque<Trial>,
}

#[derive(Debug)]
struct Trial {
    issued_by: IpAddr,
    offered_to: IpAddr,
    was_taken: bool,
}

/// Why a session is offered to an address, the best reason last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Trial,
    TookOthers,
    IssuedIt,
}

impl Addresses {
    /// So many are remembered.
    const MOST: usize = 64;

    /// `None`: it is not to be offered there.
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

    /// An address that refused is not tried again, and none is where more refused than not.
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

    /// Returns whether this is news of the session, and not of the address alone. Where they had
    /// keys in common these are gone; whether they have others in common shows the next trial.
    pub(super) fn refused(&mut self, issued_by: IpAddr, offered_to: IpAddr) -> bool {
        if issued_by == offered_to || self.forget(issued_by, offered_to) {
            return true;
        }
        self.remember(Trial { issued_by, offered_to, was_taken: false });
        false
    }

    /// Returns whether it had been taken.
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
