//! Unmodified servers of Debian's packages with `librejoin.so` in their environment, and programs that link it.
//!
//! A server that is not installed is skipped with a message; `make test` installs them.

mod api;
mod attached;
mod client;
mod client_certificates;
mod cluster;
mod compat;
mod drill;
mod early;
mod exported;
mod faults;
mod guides;
mod kill;
mod more_servers;
mod newer_libssl;
mod replaced;
mod sharing;
mod sources;
mod status;
mod symbols;
mod tickets;
mod ways;
