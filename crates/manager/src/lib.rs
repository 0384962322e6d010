//! The client's TLS manager: the programs of one machine share sessions, and none holds a secret.

#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
