//! The measuring commands, which depend on the laboratory (`rejoin-lab`).

pub(crate) mod bench;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod fleet;
mod progress;

use rejoin_lab::Error;

use crate::arguments::Misuse;

/// Turns an error of the laboratory into what `main` prints and exits with. The laboratory's own
/// errors end in their cause.
pub(crate) fn told<T>(done: anyhow::Result<T>) -> anyhow::Result<T> {
    done.map_err(|error| match error.downcast::<Error>() {
        Ok(error) if error.is_misuse() => Misuse(error.to_string()).into(),
        Ok(error) => anyhow::Error::msg(error.to_string()),
        Err(other) => other,
    })
}
