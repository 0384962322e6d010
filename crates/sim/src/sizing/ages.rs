//! The lifetime that sessions need.
//!
//! A session's lifetime starts at the handshake that made it. Over TLS 1.3 a resumption makes new
//! tickets, so the gap between two requests of a client counts. Over TLS 1.2 the resumed session
//! grows older, as it does with OpenSSL, nginx and HAProxy: a lifetime as long as the gaps would
//! make every second handshake a full one. Therefore lifetimes are tried, all at once, on a cache
//! that evicts nothing.
//!
//! Arrivals tell only of lifetimes that end within them more than once. A lifetime as long as a
//! recording loses nothing in it, and may lose much afterwards. Where no shorter one is enough, the
//! longest is taken.
//!
//! Not here: a lifetime that is known ([`Births`](crate::births::Births)).

use serde::Serialize;

use crate::births::Births;
use crate::server::{Server, Tls};

/// The lifetimes that are tried, in seconds: round ones. The last is the longest that TLS 1.3 allows
/// (RFC 8446 §4.6.1), a day the longest that TLS 1.2 suggests (RFC 5246 §F.1.4).
const LIFETIMES_S: [u32; 12] =
    [60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 28_800, A_DAY_S, 172_800, 604_800];
const A_DAY_S: u32 = 86_400;
/// The unit of ages: a tenth of a second.
const TICKS_A_SECOND: u32 = 10;

/// The lifetime with which few returning clients find their session expired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lifetime {
    /// The lifetime in seconds.
    pub seconds: u32,
    /// The requests that would be lost, in percent of those that an unlimited cache resumes.
    pub lost_percent: f64,
    /// True if a resumption makes a new session, so that age is counted from the last request.
    pub renewed: bool,
}

impl Lifetime {
    /// The most requests, in percent of those that could resume, that may find their session expired.
    pub const MOST_LOST_PERCENT: f64 = 1.0;

    /// Returns true if arrivals of so many seconds tell whether a lifetime is long enough: it ends in
    /// them more than once.
    pub fn is_told(seconds: u32, counted_s: f64) -> bool {
        f64::from(seconds) < counted_s / 2.0
    }
}

/// The time when each client's session was made, for every lifetime.
#[derive(Debug)]
pub(super) struct Ages {
    lifetimes: &'static [u32],
    renewed: bool,
    /// The time of the first request: clocks may have begun long before.
    origin_ms: Option<u64>,
    /// The times in ticks since then, `stride` for each client. They begin anew after 13 years.
    born: Vec<u32>,
    stride: usize,
    lost: Vec<u64>,
}

impl Ages {
    pub(super) fn new(server: &Server) -> Self {
        let renewed = Births::new(server).renewed;
        let lifetimes = match server.tls {
            Tls::V1_3 { .. } => &LIFETIMES_S[..],
            Tls::V1_2 => {
                let allowed = LIFETIMES_S.iter().filter(|seconds| **seconds <= A_DAY_S).count();
                &LIFETIMES_S[..allowed]
            }
        };
        // Renewed sessions have the same age for every lifetime.
        let stride = if renewed { 1 } else { lifetimes.len() };
        Self {
            lifetimes,
            renewed,
            origin_ms: None,
            born: Vec::new(),
            stride,
            lost: vec![0; lifetimes.len()],
        }
    }

    /// Records that a client connects; clients are numbered in the order in which they come.
    /// `resumes` is true if an unlimited cache would have its session, `counted` if the request is
    /// to be counted.
    pub(super) fn record(&mut self, client: u32, now_ms: u64, resumes: bool, counted: bool) {
        let now_ms = now_ms - *self.origin_ms.get_or_insert(now_ms);
        let now = (now_ms / (1_000 / u64::from(TICKS_A_SECOND))) as u32;
        let at = client as usize * self.stride;
        if at >= self.born.len() {
            self.born.resize(at + self.stride, now);
        }
        let born = &mut self.born[at..][..self.stride];
        for (number, seconds) in self.lifetimes.iter().enumerate() {
            let born = &mut born[if self.renewed { 0 } else { number }];
            let expired = now.wrapping_sub(*born) >= seconds * TICKS_A_SECOND;
            self.lost[number] += u64::from(resumes && counted && expired);
            if !self.renewed && (expired || !resumes) {
                *born = now;
            }
        }
        if self.renewed {
            born[0] = now;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.lost.iter_mut().zip(&other.lost).for_each(|(lost, more)| *lost += more);
    }

    /// Returns the shortest lifetime that is long enough and that arrivals of `counted_s` tell of,
    /// given the number of requests that could resume, or else the longest.
    pub(super) fn lifetime(&self, could_resume: u64, counted_s: f64) -> Lifetime {
        let percent = |lost: u64| lost_percent(lost, could_resume);
        let enough =
            self.lost.iter().position(|lost| percent(*lost) <= Lifetime::MOST_LOST_PERCENT);
        let told = enough.filter(|number| Lifetime::is_told(self.lifetimes[*number], counted_s));
        let number = told.unwrap_or(self.lifetimes.len() - 1);
        Lifetime {
            seconds: self.lifetimes[number],
            lost_percent: percent(self.lost[number]),
            renewed: self.renewed,
        }
    }
}

pub(super) fn lost_percent(lost: u64, could_resume: u64) -> f64 {
    lost as f64 * 100.0 / could_resume.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lifetime for a client that connects every 50 s for ten hours.
    fn regular(server: &Server) -> Lifetime {
        let mut ages = Ages::new(server);
        for request in 0..720 {
            ages.record(0, request * 50_000, request > 0, true);
        }
        ages.lifetime(719, 35_950.0)
    }

    #[test]
    fn a_session_that_is_renewed_lives_from_request_to_request() {
        let tls = Tls::V1_3 { full: 2, resumed: 1, used_once: false };
        let found = regular(&Server { tls, ..Server::default() });
        assert_eq!(found, Lifetime { seconds: 60, lost_percent: 0.0, renewed: true });
    }

    #[test]
    fn a_session_that_goes_on_grows_old() {
        // A lifetime of two hours loses every 144th request; one of an hour every 72nd.
        let found = regular(&Server::default());
        assert_eq!((found.seconds, found.renewed), (7_200, false));
        assert_eq!(found.lost_percent, 4.0 * 100.0 / 719.0);
    }

    /// The clients of 10 h in the quarter of an hour that was recorded: all of it is in the lifetime
    /// of half an hour, which loses every 36th request later.
    #[test]
    fn a_recording_too_short_to_tell_leaves_the_longest() {
        for (tls, seconds) in [(Tls::V1_2, 86_400), (Tls::V1_3_OF_OPENSSL, 60)] {
            let mut ages = Ages::new(&Server { tls, ..Server::default() });
            for request in 0..19 {
                ages.record(0, request * 50_000, request > 0, true);
            }
            assert_eq!(ages.lifetime(18, 900.0).seconds, seconds, "{tls:?}");
            assert_eq!(ages.lifetime(18, 100.0).seconds, *ages.lifetimes.last().expect("some"));
        }
    }

    /// Traces may count from 1970.
    #[test]
    fn where_the_clock_begins_is_all_the_same() {
        let mut ages = Ages::new(&Server::default());
        for request in 0..720 {
            ages.record(0, 1_700_000_000_000 + request * 50_000, request > 0, true);
        }
        assert_eq!(ages.lifetime(719, 35_950.0), regular(&Server::default()));
    }

    /// A line of a log may be of another decade.
    #[test]
    fn decades_without_a_request_change_nothing() {
        const LATER_MS: u64 = 26 * 365 * 86_400_000;
        let mut ages = Ages::new(&Server::default());
        ages.record(0, 0, false, true);
        for request in 0..720 {
            ages.record(1, LATER_MS + request * 50_000, request > 0, true);
        }
        assert_eq!(ages.lifetime(719, 35_950.0), regular(&Server::default()));
    }

    #[test]
    fn where_none_is_long_enough_it_is_the_longest() {
        let mut ages = Ages::new(&Server::default());
        for request in 0..100 {
            ages.record(0, request * 90_000_000, request > 0, true);
        }
        let found = ages.lifetime(99, 8_910_000.0);
        assert_eq!((found.seconds, found.lost_percent), (86_400, 100.0));
    }
}
