//! The tests of sessions and ticket keys in Valkey, each thing in a module.

mod acl;
mod agent;
mod key_file;
mod keys;
mod login;
mod long_values;
mod machines;
mod primary;
mod refusals;
mod rekey;
mod rotations;
mod sentinels;
mod sessions;
mod sessions_model;
mod site_partitions;
mod site_rings;
mod site_sessions;
mod tls;
