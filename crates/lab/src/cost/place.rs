//! The cores of the server, as many as it is to have, and those of its clients: the others.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The cores of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cores {
    /// The server's.
    pub server: Vec<usize>,
    /// The clients'.
    pub clients: Vec<usize>,
}

impl Cores {
    /// Chooses the last `number` of the cores that this thread may run on for the server: the first ones usually have
    /// more interrupts.
    pub(super) fn here(number: usize) -> io::Result<Self> {
        let mine = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core)).collect();
        Self::of(&all, number).ok_or_else(|| {
            let here = all.len();
            io::Error::other(format!("{number} for the server, of {here} that may be used here"))
        })
    }

    fn of(all: &[usize], number: usize) -> Option<Self> {
        let (clients, server) = all.split_at_checked(all.len().checked_sub(number)?)?;
        let clients = if clients.is_empty() { all } else { clients };
        (!server.is_empty()).then(|| Self { server: server.to_vec(), clients: clients.to_vec() })
    }

    /// Returns true if the server shares a core with its clients.
    pub fn are_shared(&self) -> bool {
        self.clients.iter().any(|core| self.server.contains(core))
    }
}

/// Where this thread, and what it starts, may run; as before when dropped.
#[derive(Debug)]
pub(super) struct Place {
    before: CpuSet,
}

impl Place {
    pub(super) fn take(cores: &[usize]) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        for core in cores {
            set.set(*core);
        }
        sched_setaffinity(None, &set)?;
        Ok(Self { before })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // They were allowed a moment ago; if no more, the thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_has_a_core_of_its_own_where_there_are_two() {
        assert_eq!(Cores::of(&[], 1), None);
        assert_eq!(Cores::of(&[0, 3], 3), None);
        assert_eq!(Cores::of(&[0, 3], 0), None);
        let one = Cores::of(&[3], 1).expect("one");
        assert!(one.are_shared() && one.server == [3]);
        let two = Cores::of(&[0, 3], 1).expect("two");
        assert_eq!(
            (&two.server[..], &two.clients[..], two.are_shared()),
            (&[3][..], &[0][..], false)
        );
        let both = Cores::of(&[0, 3], 2).expect("two");
        assert!(both.are_shared() && both.server == [0, 3] && both.clients == [0, 3]);
    }

    #[test]
    fn a_place_is_given_back() {
        let before = sched_getaffinity(None).expect("known");
        let cores = Cores::here(1).expect("some");
        let place = Place::take(&cores.server).expect("allowed");
        assert_eq!(sched_getaffinity(None).expect("known").count(), 1);
        drop(place);
        assert_eq!(sched_getaffinity(None).expect("known"), before);
    }
}
