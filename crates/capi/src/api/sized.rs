//! Structures that begin with their size: programs compiled with another version have fewer or more
//! fields.

use libc::size_t;

use super::failure::Failure;

/// Of structures that some later version may have.
const LONGEST_BYTES: size_t = 4_096;

/// A copy of what the program gave: what it was compiled without is as in `zero`.
///
/// # Safety
/// `given` is null, or points to as many bytes as it says in its first field, a `size_t`; any bytes are
/// a `T`.
pub(super) unsafe fn read<T: Copy>(
    given: *const T,
    zero: T,
    name: &str,
    kind: &str,
) -> Result<T, Failure> {
    if given.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: whatever the program was compiled with, it begins so.
    let size = unsafe { given.cast::<size_t>().read() };
    // Whatever comes after this version's fields is not known to mean nothing.
    if !(size_of::<size_t>()..=size_of::<T>()).contains(&size) {
        return Err(Failure::bad(format!(
            "struct_size = {size}: give sizeof({kind}), as this version's header has it"
        )));
    }
    let mut own = zero;
    let target = (&raw mut own).cast::<u8>();
    // SAFETY: the caller vouches for `size` bytes, and there is room for them.
    unsafe { std::ptr::copy_nonoverlapping(given.cast(), target, size) };
    Ok(own)
}

/// Writes what the program has room for; what this version does not have is zero. The first field
/// stays what the program wrote.
///
/// # Safety
/// `target` is null, or points to as many bytes as it says in its first field, a `size_t`.
pub(super) unsafe fn write<T: Copy>(
    own: T,
    target: *mut T,
    name: &str,
    kind: &str,
) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: whatever the program was compiled with, it begins so.
    let size = unsafe { target.cast::<size_t>().read() };
    if !(size_of::<size_t>()..=LONGEST_BYTES).contains(&size) {
        return Err(Failure::bad(format!("struct_size = {size}: give sizeof({kind})")));
    }
    // SAFETY: the caller vouches for `size` bytes.
    unsafe { target.cast::<u8>().write_bytes(0, size) };
    let known = size.min(size_of::<T>());
    let source = (&raw const own).cast::<u8>();
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(source, target.cast(), known) };
    // SAFETY: as above.
    unsafe { target.cast::<size_t>().write(size) };
    Ok(())
}
