//! Unchanged programs, with Rejoin and without: their behaviour, and the sessions that they share.

#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "tests are its only users, and the names say it"
)]

pub mod cases;
pub mod matrix;
pub mod pages;
pub mod sharing;
pub mod world;
