//! The downstream side: the program that asked for a connection, its socket, and the limits per user.

pub(crate) mod connection;
pub(crate) mod descriptors;
pub(crate) mod endings;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod messages;
pub(crate) mod program;
pub(crate) mod quota;
pub(crate) mod sandbox;
pub(crate) mod stream;
pub(crate) mod succession;
pub(crate) mod user_threads;
