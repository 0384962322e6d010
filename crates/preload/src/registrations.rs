//! The `epoll` registrations that the program makes, by descriptor, so that the socket that takes another's place can
//! be registered in the same way.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, epoll_event};
use rejoin_abi::Registered;

/// The last registration of a descriptor. It may have ended with its socket: whoever uses it asks `epoll` first.
struct Slot {
    /// The descriptor of the instance plus one in the upper half, and the events in the lower half. 0: there is none.
    place: AtomicU64,
    data: AtomicU64,
}

static SLOTS: [Slot; 16_384] =
    [const { Slot { place: AtomicU64::new(0), data: AtomicU64::new(0) } }; 16_384];

fn slot(descriptor: c_int) -> Option<&'static Slot> {
    SLOTS.get(usize::try_from(descriptor).ok()?)
}

/// Notes what a successful call of `epoll_ctl` has done.
pub(crate) fn note(instance: c_int, what: c_int, descriptor: c_int, event: Option<epoll_event>) {
    let Some(slot) = slot(descriptor) else { return };
    match event {
        Some(event) if what != libc::EPOLL_CTL_DEL => {
            slot.place.store(0, Ordering::Relaxed);
            slot.data.store(event.u64, Ordering::Release);
            let place = (instance as u64 + 1) << 32 | u64::from(event.events);
            slot.place.store(place, Ordering::Release);
        }
        _ => slot.place.store(0, Ordering::Release),
    }
}

/// Returns the last registration of a descriptor.
fn of(descriptor: c_int) -> Option<Registered> {
    let slot = slot(descriptor)?;
    let place = slot.place.load(Ordering::Acquire);
    let data = slot.data.load(Ordering::Acquire);
    // Another thread changes it if it differs now.
    let is_whole = place > 0 && slot.place.load(Ordering::Acquire) == place;
    let instance = ((place >> 32) as c_int).wrapping_sub(1);
    is_whole.then_some(Registered { instance, events: place as u32, data })
}

/// Writes the last registration of a descriptor for an adapter.
pub(crate) unsafe extern "C" fn written(descriptor: c_int, into: *mut Registered) -> c_int {
    let Some(registered) = of(descriptor) else { return 0 };
    // SAFETY: the adapter has room for a registration.
    unsafe { into.write(registered) };
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_registration_counts() {
        let event = |events, u64| Some(epoll_event { events, u64 });
        note(4, libc::EPOLL_CTL_ADD, 9, event(1, u64::MAX));
        assert_eq!(of(9), Some(Registered { instance: 4, events: 1, data: u64::MAX }));
        note(0, libc::EPOLL_CTL_MOD, 9, event(1 << 31, 7));
        assert_eq!(of(9), Some(Registered { instance: 0, events: 1 << 31, data: 7 }));
        note(0, libc::EPOLL_CTL_DEL, 9, event(1, 7));
        assert_eq!([of(9), of(-1), of(c_int::MAX)], [None; 3]);
    }
}
