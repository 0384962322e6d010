//! One format for the arrivals of TLS clients: recorded, generated, replayed.
//!
//! An [`Event`] is one TLS connection of one client at one time. A [`Writer`] and a [`Reader`]
//! put events into a file and take them out again, one at a time, so that a trace may be longer
//! than memory. A [`Population`] makes the events of the devices of paper 000 §V.A: what the
//! simulator and the fleet run on when nobody has recorded anything.
//!
//! What is not here: clocks, files, sockets and TLS. A reader reads any [`std::io::Read`], a
//! population draws from the seed it is given and from nothing else.
//!
//! ```
//! use rejoin_trace::{Population, PopulationSettings, Reader, Writer};
//!
//! // A minute of a thousand devices.
//! let population = Population::new(PopulationSettings::paper(1_000))?;
//! let minute = population.arrivals(7).take_while(|event| event.time_ms < 60_000);
//!
//! let mut writer = Writer::new(Vec::new())?;
//! for event in minute.clone() {
//!     writer.write(event)?;
//! }
//! let bytes = writer.finish()?;
//!
//! let read = Reader::new(&bytes[..])?.collect::<Result<Vec<_>, _>>()?;
//! assert!(read.into_iter().eq(minute));
//! # Ok::<(), rejoin_trace::Error>(())
//! ```

#![forbid(unsafe_code)]

mod arrivals;
mod device;
mod draws;
mod error;
mod event;
mod format;
mod interval_mix;
mod population;
mod reader;
mod speed_up;
mod writer;

pub use arrivals::Arrivals;
pub use error::Error;
pub use event::Event;
pub use format::VERSION;
pub use interval_mix::IntervalMix;
pub use population::{
    LARGEST_JITTER_MS, LONGEST_MEAN_MS, MOST_DEVICES, Population, PopulationSettings,
};
pub use reader::Reader;
pub use speed_up::SpeedUp;
pub use writer::Writer;
