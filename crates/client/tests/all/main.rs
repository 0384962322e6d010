//! The tests of the manager's clients, each thing in a module.

mod connector;
