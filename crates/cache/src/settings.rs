//! What a cache can be told.

/// How much a cache may hold. The bound is exact: nothing is allocated later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// So many sessions whose value fits in [`Settings::block_bytes`]; a larger one takes the
    /// place of several.
    Sessions(u64),
    /// So many bytes in all: sessions, index, orders and ghosts. The 100 KB of
    /// [`ReturnTimes`](crate::ReturnTimes), whatever the capacity, come on top.
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

/// Which session goes when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The one that is expected back last, or no more: by [`Prediction`].
    #[default]
    Predictive,
    /// The one not used for longest.
    Lru,
}

/// What a return time is made of, and so who goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prediction {
    /// What the application says, taken at its word: the session overdue goes, else the one that
    /// returns last (paper 000, Algorithm 1, read with "else").
    Hint,
    /// The client's own past visits, and those of clients like it: the session whose place is
    /// worth least goes ([`ReturnTimes`](crate::ReturnTimes)).
    Learned,
    /// The hint as far as the client's past supports it, and what was learned of clients of whom
    /// the like was said; else as [`Self::Learned`].
    #[default]
    Both,
}

/// A cache's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How much it may hold.
    pub capacity: Capacity,
    /// Which session goes.
    pub policy: Policy,
    /// Where return times come from.
    pub prediction: Prediction,
    /// How long after its return time a client still counts as on its way, in milliseconds. Only
    /// for [`Prediction::Hint`]: elsewhere it is learned.
    pub grace_ms: u64,
    /// The interval expected of a client without history while nothing is known of any,
    /// in milliseconds.
    pub prior_ms: u64,
    /// Bytes of value stored beside each session, 8 to 65,528, rounded up to a multiple of 8; a
    /// longer value takes the blocks of several sessions.
    pub block_bytes: u32,
    /// The longest value that is stored at all, at most 65,535.
    pub longest_value_bytes: u32,
    /// Histories of evicted clients kept, in percent of the sessions, at most 1,000.
    pub ghosts_percent: u32,
    /// Shards, each with its own lock, at most 4,096; `None`: one per 8,192 sessions, at most 64.
    pub shards: Option<u32>,
}

impl Settings {
    /// Two seconds, as in the paper's Table II.
    pub const GRACE_MS: u64 = 2_000;

    /// Safe defaults around a capacity.
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
        }
    }
}
