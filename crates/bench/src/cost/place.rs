//! Who runs on which core: the server on one, its clients on the others.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The cores of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cores {
    /// The server's.
    pub server: usize,
    /// The clients'.
    pub clients: Vec<usize>,
}

impl Cores {
    /// Of those that this thread may run on, the last is the server's: the first ones usually have
    /// more interrupts.
    pub(super) fn here() -> io::Result<Self> {
        let mine = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core)).collect();
        Self::of(&all).ok_or_else(|| io::Error::other("no core to run on"))
    }

    fn of(all: &[usize]) -> Option<Self> {
        let (server, others) = all.split_last()?;
        let clients = if others.is_empty() { all } else { others };
        Some(Self { server: *server, clients: clients.to_vec() })
    }

    /// Whether the server shares its core with its clients.
    pub fn are_shared(&self) -> bool {
        self.clients.contains(&self.server)
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
        assert_eq!(Cores::of(&[]), None);
        let one = Cores::of(&[3]).expect("one");
        assert!(one.are_shared() && one.server == 3);
        let two = Cores::of(&[0, 3]).expect("two");
        assert_eq!((two.server, &two.clients[..], two.are_shared()), (3, &[0][..], false));
    }

    #[test]
    fn a_place_is_given_back() {
        let before = sched_getaffinity(None).expect("known");
        let cores = Cores::here().expect("some");
        let place = Place::take(&[cores.server]).expect("allowed");
        assert_eq!(sched_getaffinity(None).expect("known").count(), 1);
        drop(place);
        assert_eq!(sched_getaffinity(None).expect("known"), before);
    }
}
