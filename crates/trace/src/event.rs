//! The arrival of a client.

use crate::speed_up::SpeedUp;

/// One TLS connection of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// The time of the connection, in milliseconds from the start of the trace.
    pub time_ms: u64,
    /// The client's number, which is the same throughout the trace and does not identify the client
    /// outside it.
    pub client: u64,
    /// True if it begins a run of connections (paper 000 §V.A). Hit rates "after the first of each
    /// run" leave these events out.
    pub first_of_run: bool,
    /// The time in which the client announces to connect again, in milliseconds. `None` means that
    /// it announces nothing, [`Self::NOT_BACK_MS`] that it will not be back.
    ///
    /// It is the client's interval and not clairvoyance: a client may stop running before, or
    /// be late, as it may in paper 000 §IV. It is the truth as far as the client knows it, unless
    /// the population has untrue [`Claims`](crate::Claims).
    pub returns_in_ms: Option<u32>,
}

impl Event {
    /// The announcement of a client that leaves: not back within 49 days, if ever. It is the largest
    /// number, so that an order of clients by their return puts these last.
    pub const NOT_BACK_MS: u32 = u32::MAX;

    /// Returns the same arrival with both its times divided and rounded to the nearest millisecond.
    /// The announcement of a client that leaves stays.
    ///
    /// Events in order of time stay in order. Equal gaps between them may differ by a millisecond
    /// afterwards; [`Population::speed_up`](crate::Population::speed_up) keeps gaps exact.
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
