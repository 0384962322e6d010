//! The settings of a cache.

use crate::source::Fairness;

/// The size of a cache. The bound is exact: nothing is allocated later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// A number of sessions whose value fits in [`Settings::block_bytes`]. A larger session takes the
    /// place of several.
    Sessions(u64),
    /// A number of bytes for sessions, index, orders and ghosts together. The 120 KB of
    /// [`ReturnTimes`](crate::ReturnTimes) come on top, whatever the capacity. A shared cache (`rejoin-store`) counts
    /// these and everything else in its file.
    Bytes(u64),
}

impl std::str::FromStr for Capacity {
    type Err = String;

    /// Reads a number of bytes: `4096`, `36KB`, `64KiB`, `512MiB`, `2GiB`. The units count in 1,024s.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim_start() {
            "" | "B" => 0,
            "kB" | "KB" | "KiB" => 10,
            "MB" | "MiB" => 20,
            "GB" | "GiB" => 30,
            _ => return Err("write bytes as 4096, 64KiB, 512MiB or 2GiB".to_owned()),
        };
        let number: u64 = number.parse().map_err(|_| "a whole number of bytes".to_owned())?;
        number.checked_mul(1 << shift).map(Self::Bytes).ok_or_else(|| "too many bytes".to_owned())
    }
}

/// The choice of the session to evict when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The session that is expected back last, or no more, by the [`Prediction`].
    #[default]
    Predictive,
    /// The least recently used session. Nothing is learned, and hits are not recorded in histories.
    Lru,
}

/// The source of return times, which decides the eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prediction {
    /// The application's hint, taken at its word. An overdue session is evicted, or else the one
    /// that returns last (paper 000, Algorithm 1, read with "else").
    Hint,
    /// The client's own past visits, and those of clients like it. The session whose place is worth
    /// least is evicted ([`ReturnTimes`](crate::ReturnTimes)).
    Learned,
    /// The hint as far as the client's past supports it, with the return times learned of clients
    /// that had similar hints; without a hint, [`Self::Learned`].
    #[default]
    Both,
}

/// A cache's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The size.
    pub capacity: Capacity,
    /// The choice of the session to evict.
    pub policy: Policy,
    /// The source of return times.
    pub prediction: Prediction,
    /// The time after its return time for which a client does not count as overdue, in milliseconds.
    /// It is used with [`Prediction::Hint`] only: otherwise it is learned.
    pub grace_ms: u64,
    /// The interval expected of a client without history until something is known about the clients,
    /// in milliseconds.
    pub prior_ms: u64,
    /// The bytes of value stored beside each session, 8 to 65,528, rounded up to a multiple of 8. A
    /// longer value takes the blocks of several sessions.
    pub block_bytes: u32,
    /// The longest value that is stored at all, in bytes, at most 65,535.
    pub longest_value_bytes: u32,
    /// The histories of evicted clients that are kept, of eight bytes each, in percent of the sessions, at most 1,000. Unless the
    /// percentage is 0, a cache that learns keeps at least 1,024, or eight for each session if that is fewer.
    pub ghosts_percent: u32,
    /// The number of shards, each with its own lock, at most 4,096. `None` means one per 8,192
    /// sessions, at most 64.
    pub shards: Option<u32>,
    /// The bound on what one source can take; `None` if there is none.
    pub fairness: Option<Fairness>,
}

impl Settings {
    /// The default grace: two seconds, as in the paper's Table II.
    pub const GRACE_MS: u64 = 2_000;

    /// Returns safe defaults for a capacity.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            policy: Policy::default(),
            prediction: Prediction::default(),
            grace_ms: Self::GRACE_MS,
            prior_ms: 60_000,
            block_bytes: 192,
            longest_value_bytes: 16 * 1024,
            ghosts_percent: 100,
            shards: None,
            fairness: None,
        }
    }
}
