//! The arrival of a client.

use crate::speed_up::SpeedUp;

/// One TLS connection of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// When, in milliseconds from the start of the trace.
    pub time_ms: u64,
    /// Who: the same number for the same client throughout the trace, and nothing that could
    /// name it outside.
    pub client: u64,
    /// Whether it begins a run of connections (paper 000 §V.A). Hit rates "after the first of
    /// each run" leave these events out.
    pub first_of_run: bool,
    /// In how many milliseconds the client would announce, truthfully, to connect again. `None`:
    /// it cannot say, or will not be back.
    ///
    /// It is the client's interval and not clairvoyance: a client may stop running before, or
    /// be late, as it may in paper 000 §IV.
    pub returns_in_ms: Option<u32>,
}

impl Event {
    /// The same arrival in a world whose time runs faster: both its times are divided and
    /// rounded to the nearest millisecond.
    ///
    /// Events in order of time stay in order. Gaps between them may come out a millisecond
    /// apart; [`Population::speed_up`](crate::Population::speed_up) keeps gaps exact.
    #[must_use]
    pub fn speed_up(self, by: SpeedUp) -> Self {
        let returns_in_ms = self.returns_in_ms.map(|ms| {
            let faster = by.ms(u64::from(ms));
            u32::try_from(faster).unwrap_or(u32::MAX)
        });
        Self { time_ms: by.ms(self.time_ms), returns_in_ms, ..self }
    }
}
