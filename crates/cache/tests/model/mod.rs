//! A deliberately naive cache, and the machinery that runs it beside the real one.
//!
//! Nothing here knows which [`rejoin_cache::Memory`] the engine works on, so that a crate with a
//! memory of its own can include this module and run the same operations on it.

pub(crate) mod expectation;
pub(crate) mod fenced;
pub(crate) mod ghosts;
pub(crate) mod naive;
pub(crate) mod operation;
pub(crate) mod plan;
pub(crate) mod random;
pub(crate) mod twins;
