//! Random bytes from the kernel, which no state of a process or its child can repeat.

use std::path::Path;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;

/// Fills up to 256 bytes at random (`getrandom(2)`, which never cuts so few short).
///
/// # Errors
/// [`Error::Refused`], if the kernel has no random numbers.
pub fn fill_at_random(bytes: &mut [u8]) -> Result<(), Error> {
    let path = Path::new("random numbers");
    let refused = |cause: rustix::io::Errno| Error::refused("read", path, cause);
    // A signal may come while a system that has just started waits for its first random numbers.
    let filled = retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()));
    filled.map(|_| ()).map_err(refused)
}

/// Returns a random number, for the name of a file that no other process makes.
pub(crate) fn random_number() -> Result<u64, Error> {
    let mut number = [0; 8];
    fill_at_random(&mut number)?;
    Ok(u64::from_ne_bytes(number))
}
