//! The counts of a cache.

/// Counts since the cache was made. Everything but [`Self::sessions`] only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Sessions stored now.
    pub sessions: u64,
    /// Handshakes that made a new session, counted where the cache is attached to a server.
    pub full_handshakes: u64,
    /// Handshakes that resumed a session of the cache or of a stateless ticket, counted where the
    /// cache is attached to a server.
    pub resumed_handshakes: u64,
    /// Sessions stored so far.
    pub stored: u64,
    /// Lookups that found a session.
    pub hits: u64,
    /// Lookups that found none, for any reason; forged ids are not counted.
    pub misses: u64,
    /// Ids that a client presented but that no server with this key ever issued. The server to
    /// which they were presented counts them.
    pub forged: u64,
    /// Hits whose session the TLS library then declined to resume.
    pub rejected: u64,
    /// Misses because the session's lifetime was over.
    pub expired: u64,
    /// Misses because the session belongs to another session-id context.
    pub foreign_context: u64,
    /// Misses on a session that had been evicted, or refused, not long before.
    pub wanted_after_eviction: u64,
    /// Sessions evicted because their clients were overdue, or not known at all.
    pub evicted_overdue: u64,
    /// Sessions evicted because their clients were expected later than others, or less surely.
    pub evicted_latest: u64,
    /// Sessions evicted by the policy `lru`, or for one that [`Cache::admit`](crate::Cache::admit) takes.
    pub evicted_oldest: u64,
    /// Sessions refused because all others are expected sooner, or more surely.
    pub refused_returns_later: u64,
    /// Sessions refused because they were too large.
    pub refused_too_large: u64,
    /// Sessions refused because their lifetime was over.
    pub refused_expired: u64,
    /// Hits whose return time had been predicted.
    pub predictions: u64,
    /// Sum of |actual − predicted| over those, in milliseconds.
    pub prediction_error_ms: u64,
    /// Sessions evicted for another one of their source, which had its share.
    pub evicted_source_share: u64,
    /// Sessions refused because their source had its share, and none of it was worth less.
    pub refused_source_share: u64,
}

/// The counts of early data (0-RTT) that clients sent: see [`EarlyData`](crate::EarlyData).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EarlyCounters {
    /// Accepted.
    pub accepted: u64,
    /// Rejected, because its session is not there: replays are among them.
    pub unknown: u64,
    /// Rejected, because a copy could have been accepted before.
    pub waiting: u64,
    /// Rejected by the TLS library or the program.
    pub declined: u64,
}

impl EarlyCounters {
    /// Returns every count with its name, for printing.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("early_data_accepted", self.accepted),
            ("early_data_unknown", self.unknown),
            ("early_data_waiting", self.waiting),
            ("early_data_declined", self.declined),
        ]
    }
}

impl Counters {
    /// Returns the sum of both, as over shards.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let words: &mut [u64] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut self));
        let others: &[u64] = bytemuck::cast_slice(std::slice::from_ref(other));
        words.iter_mut().zip(others).for_each(|(a, b)| *a = a.saturating_add(*b));
        self
    }

    /// Returns every count with its name, for printing.
    pub fn named(&self) -> [(&'static str, u64); 21] {
        [
            ("sessions", self.sessions),
            ("full_handshakes", self.full_handshakes),
            ("resumed_handshakes", self.resumed_handshakes),
            ("stored", self.stored),
            ("hits", self.hits),
            ("misses", self.misses),
            ("forged", self.forged),
            ("rejected", self.rejected),
            ("expired", self.expired),
            ("foreign_context", self.foreign_context),
            ("wanted_after_eviction", self.wanted_after_eviction),
            ("evicted_overdue", self.evicted_overdue),
            ("evicted_latest", self.evicted_latest),
            ("evicted_oldest", self.evicted_oldest),
            ("refused_returns_later", self.refused_returns_later),
            ("refused_too_large", self.refused_too_large),
            ("refused_expired", self.refused_expired),
            ("predictions", self.predictions),
            ("prediction_error_ms", self.prediction_error_ms),
            ("evicted_source_share", self.evicted_source_share),
            ("refused_source_share", self.refused_source_share),
        ]
    }

    /// Returns the sessions evicted so far, for whatever reason.
    pub fn evicted(&self) -> u64 {
        let reasons = [
            self.evicted_overdue,
            self.evicted_latest,
            self.evicted_oldest,
            self.evicted_source_share,
        ];
        reasons.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the mean absolute error of the predictions that a hit confirmed, in milliseconds.
    pub fn mean_prediction_error_ms(&self) -> Option<f64> {
        (self.predictions > 0).then(|| self.prediction_error_ms as f64 / self.predictions as f64)
    }
}
