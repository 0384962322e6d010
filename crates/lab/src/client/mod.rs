//! The gain of unchanged programs from the TLS manager: the same program in turns with Rejoin and without.
//!
//! Each program is a process that asks for one page, as in a script. All go to one server, so that all but the first
//! with Rejoin resume. Wall time is the program's, from its start to its end; CPU time is its own, the manager's and the
//! server's, read after each program and so in one run for both.
//!
//! The path is loopback, or one with a round trip (`relay`). A chain of the size that ML-DSA-65 has stands for it
//! where libraries do not have the algorithm: certificates of P-256 with an extension that fills them. It shows the
//! bytes and the round trips, and not the CPU time of ML-DSA.
//!
//! Not measured: many programs at the same time (`make check-manager`), and programs that keep their connections.

mod place;
mod relay;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_report::median;
use rejoin_serve::Versions;
use serde::Serialize;

use crate::Error;
use crate::experiment::{Ended, Step, Turns};
use place::{Place, Taken};

/// The settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for the server and the manager.
    pub rejoin: PathBuf,
    /// `librejoin_preload.so`.
    pub library: PathBuf,
    /// Programs with Rejoin, and as many without, in each row: 1 to [`Settings::MOST_PROGRAMS`].
    pub programs: u32,
    /// Versions of TLS, in turn.
    pub versions: Vec<Versions>,
    /// Chains, in turn.
    pub chains: Vec<Chain>,
    /// Round trips in milliseconds, in turn; 0 is loopback itself.
    pub round_trips_ms: Vec<u32>,
}

impl Settings {
    /// The largest number of programs in a row.
    pub const MOST_PROGRAMS: u32 = 10_000;
}

/// A server's certificates: its own, and its issuer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// RSA with 2,048 bits.
    Rsa2048,
    /// ECDSA on P-256.
    P256,
    /// P-256 with the size of ML-DSA-65.
    MlDsaSized,
}

impl Chain {
    /// In the order of the table.
    pub const ALL: [Self; 3] = [Self::Rsa2048, Self::P256, Self::MlDsaSized];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA-2048",
            Self::P256 => "P-256",
            Self::MlDsaSized => "ML-DSA-65's size",
        }
    }
}

/// Programs without Rejoin and with it, over one path.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The server's chain.
    pub chain: &'static str,
    /// The version of TLS.
    pub tls: &'static str,
    /// False if the machine did not keep up.
    pub kept_up: bool,
    /// The path's round trip, in milliseconds.
    pub round_trip_ms: u32,
    /// Programs without Rejoin.
    pub without: Costs,
    /// The same number with Rejoin.
    pub with: Costs,
    /// The wall time of a program with Rejoin, times that without: the median of pairs that ran one after the other.
    pub wall_times: f64,
    /// CPU time of client, manager and server with Rejoin, times that without.
    pub cpu_times: f64,
    /// Handshakes with Rejoin that were resumed, of all with Rejoin.
    pub resumed_percent: f64,
}

/// The costs of a program and its connection, as medians (wall) and means (all else).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// Wall time, in milliseconds.
    pub wall_ms: f64,
    /// CPU time of the program, in milliseconds.
    pub client_ms: f64,
    /// CPU time of the manager, in milliseconds.
    pub manager_ms: f64,
    /// CPU time of the server, in milliseconds.
    pub server_ms: f64,
    /// Bytes of the connection, both ways.
    pub bytes: f64,
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in rows.
    #[serde(flatten)]
    pub ended: Ended,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<Row>,
}

/// A row that is to be measured.
#[derive(Debug, Clone, Copy)]
struct Cell {
    chain: Chain,
    versions: Versions,
    round_trip_ms: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, TLS {}, {} ms", self.chain.name(), self.versions.name(), self.round_trip_ms)
    }
}

/// Measures one row after the other until `stop` is set. `began` is told of each.
///
/// # Errors
/// Settings that cannot be; a program that is not installed, or fails. If a later row fails, the outcome has the rows
/// before it.
pub fn measure(
    settings: &Settings,
    stop: &AtomicBool,
    began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    if !(1..=Settings::MOST_PROGRAMS).contains(&settings.programs) {
        return Err(Error::Settings("1 to 10000 programs"));
    }
    let mut cells = Vec::new();
    for chain in &settings.chains {
        for versions in &settings.versions {
            let cell = |round_trip_ms: &u32| Cell {
                chain: *chain,
                versions: *versions,
                round_trip_ms: *round_trip_ms,
            };
            cells.extend(settings.round_trips_ms.iter().map(cell));
        }
    }
    let mut turns = Turns::new(cells.len());
    let mut rows = turns.run(cells.clone(), stop, began, |cell, _| row(settings, cell, stop));
    let ended = turns.ended(rows.is_empty())?;
    // The first failure ends the loop: rows are of the first cells.
    for (row, cell) in rows.iter_mut().zip(cells) {
        row.kept_up = !ended.doubts(cell);
    }
    Ok(Outcome { ended, rows })
}

/// `None` if it was stopped.
fn row(settings: &Settings, cell: Cell, stop: &AtomicBool) -> Result<Option<Row>, Error> {
    let place = Place::make(settings, cell.chain, cell.versions)?;
    let path = place.path(cell.round_trip_ms)?;
    // The manager's first handshake is full, and its server's tickets are for all that follow.
    let mut all = [Vec::new(), Vec::new()];
    for is_with in [true, false] {
        place.visit(&path, is_with)?;
    }
    let before = place.handshakes()?;
    let mut pairs = Vec::new();
    for turn in 0..settings.programs {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut pair = [0.0, 0.0];
        // Each way is first in half of the turns.
        for is_with in [turn % 2 == 0, turn % 2 == 1] {
            let taken = place.visit(&path, is_with)?;
            pair[usize::from(is_with)] = taken.wall_ms;
            all[usize::from(is_with)].push(taken);
        }
        pairs.push(pair[1] / pair[0]);
    }
    let resumed = place.handshakes()?.since(before).resumed;
    let bytes = place.bytes(&path)?;
    let [without, with] = [0, 1].map(|at| Costs::of(&all[at], bytes[at]));
    Ok(Some(Row {
        chain: cell.chain.name(),
        tls: cell.versions.name(),
        kept_up: true,
        round_trip_ms: cell.round_trip_ms,
        without,
        with,
        wall_times: median(pairs),
        cpu_times: with.cpu_ms() / without.cpu_ms(),
        resumed_percent: 100.0 * resumed as f64 / f64::from(settings.programs),
    }))
}

impl Costs {
    fn of(all: &[Taken], bytes: u64) -> Self {
        let mean = |of: fn(&Taken) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Self {
            wall_ms: median(all.iter().map(|taken| taken.wall_ms).collect()),
            client_ms: mean(|taken| taken.client_ms),
            manager_ms: mean(|taken| taken.manager_ms),
            server_ms: mean(|taken| taken.server_ms),
            bytes: bytes as f64,
        }
    }

    /// The CPU time of all three, in milliseconds.
    pub fn cpu_ms(&self) -> f64 {
        self.client_ms + self.manager_ms + self.server_ms
    }
}
