//! Memory of the program, which may not be there: a program may pass any address to a function of the C library, and the
//! kernel fails such a call with `EFAULT`, or never reads there. Whoever reads before the kernel does must not crash.
//!
//! The kernel is asked by a call that hardly any sandbox forbids, because the C library makes it itself: `rt_sigprocmask`(2).

use core::ffi::{c_int, c_long, c_void};
use core::ptr::null;

use crate::errno::{errno, undisturbed};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

#[cfg(target_arch = "x86_64")]
const RT_SIGPROCMASK: c_long = 14;
/// The number in all newer ports of Linux.
#[cfg(not(target_arch = "x86_64"))]
const RT_SIGPROCMASK: c_long = 135;

/// A set of signals of the kernel has this many bytes.
const SET: usize = 8;
/// No page is smaller.
const PAGE: usize = 4_096;

/// Returns true if all these bytes can be read, unless another thread takes them away meanwhile. It takes a system call
/// for each page.
pub fn is_readable(start: *const c_void, bytes: usize) -> bool {
    /// Nothing is to be done with the set (`EINVAL`), once it was read.
    const NOTHING: c_int = -1;
    let Some(last) = bytes.checked_sub(1).map(|more| start.addr().checked_add(more)) else {
        return true;
    };
    let Some(last) = last.filter(|_| !start.is_null()) else { return false };
    let is_there = |address: usize| {
        // A set at such an address is in one page.
        let set = (address & !(SET - 1)) as *const c_void;
        // SAFETY: the kernel reads a set, or finds that it cannot, and changes nothing.
        let done = unsafe { syscall(RT_SIGPROCMASK, NOTHING, set, null::<c_void>(), SET) };
        // Address 0 is no set, and the call succeeds.
        done != 0 && errno() != EFAULT
    };
    let mut pages = (start.addr()..=last).step_by(PAGE);
    undisturbed(|| pages.all(is_there) && is_there(last))
}

/// Returns true if these bytes can be written, and overwrites them with others.
///
/// # Safety
/// Nobody needs what is there, and nobody reads it before it is written anew.
pub unsafe fn is_writable(start: *mut c_void, bytes: usize) -> bool {
    const BLOCK: c_int = 0;
    let is_written = |at: usize| {
        let set = start.wrapping_byte_add(at);
        // SAFETY: the kernel writes the mask of this thread there, or finds that it cannot.
        unsafe { syscall(RT_SIGPROCMASK, BLOCK, null::<c_void>(), set, SET) == 0 }
    };
    debug_assert!(bytes.is_multiple_of(SET), "no more is overwritten");
    undisturbed(|| (0..bytes).step_by(SET).all(is_written))
}

/// `EFAULT` of `errno.h`.
const EFAULT: c_int = 14;

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mmap(
            at: *mut c_void,
            bytes: usize,
            how: c_int,
            flags: c_int,
            file: c_int,
            from: c_long,
        ) -> *mut c_void;
    }

    /// Maps two pages, of which the second one has other rights. No test needs the memory back.
    fn pages(rights: c_int) -> *mut u8 {
        const READ_AND_WRITE: c_int = 3;
        const PRIVATE_AND_ANONYMOUS: c_int = 0x22;
        const AND_FIXED: c_int = 0x32;
        let (none, bytes) = (core::ptr::null_mut(), 2 * PAGE);
        // SAFETY: a new mapping.
        let all = unsafe { mmap(none, bytes, READ_AND_WRITE, PRIVATE_AND_ANONYMOUS, -1, 0) };
        let second = all.wrapping_byte_add(PAGE);
        // SAFETY: a part of the mapping above, which nobody uses yet.
        assert_eq!(unsafe { mmap(second, PAGE, rights, AND_FIXED, -1, 0) }, second);
        all.cast()
    }

    #[test]
    fn what_the_kernel_cannot_read_is_not_read() {
        let pages = pages(0);
        let is_readable = |at: usize, bytes| is_readable(pages.wrapping_add(at).cast(), bytes);
        assert!(is_readable(0, PAGE) && is_readable(PAGE - 1, 1) && is_readable(PAGE, 0));
        assert!(!is_readable(PAGE, 1) && !is_readable(PAGE - 3, 4) && !is_readable(0, PAGE + 1));
        assert!(
            !super::is_readable(null(), 1)
                && !super::is_readable(core::ptr::dangling::<u8>().cast(), 1)
        );
        assert!(!super::is_readable(usize::MAX as *const c_void, 6));
    }

    #[test]
    fn what_the_kernel_cannot_write_is_not_written() {
        const READ: c_int = 1;
        let pages = pages(READ);
        // SAFETY: the test's own memory.
        assert!(unsafe { is_writable(pages.cast(), PAGE) });
        // SAFETY: the test's own memory.
        assert!(!unsafe { is_writable(pages.wrapping_add(PAGE).cast(), SET) });
    }
}
