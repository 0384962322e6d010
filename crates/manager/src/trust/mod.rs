//! Trust: the authorities that a program believes, and the certificates that it shows itself.

pub(crate) mod certificates;
pub(crate) mod identity;
pub(crate) mod judge;
pub(crate) mod verdicts;
pub(crate) mod verifier;
