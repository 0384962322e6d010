//! The connections whose ClientHello is still to come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rejoin_client::protocol::Token;

use crate::offer::Offer;

static PENDING: LazyLock<Mutex<HashMap<Token, Arc<Offer>>>> = LazyLock::new(Mutex::default);

/// How many there are: while there are none, nothing that a program sends is looked at.
pub(crate) static COUNT: AtomicUsize = AtomicUsize::new(0);

/// More at once are not waited for: they go as they would.
const MOST: usize = 4_096;

pub(crate) fn add(offer: &Arc<Offer>) {
    let mut pending = lock();
    if pending.len() < MOST {
        pending.insert(offer.identity, Arc::clone(offer));
    }
    count(&pending);
}

pub(crate) fn take(identity: &Token) -> Option<Arc<Offer>> {
    let mut pending = lock();
    let taken = pending.remove(identity);
    count(&pending);
    taken
}

pub(crate) fn forget(identity: &Token) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        take(identity);
    }
}

fn count(pending: &HashMap<Token, Arc<Offer>>) {
    COUNT.store(pending.len(), Ordering::Relaxed);
}

fn lock() -> MutexGuard<'static, HashMap<Token, Arc<Offer>>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}
