//! A quota for all users together, of which each user can take a part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Quota {
    all: Arc<Semaphore>,
    of_each: usize,
    users: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// A part of the quota, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Quota {
    pub(crate) fn new(all: usize, of_each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_each, users: Mutex::default() }
    }

    /// Waits for one unit.
    pub(crate) async fn wait(&self, uid: u32) -> Option<Permit> {
        let of_user = self.user(uid).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Permit { _of_user: of_user, _of_all: of_all })
    }

    /// Takes this many units, if they are free, and if the user then holds no more than were free. So one user never
    /// takes the last, and each further user finds some.
    pub(crate) fn take(&self, uid: u32, units: u32) -> Option<Permit> {
        let of_user = self.user(uid);
        let held = self.of_each.saturating_sub(of_user.available_permits());
        if held + units as usize > self.all.available_permits() {
            return None;
        }
        let of_user = of_user.try_acquire_many_owned(units).ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_many_owned(units).ok()?;
        Some(Permit { _of_user: of_user, _of_all: of_all })
    }

    /// Returns a user's part. Users that hold nothing are forgotten.
    fn user(&self, uid: u32) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, has| Arc::strong_count(has) > 1);
        let has = users.entry(uid).or_insert_with(|| Semaphore::new(self.of_each).into());
        Arc::clone(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_its_part_and_no_more() {
        let quota = Quota::new(10, 6);
        let own = quota.take(1, 6);
        assert!(own.is_some() && quota.take(1, 1).is_none());
        let other = quota.take(2, 4);
        assert!(other.is_some() && quota.take(2, 1).is_none());
        drop(own);
        assert!(quota.take(1, 7).is_none() && quota.take(1, 6).is_some());
        drop(other);
        assert!(quota.take(3, 6).is_some());
        assert_eq!(quota.users.lock().unwrap().len(), 1);
    }
}
