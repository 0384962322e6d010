//! Naive policies with ghosts, after the pseudo-code of their papers.

use std::collections::VecDeque;

use rejoin_sim::policy::{Access, Policy};

type Keys = VecDeque<u64>;

fn take(keys: &mut Keys, key: u64) -> bool {
    let at = keys.iter().position(|&other| other == key);
    at.and_then(|at| keys.remove(at)).is_some()
}

/// ARC (Megiddo & Modha, FAST 2003, Fig. 4). Lists from old to new.
pub(crate) struct FourLists {
    t1: Keys,
    t2: Keys,
    b1: Keys,
    b2: Keys,
    target: f64,
    capacity: usize,
}

impl FourLists {
    pub(crate) fn new(capacity: usize) -> Self {
        let [t1, t2, b1, b2] = [const { Keys::new() }; 4];
        Self { t1, t2, b1, b2, target: 0.0, capacity }
    }

    fn replace(&mut self, in_b2: bool) {
        // Figure 4 has no removal, and so no cache that has both ghosts and room.
        if self.len() < self.capacity {
            return;
        }
        let t1 = self.t1.len() as f64;
        let from_t1 = !self.t1.is_empty() && (t1 > self.target || (in_b2 && t1 == self.target));
        if from_t1 || self.t2.is_empty() {
            self.b1.extend(self.t1.pop_front());
        } else {
            self.b2.extend(self.t2.pop_front());
        }
    }

    fn case_four(&mut self, key: u64) {
        if self.t1.len() + self.b1.len() == self.capacity {
            if self.t1.len() < self.capacity {
                self.b1.pop_front();
                self.replace(false);
            } else {
                self.t1.pop_front();
            }
        } else {
            if self.len() + self.b1.len() + self.b2.len() == 2 * self.capacity {
                self.b2.pop_front();
            }
            self.replace(false);
        }
        self.t1.push_back(key);
    }
}

impl Policy for FourLists {
    fn access(&mut self, access: &Access) -> bool {
        let there = self.remove(access.key);
        if there {
            self.t2.push_back(access.key);
        }
        there
    }

    fn store(&mut self, access: &Access) {
        let key = access.key;
        if self.t1.contains(&key) || self.t2.contains(&key) {
            return;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.b1, key) {
            self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
            self.replace(false);
            self.t2.push_back(key);
        } else if take(&mut self.b2, key) {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
            self.replace(true);
            self.t2.push_back(key);
        } else {
            self.case_four(key);
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        take(&mut self.t1, key) || take(&mut self.t2, key)
    }

    fn len(&self) -> usize {
        self.t1.len() + self.t2.len()
    }
}

/// S3-FIFO as in libCacheSim. Queues from old to new, with the uses of each.
pub(crate) struct ThreeQueues {
    small: VecDeque<(u64, u32)>,
    main: VecDeque<(u64, u32)>,
    ghosts: Keys,
    capacity: usize,
    main_capacity: usize,
    ghosts_capacity: usize,
}

impl ThreeQueues {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Keys::new(),
            capacity,
            main_capacity: capacity - (capacity as f64 * 0.1).max(1.0) as usize,
            ghosts_capacity: (capacity as f64 * 0.9) as usize,
        }
    }

    fn evict_small(&mut self) {
        while let Some((key, uses)) = self.small.pop_front() {
            if uses >= 2 {
                self.main.push_back((key, 0));
                continue;
            }
            self.ghosts.push_back(key);
            if self.ghosts.len() > self.ghosts_capacity {
                self.ghosts.pop_front();
            }
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some((key, uses)) = self.main.pop_front() {
            if uses == 0 {
                return;
            }
            self.main.push_back((key, uses.min(3) - 1));
        }
    }
}

impl Policy for ThreeQueues {
    fn access(&mut self, access: &Access) -> bool {
        let mut sessions = self.small.iter_mut().chain(&mut self.main);
        let found = sessions.find(|session| session.0 == access.key);
        found.map(|session| session.1 += 1).is_some()
    }

    fn store(&mut self, access: &Access) {
        let mut sessions = self.small.iter().chain(&self.main);
        if sessions.any(|session| session.0 == access.key) {
            return;
        }
        let was_ghost = take(&mut self.ghosts, access.key);
        while self.len() == self.capacity {
            if self.main.len() > self.main_capacity || self.small.is_empty() {
                self.evict_main();
            } else {
                self.evict_small();
            }
        }
        let queue = if was_ghost { &mut self.main } else { &mut self.small };
        queue.push_back((access.key, 0));
    }

    fn remove(&mut self, key: u64) -> bool {
        let before = self.len();
        self.small.retain(|session| session.0 != key);
        self.main.retain(|session| session.0 != key);
        self.len() < before
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }
}
