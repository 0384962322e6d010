//! The measuring commands, which depend on the laboratory (`rejoin-lab`).

pub(crate) mod bench;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod drill;
pub(crate) mod fleet;
mod progress;

use rejoin_lab::Error;

use crate::arguments::Misuse;

/// A result that is not to be trusted, because the machine did not keep up: exit code 3.
#[derive(Debug)]
pub(crate) struct Doubted(pub(crate) String);

impl std::fmt::Display for Doubted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Doubted {}

/// Turns an error of the laboratory into what `main` prints and exits with. The laboratory's own
/// errors end in their cause.
pub(crate) fn told<T>(done: anyhow::Result<T>) -> anyhow::Result<T> {
    done.map_err(|error| match error.downcast::<Error>() {
        Ok(error) if error.is_misuse() => Misuse(error.to_string()).into(),
        Ok(error) => anyhow::Error::msg(error.to_string()),
        Err(other) => other,
    })
}
