//! The tests of the simulator, one module for each subject.

mod agreement;
mod learned;
mod model;
mod optimum;
mod paper;
mod plan;
mod population;
mod report;
mod running;
mod servers;
mod sizing;
