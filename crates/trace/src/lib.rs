//! One format for the arrivals of TLS clients: recorded, generated, replayed.
//!
//! An [`Event`] is one TLS connection of one client at one time. A [`Writer`] and a [`Reader`]
//! put events into a file and take them out again, one at a time, so that a trace may be longer
//! than memory; [`open`] reads other formats, too. A [`Population`] makes the events of the devices
//! of paper 000 §V.A, on which the simulator and the fleet run if there is no recording.
//! [`Browsers`] and a [`Flood`] may share their server, in a [`Mixture`].
//!
//! [`Zstd`] reads what is compressed, for all whose input may be.
//!
//! Not here: clocks, files, sockets and TLS. A reader reads any [`std::io::Read`], a
//! population draws from the seed it is given and from nothing else.

#![forbid(unsafe_code)]

mod arrivals;
mod browsers;
mod claims;
pub mod csv;
mod device;
mod draws;
mod error;
mod event;
mod flood;
mod format;
mod gaps;
mod input;
mod interval_mix;
mod mixture;
mod open;
pub mod oracle_general;
mod population;
mod reader;
mod runs;
mod schedule;
mod speed_up;
mod writer;
mod zstd;

pub use arrivals::Arrivals;
pub use browsers::{BrowserArrivals, BrowserSettings, Browsers};
pub use claims::Claims;
pub use error::{Error, grouped};
pub use event::Event;
pub use flood::{Flood, FloodArrivals, FloodSettings, LONGEST_PAUSE_MS, MOST_PER_S, MOST_VISITS};
pub use format::VERSION;
pub use gaps::Gaps;
pub use interval_mix::IntervalMix;
pub use mixture::{Group, MOST_GROUPS, Mixture, MixtureArrivals, group_of, member_of};
pub use open::{Events, Format, open};
pub use population::{
    LARGEST_JITTER_MS, LONGEST_MEAN_MS, MOST_DEVICES, Population, PopulationSettings, Start,
};
pub use reader::Reader;
pub use runs::Runs;
pub use speed_up::SpeedUp;
pub use writer::Writer;
pub use zstd::{Zstd, begins_zstd};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
