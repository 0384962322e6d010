//! The cache's engine: operations, settings, ids, and connections.

mod input;
pub(crate) mod layouts;
pub(crate) mod model;
pub(crate) mod operations;
pub(crate) mod session_id;
pub(crate) mod visits;
