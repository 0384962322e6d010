//! What the clairvoyant knows of a pass: when a session made now will be wanted.

use crate::request::Request;

/// For each request, how many requests later its client connects again to the same server and
/// still has its session. Takes 4 bytes a request, and 16 a client while it is made.
#[derive(Debug, Default)]
pub(crate) struct Future {
    /// 0: never. Longer gaps than fit are taken for the longest.
    gaps: Vec<u32>,
    last: Vec<Last>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    position: u64,
    server: u16,
}

impl Future {
    /// Takes note of the next request.
    pub(crate) fn record(&mut self, request: &Request, sessions_kept: bool) {
        let position = self.gaps.len() as u64;
        self.gaps.push(0);
        let now = Last { position, server: request.server };
        let Some(last) = self.last.get_mut(request.client as usize) else {
            // Clients are numbered as they come.
            return self.last.push(now);
        };
        let before = std::mem::replace(last, now);
        if before.server == request.server && (sessions_kept || !request.first_of_run) {
            let gap = u32::try_from(position - before.position).unwrap_or(u32::MAX);
            self.gaps[before.position as usize] = gap;
        }
    }

    /// The whole pass is known.
    pub(crate) fn finish(&mut self) {
        self.last = Vec::new();
    }

    /// What follows so many requests; nothing if nothing was recorded.
    pub(crate) fn gaps_from(&self, position: u64) -> &[u32] {
        self.gaps.get(position as usize..).unwrap_or_default()
    }
}
