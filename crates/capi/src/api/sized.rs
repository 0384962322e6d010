//! Structures that begin with their size, because a program that was compiled with another version has fewer or more
//! fields.

use libc::size_t;

use super::failure::Failure;

/// The largest structure that a later version may have.
const LONGEST_BYTES: size_t = 4_096;

/// Copies the program's structure. Fields that it was compiled without are as in `zero`.
///
/// # Safety
/// `given` is null, or points to as many bytes as its first field says, a `size_t`; any bytes are a valid `T`.
pub(super) unsafe fn read<T: Copy>(
    given: *const T,
    zero: T,
    name: &str,
    kind: &str,
) -> Result<T, Failure> {
    if given.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: in every version the structure begins with its size.
    let size = unsafe { given.cast::<size_t>().read() };
    // A field of a later version may have a meaning that must not be ignored.
    if !(size_of::<size_t>()..=size_of::<T>()).contains(&size) {
        return Err(Failure::bad(format!(
            "struct_size = {size}: give sizeof({kind}), as this version's header has it"
        )));
    }
    let mut own = zero;
    let target = (&raw mut own).cast::<u8>();
    // SAFETY: the caller vouches for `size` bytes, and `own` has room for them.
    unsafe { std::ptr::copy_nonoverlapping(given.cast(), target, size) };
    Ok(own)
}

/// Returns the size of the program's structure, which must be one that may be written to.
///
/// # Safety
/// `target` points to a `size_t`.
pub(super) unsafe fn room<T>(target: *const T, kind: &str) -> Result<size_t, Failure> {
    // SAFETY: in every version the structure begins with its size.
    let size = unsafe { target.cast::<size_t>().read() };
    if !(size_of::<size_t>()..=LONGEST_BYTES).contains(&size) {
        return Err(Failure::bad(format!("struct_size = {size}: give sizeof({kind})")));
    }
    Ok(size)
}

/// Writes as many fields as the program has room for. Fields that this version does not have are zero. The first field
/// keeps the program's value.
///
/// # Safety
/// `target` is null, or points to as many bytes as its first field says, a `size_t`.
pub(super) unsafe fn write<T: Copy>(
    own: T,
    target: *mut T,
    name: &str,
    kind: &str,
) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller vouches for `target`, which is not null.
    let size = unsafe { room(target, kind) }?;
    // SAFETY: the caller vouches for `size` bytes at `target`.
    unsafe { target.cast::<u8>().write_bytes(0, size) };
    let known = size.min(size_of::<T>());
    let source = (&raw const own).cast::<u8>();
    // SAFETY: both have at least `known` bytes.
    unsafe { std::ptr::copy_nonoverlapping(source, target.cast(), known) };
    // SAFETY: the first field is a `size_t`.
    unsafe { target.cast::<size_t>().write(size) };
    Ok(())
}
