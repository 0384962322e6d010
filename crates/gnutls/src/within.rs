//! The calls that libgnutls makes by itself, told apart from the program's.
//!
//! libgnutls calls its own functions by their names, which lead here. `librejoin_preload.so` looks at the address to
//! return to, which is not enough: where both libgnutls and the function here end in a jump (a tail call), that address
//! is the program's. So a thread marks that it is within a call of ours.

use std::cell::Cell;

thread_local! {
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function of libgnutls that calls none of the program's.
pub(crate) fn within<T>(call: impl FnOnce() -> T) -> T {
    let before = IS_WITHIN.replace(true);
    let done = call();
    IS_WITHIN.set(before);
    done
}

/// Returns true if libgnutls, and not the program, makes the call that is being answered.
pub(crate) fn is_within() -> bool {
    IS_WITHIN.get()
}
