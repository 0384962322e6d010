//! The future of a pass, which the clairvoyant knows: when a session made now will be wanted.

use crate::request::Request;

/// The number of requests, for each request, after which its client connects again to the same
/// server and still has its session. It takes 4 bytes per request, and 16 per client while it is
/// made.
#[derive(Debug, Default)]
pub(crate) struct Future {
    /// The gaps; 0 means never. Gaps that do not fit are taken for the longest.
    gaps: Vec<u32>,
    last: Vec<Last>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    position: u64,
    server: u16,
}

impl Future {
    /// Records the next request.
    pub(crate) fn record(&mut self, request: &Request, sessions_kept: bool) {
        let position = self.gaps.len() as u64;
        self.gaps.push(0);
        let now = Last { position, server: request.server };
        let Some(last) = self.last.get_mut(request.client as usize) else {
            // Clients are numbered in the order in which they come.
            return self.last.push(now);
        };
        let before = std::mem::replace(last, now);
        if before.server == request.server && (sessions_kept || !request.first_of_run) {
            let gap = u32::try_from(position - before.position).unwrap_or(u32::MAX);
            self.gaps[before.position as usize] = gap;
        }
    }

    /// Completes the future after the whole pass.
    pub(crate) fn finish(&mut self) {
        self.last = Vec::new();
    }

    /// Returns the gaps after so many requests; an empty slice if nothing was recorded.
    pub(crate) fn gaps_from(&self, position: u64) -> &[u32] {
        self.gaps.get(position as usize..).unwrap_or_default()
    }
}
