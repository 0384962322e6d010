//! A program's connection to the manager, from its admission to its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::endings::OpenConnection;
use crate::downstream::input::is_gone;
use crate::downstream::messages;
use crate::downstream::program::Program;
use crate::failure::Failure;
use crate::life::Phase;
use crate::protocol::{Answer, Connect, Connected, Directly, EarlyData, ErrorKind, Handshakes};
use crate::protocol::{Token, Why};
use crate::state::State;

/// The interval at which the manager checks whether a program is gone from whose socket it does not read: the kernel
/// does not report that unasked.
pub(crate) const ASK_WHETHER_GONE: Duration = Duration::from_secs(1);

/// A connected program.
pub(crate) struct ProgramConnection {
    pub(crate) state: Arc<State>,
    pub(crate) program: Program,
    pub(crate) stream: ProgramSocket,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl ProgramConnection {
    /// Runs `what` for as long as the program waits and the manager runs.
    pub(crate) async fn while_awaited<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let mut phase = self.phase.clone();
        tokio::select! {
            biased;
            done = what => Some(done),
            () = gone(&self.stream) => None,
            () = stopping(&mut phase) => {
                let failure = Failure::new(ErrorKind::ShuttingDown, "the manager is shutting down");
                refuse(&self.stream, failure).await;
                None
            }
        }
    }

    /// Notes that the program connects without the manager.
    pub(crate) fn goes_directly(&self, why: Directly) {
        self.state.counts.went_directly(self.program.uid, why, 1);
    }

    /// Notes that a connection is open, so that the program may ask for its end. `asks`: it is expected to.
    pub(crate) fn open(&self, connection: Token, asks: bool) -> OpenConnection<'_> {
        let user = (self.program.uid, asks);
        self.state.endings.open(connection, user, &self.state.settings.clock)
    }

    pub(crate) fn record(&self, service: &str, of: &Handshakes) {
        let name = self.program.name().unwrap_or("unknown");
        self.state.counts.record(self.program.uid, name, service, of);
    }
}

/// Completes when the manager ends.
pub(crate) async fn stopping(phase: &mut watch::Receiver<Phase>) {
    // A sender that is gone counts as an end, too.
    let _ = phase.wait_for(|phase| *phase == Phase::Ended).await;
}

/// Returns the name under which a connection is counted.
pub(crate) fn service(wish: &Connect) -> String {
    format!("{}:{}", wish.host, wish.port)
}

/// The count of a connection that failed.
pub(crate) const FAILED: Handshakes =
    Handshakes { full: 0, resumed: 0, across_names: 0, refused: 0, failed: 1, early_data: 0 };

pub(crate) fn counted(connected: &Connected) -> Handshakes {
    let one = u64::from;
    Handshakes {
        full: one(!connected.resumed),
        resumed: one(connected.resumed),
        across_names: one(connected.session_of.is_some()),
        refused: one(connected.why == Why::Refused),
        failed: 0,
        early_data: one(connected.early_data == EarlyData::Accepted),
    }
}

pub(crate) async fn refuse(stream: &ProgramSocket, failure: Failure) {
    // The program may be gone.
    let _ = messages::write(stream, Answer::Error(failure.into())).await;
}

/// Completes when the program is gone.
pub(crate) async fn gone(program: &ProgramSocket) {
    while !is_gone(program) {
        tokio::time::sleep(ASK_WHETHER_GONE).await;
    }
}
