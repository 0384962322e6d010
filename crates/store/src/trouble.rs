//! Trouble with a cache in use, which is reported once.
//!
//! It fails no handshake, so there is no error to return; but the program may want a line in its log.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Trouble with the memory of a cache in use. The greater is the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum Trouble {
    /// Contents that can be trusted are kept, and the rest is forgotten.
    #[error(
        "something in it made no sense, since a process died in the middle of an operation or \
         another program wrote to it: some sessions are forgotten"
    )]
    Damaged = 1,
    /// A lock was written over and cannot be mended, because a thread may hold it. Its shard, or the ticket keys, stay
    /// out of use until that thread lets go of it, or the cache is removed.
    #[error(
        "a lock in it was written over: the sessions or ticket keys under it are neither found nor stored; \
         run `rejoin store remove` with its name and restart its servers"
    )]
    LockLost = 2,
    /// This process is without the cache from now on.
    #[error("its file was cut short: remove it and restart its servers; going on without it")]
    CutShort = 3,
}

/// Reports each kind of trouble once, and none after a worse one.
#[derive(Default)]
pub(crate) struct Alarm {
    listener: OnceLock<Box<dyn Fn(Trouble) + Send + Sync>>,
    /// The worst so far.
    raised: AtomicU8,
}

impl Alarm {
    /// Sets the listener. Only the first one is kept.
    pub(crate) fn listen(&self, listener: impl Fn(Trouble) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Returns true if this trouble, or a worse one, was raised.
    pub(crate) fn has_raised(&self, trouble: Trouble) -> bool {
        self.raised.load(Ordering::Relaxed) >= trouble as u8
    }

    #[cold]
    pub(crate) fn raise(&self, trouble: Trouble) {
        if self.raised.fetch_max(trouble as u8, Ordering::Relaxed) >= trouble as u8 {
            return;
        }
        if let Some(listener) = self.listener.get() {
            listener(trouble);
        }
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Alarm({})", self.raised.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_trouble_is_told_once_and_none_after_a_worse() {
        let (alarm, told) = (Alarm::default(), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&told);
        alarm.listen(move |trouble| heard.lock().expect("no panic").push(trouble));
        let [little, great] = [Trouble::Damaged, Trouble::CutShort];
        [little, little, great, great, little].iter().for_each(|trouble| alarm.raise(*trouble));
        assert_eq!(*told.lock().expect("no panic"), [little, great]);
    }
}
