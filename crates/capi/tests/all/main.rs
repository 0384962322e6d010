//! Servers of Debian's packages, unmodified, with `librejoin.so` in their environment, and programs
//! that link it.
//!
//! One that is not installed is passed over with a word; `make test` installs them.

mod api;
mod client;
mod cluster;
mod compat;
mod exported;
mod faults;
mod guides;
mod kill;
mod newer_libssl;
mod sharing;
mod symbols;
mod tickets;
mod ways;
