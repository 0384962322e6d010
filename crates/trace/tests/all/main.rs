//! The tests of the format and of the generators, each thing in a module.

mod csv;
mod format;
mod mixture;
mod open;
mod oracle_general;
mod population;
mod start_and_claims;
