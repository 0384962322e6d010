//! Trust: the verification of servers' certificates, and the client certificates of programs.

pub(crate) mod certificates;
pub(crate) mod context;
pub(crate) mod identity;
pub(crate) mod judge;
pub(crate) mod staple;
pub(crate) mod verdicts;
pub(crate) mod verifier;
