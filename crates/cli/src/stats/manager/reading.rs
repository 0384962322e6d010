//! A snapshot of a manager's counters.

use rejoin_manager::client::{Error, Manager};
use rejoin_manager::protocol::{Handshakes, Share, Stats, Went};
use rejoin_serve::metrics::{Labels, Meters};
use serde_json::{Value, json};

use crate::stats::percent;

/// A snapshot of a manager's counters.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// The path of its socket.
    pub(super) socket: String,
    pub(super) stats: Stats,
}

impl Reading {
    pub(super) fn of(manager: &Manager) -> Result<Self, Error> {
        let sockets: Vec<_> =
            manager.sockets().map(|socket| socket.display().to_string()).collect();
        Ok(Self { socket: sockets.join(" or "), stats: manager.stats()? })
    }

    /// Returns the snapshot as a JSON object.
    pub(super) fn json(&self) -> Value {
        let mut record = json!(self.stats);
        record["socket"] = self.socket.clone().into();
        record["resumed_percent"] = resumed_percent(&self.stats.handshakes).into();
        record
    }

    /// Returns the snapshot as metrics. The manager may have ended since.
    pub(super) fn metrics(&self, is_up: bool) -> Meters {
        let Stats { handshakes, open, sessions, session_bytes, programs, services, directly } =
            &self.stats;
        let mut meters = Meters::new(Labels::new());
        let help =
            "1 while the manager answers; otherwise all other metrics keep their last values";
        meters.gauge("manager_up", help, u64::from(is_up));
        let all = kinds(handshakes, None).into();
        meters.counters("manager_handshakes", "Handshakes with servers", all);
        for (label, help, shares) in [
            ("program", "Handshakes of each program, at most 512 of them", programs),
            ("service", "Handshakes with each service, at most 512 of them", services),
        ] {
            let each = |Share { name, handshakes }: &Share| kinds(handshakes, Some((label, name)));
            let counts = shares.iter().flat_map(each).collect();
            meters.counters(format!("manager_{label}_handshakes"), help, counts);
        }
        let Handshakes { across_names, refused, early_data, .. } = *handshakes;
        let help = "Resumptions with the session of another name";
        meters.counter("manager_cross_name_resumptions", help, across_names);
        let help = "Sessions that a server refused; its handshake was full";
        meters.counter("manager_refused_sessions", help, refused);
        let help = "Connections whose 0-RTT data the server accepted";
        meters.counter("manager_early_data_accepted", help, early_data);
        let help = "Connections of unmodified programs that went without the manager";
        let of = |Went { why, times }: &Went| (vec![("reason", why.name().to_owned())], *times);
        meters.counters("manager_bypasses", help, directly.iter().map(of).collect());
        meters.gauge("manager_connections", "Connections open now, of all users", *open);
        meters.gauge("manager_sessions", "Sessions stored now, of all users", *sessions);
        meters.gauge("manager_session_bytes", "Memory of the sessions stored now", *session_bytes);
        meters
    }
}

/// Returns the numbers of handshakes by outcome.
fn kinds(of: &Handshakes, share: Option<(&'static str, &String)>) -> [(Labels, u64); 3] {
    [("full", of.full), ("resumed", of.resumed), ("failed", of.failed)].map(|(kind, count)| {
        let share = share.map(|(label, name)| (label, name.clone()));
        (share.into_iter().chain([("kind", kind.to_owned())]).collect(), count)
    })
}

/// Returns the percentage of handshakes that resumed, without those that failed.
pub(super) fn resumed_percent(of: &Handshakes) -> Option<f64> {
    percent(of.resumed, of.full + of.resumed)
}

#[cfg(test)]
mod tests {
    use rejoin_serve::metrics::Format;

    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_metrics() {
        let handshakes = Handshakes { full: 1, ..Handshakes::default() };
        let share = Share { name: "a\"} 1\nb".to_owned(), handshakes };
        let stats = Stats { programs: vec![share], ..Stats::default() };
        let text = Reading { socket: String::new(), stats }.metrics(true);
        let text = text.text(Format::OpenMetrics);
        let line = r#"rejoin_manager_program_handshakes_total{program="a\"} 1\nb",kind="full"} 1"#;
        assert!(text.lines().any(|told| told == line), "{text}");
    }
}
