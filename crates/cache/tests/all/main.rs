//! The cache's tests, each thing in a module.

mod goldens;
mod model;
mod occupancy;
mod scribble;
mod secrets;
mod threads;
mod visits;
mod worth;
