//! The tests of ticket keys, each thing in a module.

mod page;
mod schedule;
mod sealing;
mod secrets;
