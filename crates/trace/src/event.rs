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
    /// In how many milliseconds the client announces to connect again. `None`: it says nothing.
    /// [`Self::NOT_BACK_MS`]: it says that it will not be back.
    ///
    /// It is the client's interval and not clairvoyance: a client may stop running before, or
    /// be late, as it may in paper 000 §IV. It is the truth as far as the client knows it, unless
    /// the population was asked for [`Claims`](crate::Claims) that are not.
    pub returns_in_ms: Option<u32>,
}

impl Event {
    /// Announced by a client that leaves: not back within 49 days, if ever. It is the largest
    /// number there is, so that whoever orders clients by their return has those last.
    pub const NOT_BACK_MS: u32 = u32::MAX;

    /// The same arrival in a world whose time runs faster: both its times are divided and
    /// rounded to the nearest millisecond. A client that leaves leaves in any world.
    ///
    /// Events in order of time stay in order. Gaps between them may come out a millisecond
    /// apart; [`Population::speed_up`](crate::Population::speed_up) keeps gaps exact.
    #[must_use]
    pub fn speed_up(self, by: SpeedUp) -> Self {
        let faster = |ms| u32::try_from(by.ms(u64::from(ms))).unwrap_or(Self::NOT_BACK_MS);
        let returns_in_ms = self.returns_in_ms.map(|ms| match ms {
            Self::NOT_BACK_MS => ms,
            _ => faster(ms),
        });
        Self { time_ms: by.ms(self.time_ms), returns_in_ms, ..self }
    }
}
