//! A simulator of TLS session caches: policies, the optimum, hit-rate curves.
//!
//! A [`Simulation`] plays arrivals in virtual time against caches: the shipped one as it is, and
//! [yardsticks](policy). The arrivals are those of a [`Plan`]'s clients or of a trace. Its
//! [`Outcome`] has the hit rates of every policy at every capacity.
//!
//! Not here: clocks, files, sockets and TLS. A [`Source`] of arrivals is opened by the
//! caller; reports are text that the caller writes.
//!
//! ```
//! use rejoin_sim::{Drawn, Plan, Progress, Simulation, Subject};
//!
//! let plan = Plan::parse(
//!     r#"
//!     duration_s = 600
//!     [[group]]
//!     kind = "devices"
//!     devices = 1000
//!     running_s = 120
//!     waiting_s = 2760
//!     intervals = "60:23,30:13,15:2"
//!     "#,
//! )?;
//! let simulation = Simulation {
//!     policies: vec![Subject::Lru, Subject::Predictive],
//!     capacities: vec![30.try_into().expect("not zero")],
//!     ..Simulation::of(&plan)
//! };
//! let mixture = plan.mixture.as_ref().expect("a group");
//! let source = Drawn { mixture, end_ms: 600_000 };
//! let outcome = simulation.run(&source, &Progress::default())?;
//! let hits = |cell: usize| outcome.cells[cell].rates.hit_after_first_of_run.expect("some").mean;
//! assert!(hits(1) > hits(0) + 20.0);
//! # Ok::<(), rejoin_sim::Error>(())
//! ```

#![forbid(unsafe_code)]

mod births;
mod bound;
mod clients;
mod error;
mod future;
mod outcome;
pub mod plan;
mod player;
pub mod policy;
mod progress;
pub mod report;
mod request;
mod server;
mod simulation;
pub mod sizing;
mod source;
mod store;
mod subject;
mod tally;

pub use error::Error;
pub use outcome::{Cell, GroupCell, HitRates, Outcome, Rate};
pub use plan::Plan;
pub use progress::Progress;
pub use server::{Balancer, KeyedBy, Server, SourceShares, Tls};
pub use simulation::Simulation;
pub use source::{Drawn, Pass, Source};
pub use subject::{Knows, Places, Subject};
