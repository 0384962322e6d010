//! The functions by which a program waits for its sockets. While the manager has not decided about one of them, they
//! wait in turns, so that the program gets the socket back at the end of the patience, and waits on.

use std::time::{Duration, Instant};

use libc::{
    c_int, c_ulong, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval,
};
use rejoin_abi::{is_readable, is_writable, undisturbed};

use crate::libc_calls::{concerned, real};

/// Waits by `real`, which is passed the longest wait (`None`: without end) and returns 0 at its end.
fn in_turns(longest: Option<Duration>, real: impl FnMut(Option<Duration>) -> c_int) -> c_int {
    in_turns_until(longest, end_of_patience, real)
}

/// Takes back the connections whose patience has ended. Returns the time until the next end, if there is one.
fn end_of_patience() -> Option<Duration> {
    let mut next: Option<Duration> = None;
    for hooks in concerned(|hooks| hooks.waiting) {
        undisturbed(|| {
            let ms = u64::try_from((hooks.overdue)()).ok().map(Duration::from_millis);
            next = next.into_iter().chain(ms).min();
        });
    }
    next
}

/// The same with turns that end as `end` says.
fn in_turns_until(
    longest: Option<Duration>,
    mut end: impl FnMut() -> Option<Duration>,
    mut real: impl FnMut(Option<Duration>) -> c_int,
) -> c_int {
    // The time is asked only if there is a reason to.
    let mut until = None;
    loop {
        let Some(next) = end() else { return real(left(longest, until)) };
        // An end that no clock can show is none.
        until = until.or_else(|| Instant::now().checked_add(longest?));
        let left = left(longest, until);
        // A millisecond more: an end that is not reached yet would be asked for again at once.
        let turn = next + Duration::from_millis(1);
        if left.is_some_and(|left| left <= turn) {
            return real(left);
        }
        let done = real(Some(turn));
        if done != 0 {
            return done;
        }
    }
}

fn left(longest: Option<Duration>, until: Option<Instant>) -> Option<Duration> {
    match until {
        Some(until) => Some(until.saturating_duration_since(Instant::now())),
        None => longest,
    }
}

/// Returns the wait of a number of milliseconds. Negative numbers are waits without end.
fn of_ms(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Returns the number of milliseconds, rounded up.
fn ms(wait: Option<Duration>) -> c_int {
    wait.map_or(-1, |wait| c_int::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(c_int::MAX))
}

/// Returns the wait of a time, which is null for a wait without end. `None`: the function refuses the time.
///
/// # Safety
/// The pointer is the program's, and nobody changes the time meanwhile.
unsafe fn of_time(time: *const timespec) -> Option<Wait> {
    if !is_there(time) {
        return None;
    }
    // SAFETY: the caller vouches for the pointer, which is null or can be read.
    let Some(time) = (unsafe { time.as_ref() }) else { return Some(Wait::WithoutEnd) };
    let rest = u32::try_from(time.tv_nsec).ok().filter(|rest| *rest < 1_000_000_000)?;
    Some(Wait::AtMost(Duration::new(u64::try_from(time.tv_sec).ok()?, rest)))
}

/// The same for the time of `select`, which may have more than a second of microseconds.
///
/// # Safety
/// The pointer is the program's, and nobody changes the time meanwhile.
unsafe fn of_value(value: *const timeval) -> Option<Wait> {
    if !is_there(value) {
        return None;
    }
    // SAFETY: the caller vouches for the pointer, which is null or can be read.
    let Some(value) = (unsafe { value.as_ref() }) else { return Some(Wait::WithoutEnd) };
    let whole = Duration::from_secs(u64::try_from(value.tv_sec).ok()?);
    let rest = Duration::from_micros(u64::try_from(value.tv_usec).ok()?);
    Some(Wait::AtMost(whole.saturating_add(rest)))
}

/// Returns true if a pointer is null, or something is there.
fn is_there<T>(pointer: *const T) -> bool {
    pointer.is_null() || is_readable(pointer.cast(), size_of::<T>())
}

/// The longest wait that a program asks for by a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    WithoutEnd,
    AtMost(Duration),
}

impl Wait {
    fn longest(self) -> Option<Duration> {
        match self {
            Self::WithoutEnd => None,
            Self::AtMost(longest) => Some(longest),
        }
    }
}

fn seconds(wait: Duration) -> libc::time_t {
    libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX)
}

fn time(wait: Duration) -> timespec {
    timespec { tv_sec: seconds(wait), tv_nsec: wait.subsec_nanos().into() }
}

/// Calls `wait` with a pointer to a time, or with null.
fn with_time(turn: Option<Duration>, wait: impl FnOnce(*const timespec) -> c_int) -> c_int {
    let turn = turn.map(time);
    wait(turn.as_ref().map_or(std::ptr::null(), |turn| &raw const *turn))
}

/// Returns the longest wait of a call that waits in turns. `None`: the call goes on as the program made it, because no
/// socket is waiting, or because the function refuses the time.
fn in_need(wait: impl FnOnce() -> Option<Wait>) -> Option<Option<Duration>> {
    concerned(|hooks| hooks.waiting).next()?;
    wait().map(Wait::longest)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let real = real!(c"poll", unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: the program's own call, with its arguments.
    in_turns(of_ms(timeout), |turn| unsafe { real(list, count, ms(turn)) })
}

/// `poll` of programs that are built with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    bytes: size_t,
) -> c_int {
    type Poll = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int;
    let real = real!(c"__poll_chk", Poll);
    // SAFETY: the program's own call, with its arguments.
    in_turns(of_ms(timeout), |turn| unsafe { real(list, count, ms(turn), bytes) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Poll =
        unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    let real = real!(c"ppoll", Poll);
    // SAFETY: the program's time is null or valid.
    let Some(longest) = in_need(|| unsafe { of_time(timeout) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(list, count, timeout, mask) };
    };
    in_turns(longest, |turn| {
        // SAFETY: the program's own call, with a time that is valid or null.
        with_time(turn, |time| unsafe { real(list, count, time, mask) })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    bytes: size_t,
) -> c_int {
    type Poll = unsafe extern "C" fn(
        *mut pollfd,
        nfds_t,
        *const timespec,
        *const sigset_t,
        size_t,
    ) -> c_int;
    let real = real!(c"__ppoll_chk", Poll);
    // SAFETY: the program's time is null or valid.
    let Some(longest) = in_need(|| unsafe { of_time(timeout) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(list, count, timeout, mask, bytes) };
    };
    in_turns(longest, |turn| {
        // SAFETY: the program's own call, with a time that is valid or null.
        with_time(turn, |time| unsafe { real(list, count, time, mask, bytes) })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    type Wait = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    let real = real!(c"epoll_wait", Wait);
    // SAFETY: the program's own call, with its arguments.
    in_turns(of_ms(timeout), |turn| unsafe { real(instance, events, most, ms(turn)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    type Wait =
        unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    let real = real!(c"epoll_pwait", Wait);
    // SAFETY: the program's own call, with its arguments.
    in_turns(of_ms(timeout), |turn| unsafe { real(instance, events, most, ms(turn), mask) })
}

/// The C library has it since glibc 2.35, so that a program may ask whether it is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Wait = unsafe extern "C" fn(
        c_int,
        *mut epoll_event,
        c_int,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    let Some(real) = real!(c"epoll_pwait2", Option<Wait>) else {
        // SAFETY: the function takes no arguments.
        let error = unsafe { libc::__errno_location() };
        // SAFETY: the variable is this thread's own.
        unsafe { error.write(libc::ENOSYS) };
        return -1;
    };
    // SAFETY: the program's time is null or valid.
    let Some(longest) = in_need(|| unsafe { of_time(timeout) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(instance, events, most, timeout, mask) };
    };
    in_turns(longest, |turn| {
        // SAFETY: the program's own call, with a time that is valid or null.
        with_time(turn, |time| unsafe { real(instance, events, most, time, mask) })
    })
}

/// The sets of `select`, which each call overwrites.
struct Sets {
    own: [*mut fd_set; 3],
    words: usize,
    saved: Vec<c_ulong>,
}

impl Sets {
    /// # Safety
    /// Each pointer is null, or points to a set of at least `count` descriptors, or of all that may be open. `None`: one of
    /// them is not there.
    unsafe fn of(own: [*mut fd_set; 3], count: c_int) -> Option<Self> {
        let bits = c_ulong::BITS as usize;
        let words = usize::try_from(seen(count)).unwrap_or(0).div_ceil(bits);
        let mut saved = Vec::with_capacity(3 * words);
        for set in own.into_iter().filter(|set| !set.is_null()) {
            if !is_readable(set.cast(), words * size_of::<c_ulong>()) {
                return None;
            }
            // SAFETY: the caller vouches for the set, whose bits are in words of this type.
            saved.extend_from_slice(unsafe { std::slice::from_raw_parts(set.cast(), words) });
        }
        Some(Self { own, words, saved })
    }

    /// Writes the sets as they were.
    ///
    /// # Safety
    /// The same as [`of`](Self::of).
    unsafe fn restore(&self) {
        let sets = self.own.into_iter().filter(|set| !set.is_null());
        for (set, saved) in sets.zip(self.saved.chunks(self.words.max(1))) {
            // SAFETY: the caller vouches for the set, and the words are as many as were read from it.
            unsafe { std::ptr::copy_nonoverlapping(saved.as_ptr(), set.cast(), saved.len()) };
        }
    }
}

/// Returns the number of descriptors that `select` looks at. Programs may name more than their sets have room for, such
/// as all that their limit allows: the kernel stops where no descriptor was ever open (`core_sys_select` of Linux). No
/// more is read here than it reads, and beyond the highest that is open it finds nothing, and leaves nothing.
fn seen(count: c_int) -> c_int {
    if count <= libc::FD_SETSIZE as c_int {
        return count;
    }
    // SAFETY: F_GETFD takes no pointer.
    let is_open = |open: &c_int| unsafe { libc::fcntl(*open, libc::F_GETFD) } >= 0;
    let found = || highest_of_process().or_else(|| (0..count.min(MOST)).rev().find(is_open));
    let highest = undisturbed(found);
    highest.map_or(0, |highest| count.min(highest.saturating_add(1)))
}

/// The most descriptors that a process has, unless an administrator allows more (`fs.nr_open`).
const MOST: c_int = 1 << 20;

/// Returns the highest descriptor that is open. `None`: the process does not see `/proc`.
fn highest_of_process() -> Option<c_int> {
    let all = std::fs::read_dir("/proc/self/fd").ok()?;
    all.filter_map(|open| open.ok()?.file_name().to_str()?.parse().ok()).max()
}

type Select =
    unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let real = real!(c"select", Select);
    // SAFETY: the program's time is null or valid.
    let Some(longest) = in_need(|| unsafe { of_value(timeout) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(count, reads, writes, others, timeout) };
    };
    // SAFETY: the program's sets are null, or have this many descriptors.
    let Some(sets) = (unsafe { Sets::of([reads, writes, others], count) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(count, reads, writes, others, timeout) };
    };
    let (since, mut is_changed) = (Instant::now(), false);
    let done = in_turns(longest, |turn| {
        if std::mem::replace(&mut is_changed, true) {
            // SAFETY: the sets are those that were saved, and were written by the turn before.
            unsafe { sets.restore() };
        }
        let mut turn = turn.map(value);
        let turn = turn.as_mut().map_or(std::ptr::null_mut(), |turn| &raw mut *turn);
        // SAFETY: the program's own call, with a time that is valid or null.
        unsafe { real(count, reads, writes, others, turn) }
    });
    if let Some(longest) = longest {
        let rest = value(longest.saturating_sub(since.elapsed()));
        // SAFETY: the time is the program's, which gets it back as Linux writes it.
        unsafe { leave(timeout, rest) };
    }
    done
}

/// Writes the time that is left, as Linux does, which keeps silent if it cannot (`poll_select_finish`): a program may have
/// its time in memory that is only read.
///
/// # Safety
/// Nobody reads the time meanwhile.
unsafe fn leave(timeout: *mut timeval, rest: timeval) {
    // SAFETY: the caller vouches for the time, which is overwritten.
    if unsafe { is_writable(timeout.cast(), size_of::<timeval>()) } {
        // SAFETY: the kernel could write there.
        unsafe { timeout.write_unaligned(rest) };
    }
}

fn value(wait: Duration) -> timeval {
    timeval { tv_sec: seconds(wait), tv_usec: wait.subsec_micros().into() }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Select = unsafe extern "C" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    let real = real!(c"pselect", Select);
    // SAFETY: the program's time is null or valid.
    let Some(longest) = in_need(|| unsafe { of_time(timeout) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(count, reads, writes, others, timeout, mask) };
    };
    // SAFETY: the program's sets are null, or have this many descriptors.
    let Some(sets) = (unsafe { Sets::of([reads, writes, others], count) }) else {
        // SAFETY: the program's own call, with its arguments.
        return unsafe { real(count, reads, writes, others, timeout, mask) };
    };
    let mut is_changed = false;
    in_turns(longest, |turn| {
        if std::mem::replace(&mut is_changed, true) {
            // SAFETY: the sets are those that were saved, and were written by the turn before.
            unsafe { sets.restore() };
        }
        // SAFETY: the program's own call, with a time that is valid or null.
        with_time(turn, |time| unsafe { real(count, reads, writes, others, time, mask) })
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn waits_are_rounded_up() {
        let waits = [None, Some(0), Some(1), Some(1_000), Some(1_001)];
        let all = waits.map(|us| ms(us.map(Duration::from_micros)));
        assert_eq!(all, [-1, 0, 1, 1, 2]);
        assert_eq!(
            [of_ms(-1), of_ms(0), of_ms(7)],
            [None, Some(Duration::ZERO), Some(Duration::from_millis(7))]
        );
    }

    #[test]
    fn no_time_is_too_long_and_invalid_ones_are_left_to_the_function() {
        let time = |tv_sec, tv_nsec| {
            let time = timespec { tv_sec, tv_nsec };
            // SAFETY: the time is there during the call.
            unsafe { of_time(&raw const time) }
        };
        let value = |tv_sec, tv_usec| {
            let value = timeval { tv_sec, tv_usec };
            // SAFETY: the time is there during the call.
            unsafe { of_value(&raw const value) }
        };
        let most = i64::MAX;
        let refused =
            [time(-1, 0), time(0, -1), time(0, 1_000_000_000), value(-1, 0), value(0, -1)];
        assert_eq!(refused, [None; 5]);
        // SAFETY: it may be null.
        let of_null = unsafe { of_time(std::ptr::null()) };
        // SAFETY: the same.
        assert_eq!([of_null, unsafe { of_value(std::ptr::null()) }], [Some(Wait::WithoutEnd); 2]);
        let s = |s| Some(Wait::AtMost(Duration::from_secs(s)));
        assert_eq!([time(most, 0), value(most, 0)], [s(most as u64); 2]);
        assert_eq!(value(1, 2_000_000), s(3));
        for longest in [time(most, 999_999_999), value(most, most)] {
            let longest = longest.expect("a time").longest();
            assert_eq!(in_turns(longest, |turn| c_int::from(turn == longest)), 1);
            assert_eq!(turned(longest, 7), 7);
            assert_eq!(longest.map(super::time).expect("an end").tv_sec, most);
        }
    }

    #[test]
    fn sets_are_read_as_far_as_descriptors_are_open() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        // SAFETY: the call takes a number.
        let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) };
        assert!(high >= 700);
        let mut words = [c_ulong::MAX; 16];
        let set = words.as_mut_ptr().cast::<fd_set>();
        // SAFETY: the set has room for all descriptors that are open.
        let sets = unsafe { Sets::of([set, std::ptr::null_mut(), set], c_int::MAX) };
        let sets = sets.expect("they are there");
        assert_eq!((sets.words, sets.saved.len()), (high as usize / 64 + 1, 2 * sets.words));
        words.fill(0);
        // SAFETY: the same.
        unsafe { sets.restore() };
        assert_eq!(words.iter().filter(|word| **word == c_ulong::MAX).count(), sets.words);
        assert_eq!(words[sets.words..], [0; 16][sets.words..]);
        assert_eq!([seen(-1), seen(0), seen(700), seen(1_024)], [-1, 0, 700, 1_024]);
        // SAFETY: it is this test's own.
        unsafe { libc::close(high) };
    }

    #[test]
    fn times_and_sets_that_are_not_there_are_left_to_the_function() {
        let nowhere = std::ptr::dangling_mut::<fd_set>();
        // SAFETY: it is asked whether the time is there.
        assert_eq!(unsafe { of_time(nowhere.cast()) }, None);
        // SAFETY: it is asked whether the time is there.
        assert_eq!(unsafe { of_value(nowhere.cast()) }, None);
        // SAFETY: it is asked whether the set is there.
        assert!(unsafe { Sets::of([std::ptr::null_mut(), nowhere, nowhere], 1) }.is_none());
        static READ_ONLY: timeval = timeval { tv_sec: 7, tv_usec: 7 };
        let mut own = READ_ONLY;
        let rest = timeval { tv_sec: 1, tv_usec: 2 };
        // SAFETY: the kernel finds that it cannot write.
        unsafe { leave((&raw const READ_ONLY).cast_mut(), rest) };
        // SAFETY: the test's own.
        unsafe { leave(&raw mut own, rest) };
        assert_eq!((READ_ONLY.tv_sec, own.tv_sec, own.tv_usec), (7, 1, 2));
    }

    /// Waits in three turns, as if a socket were waiting.
    fn turned(longest: Option<Duration>, done: c_int) -> c_int {
        let mut turns = 0;
        let end = || {
            turns += 1;
            (turns <= 3).then_some(Duration::from_millis(3))
        };
        let is_turn = |wait: Option<Duration>| wait == Some(Duration::from_millis(4));
        in_turns_until(longest, end, |wait| if is_turn(wait) { 0 } else { done })
    }
}
