//! The agreement between Rejoin's libraries inside a program: which functions they interpose, and how they call each
//! other.
//!
//! `librejoin_preload.so` exports the functions of one table ([`interposed!`]) and forwards them to `librejoin.so` and
//! `librejoin_gnutls.so`, which bring one function for each row ([`replacements!`]). All code that depends on the
//! position, the name or the type of a function is generated from the table. [`Hooks`] carries the functions from one
//! library to the other; its digest is of the whole table, so that libraries of two builds refuse each other.
//!
//! The crate also has what each of the libraries needs alone: [`variable`] reads the environment, [`check_setting`] and
//! [`check_variables`] know the names of all settings, [`report`] writes a line on standard error, and the build script
//! links the unwinder. [`gate`] keeps fork(2) away from what a thread of Rejoin's holds, [`undisturbed`] keeps `errno`,
//! and [`is_readable`] asks before the program's memory is read.
//!
//! Nothing here depends on another crate, for `librejoin_preload.so` is loaded into every program of a machine.

mod digest;
mod environment;
mod errno;
pub mod gate;
mod hooks;
mod memory;
mod names;
mod stderr;
mod table;

pub use digest::{Function, Library};
pub use environment::{is_debugging, variable};
pub use errno::undisturbed;
pub use hooks::{Hooks, Registered, RegisteredOf, Replacements};
pub use memory::{is_readable, is_writable};
pub use names::{SETTINGS, check_setting, check_variables, variable_of};
pub use stderr::report;
pub use table::{GNUTLS, LIBC, LIBSSL, TABLE};
