//! Commands for sessions that Valkey answers with an error. Each reason is told once, and again while it lasts for long.

use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{is_denied, is_trouble};
use crate::Error;
use crate::error::takes_no_changes;

/// The refusals of one Valkey.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The one to tell next.
    next: Option<Error>,
    /// The reasons, and when each was told last.
    told: Vec<(&'static str, String, Instant)>,
}

impl Refusals {
    /// The most reasons that are told apart. Further ones are counted alone.
    const MOST_REASONS: usize = 8;
    const AGAIN_AFTER: Duration = Duration::from_secs(3_600);

    /// Notes an error, unless it is told in another way. `what` says what Valkey does not do.
    pub(super) fn note(&mut self, what: &'static str, error: &RedisError, now: Instant) {
        if !is_refusal(error) || self.next.is_some() {
            return;
        }
        // The text may differ each time.
        let code = error.code().unwrap_or_else(|| error.category()).to_owned();
        let is_full = self.told.len() == Self::MOST_REASONS;
        let known = self.told.iter_mut().find(|(of, known, _)| *of == what && *known == code);
        match known {
            Some((.., told)) if now.saturating_duration_since(*told) < Self::AGAIN_AFTER => return,
            Some((.., told)) => *told = now,
            None if is_full => return,
            None => self.told.push((what, code, now)),
        }
        self.next = Some(Error::Refused { what, cause: error.clone() });
    }

    pub(super) fn take(&mut self) -> Option<Error> {
        self.next.take()
    }
}

/// Returns true if Valkey answered that it does not do this, and nothing else tells of it: neither the look for the primary
/// nor the one for the user's rights. A script that Valkey lost is sent again.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    let is_passing = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::NoScript | ServerErrorKind::TryAgain)
    );
    !is_passing && !is_trouble(error) && !is_denied(error) && !takes_no_changes(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_an_hour() {
        let parsed = |text: &str| {
            let parsed = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            parsed.expect("an error").extract_error().expect_err("an error")
        };
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let hour = Refusals::AGAIN_AFTER;
        for (text, after, is_told) in [
            ("OOM command not allowed", Duration::ZERO, true),
            ("OOM command not allowed, otherwise", hour / 2, false),
            ("WRONGTYPE of a key", hour / 2, true),
            ("LOADING the dataset", hour / 2, false),
            ("NOSCRIPT no such script", hour / 2, false),
            ("NOPERM no rights", hour / 2, false),
            ("OOM command not allowed", hour, true),
            ("OOM command not allowed", hour + hour / 2, false),
        ] {
            refusals.note("takes no sessions", &parsed(text), begin + after);
            assert_eq!(refusals.take().is_some(), is_told, "{text}, {after:?}");
        }
    }
}
