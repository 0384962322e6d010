//! The files of a cluster's machine, and the answers of Valkey.

pub(crate) mod files;
pub(crate) mod replies;
