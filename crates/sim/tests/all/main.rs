//! The tests of the simulator, each thing in a module.

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
