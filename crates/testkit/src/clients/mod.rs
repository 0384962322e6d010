//! Unchanged programs, with Rejoin and without: their behaviour, and the sessions that they share.

pub mod cases;
pub mod matrix;
pub mod pages;
pub mod sharing;
pub mod world;
