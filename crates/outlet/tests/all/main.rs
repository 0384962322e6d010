//! The tests of the crate, as one program.

mod files;
mod rings;
mod sds;
mod share;
