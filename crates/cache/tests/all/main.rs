//! The cache's tests, one module for each subject.

mod goldens;
mod model;
mod occupancy;
mod scribble;
mod secrets;
mod threads;
mod visits;
mod worth;
