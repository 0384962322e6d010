//! The complete answer of `rejoin plan`.

use rejoin_sim::sizing::{
    FIFO, Found, HAPROXY, Lifetime, NGINX, Need, Peer, Sizing, Survey, shipped_bytes,
};
use rejoin_sim::{Cell, HitRates, Subject};
use rejoin_trace::grouped;
use serde::Serialize;

use super::Arguments;
use super::configuration::{Configuration, Wanted};
use super::costs::{Costs, version};
use crate::units::{bytes, percent, time};

/// The default bytes of a session's block, which are the cache's default.
pub(super) const SESSION_BYTES: u32 = 192;

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a> {
    pub(super) title: &'a str,
    /// True unless the run was interrupted.
    pub(super) complete: bool,
    pub(super) seeds: u32,
    pub(super) tls: &'static str,
    pub(super) servers: u16,
    pub(super) clients: u64,
    pub(super) requests: f64,
    pub(super) counted_s: f64,
    /// True if clients announce when they return.
    pub(super) hints: bool,
    /// True if the starts of runs are known; otherwise there is no rate after the first of each run.
    pub(super) runs: bool,
    pub(super) unlimited: HitRates,
    pub(super) target_percent: f64,
    /// The resumptions to reach, in percent of returning devices.
    pub(super) goal_percent: f64,
    pub(super) costs: Costs,
    pub(super) session_bytes: u32,
    pub(super) peers: [PeerBytes; 2],
    pub(super) rows: Vec<Row<'a>>,
    pub(super) needs: &'a [Need],
    pub(super) recommendation: Option<Recommendation>,
    pub(super) line: String,
    pub(super) lifetime: Option<Lifetime>,
    pub(super) lifetime_s: u32,
    pub(super) lifetime_source: String,
    pub(super) configuration: Option<Configuration>,
}

/// The cache of another server.
#[derive(Debug, Serialize)]
pub(super) struct PeerBytes {
    pub(super) name: &'static str,
    pub(super) session_bytes: f64,
    pub(super) source: &'static str,
}

/// A policy at a capacity.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    #[serde(flatten)]
    pub(super) cell: &'a Cell,
    pub(super) avoided_per_s: Option<f64>,
    pub(super) cores_saved: Option<f64>,
    pub(super) bytes: Memory,
}

/// The bytes of sessions in each cache that has the policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejoin: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) openssl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nginx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) haproxy: Option<u64>,
}

/// The smallest cache that reaches the target.
#[derive(Debug, Serialize)]
pub(super) struct Recommendation {
    pub(super) policy: Subject,
    pub(super) sessions: u32,
    pub(super) bytes: u64,
    /// The largest size tried that does not reach the target.
    pub(super) fails_at: Option<u32>,
    pub(super) returning_percent: f64,
    pub(super) avoided_per_s: Option<f64>,
    pub(super) cores_saved: Option<f64>,
    /// The sessions that FIFO needs to reach the same.
    pub(super) fifo_sessions: Option<u32>,
    /// The bytes of those in OpenSSL's, nginx's and HAProxy's caches.
    pub(super) fifo_bytes: Option<Memory>,
}

impl<'a> Answer<'a> {
    pub(super) fn of(
        arguments: &Arguments,
        sizing: &Sizing<'a>,
        found: &'a Found,
        costs: Costs,
    ) -> anyhow::Result<Self> {
        let Sizing { simulation, survey, target_percent } = *sizing;
        let ghosts_percent = simulation.server.ghosts_percent;
        let sizer = Sizer { session_bytes: arguments.session_bytes, ghosts_percent, costs: &costs };
        let rows = found.cells.iter().map(|cell| sizer.row(survey, cell));
        let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
        let recommendation = found.recommended().map(|need| sizer.recommend(need, found, &rows));
        let recommendation = recommendation.transpose()?.flatten();
        let lifetime = arguments.lifetime.is_none().then_some(survey.lifetime);
        let lifetime_s = arguments.lifetime.unwrap_or(survey.lifetime.seconds);
        let configuration = recommendation.as_ref().map(|best| {
            let fifo = best.fifo_sessions.unwrap_or(best.sessions);
            let fifo_cell = found.cell(FIFO, fifo);
            Configuration::of(&Wanted {
                policy: best.policy,
                sessions: best.sessions,
                fifo_sessions: fifo,
                fifo_percent: fifo_cell.and_then(returning),
                fifo_is_enough: best.fifo_sessions.is_some(),
                lifetime_s,
                session_bytes: arguments.session_bytes,
                server: &simulation.server,
            })
        });
        let line = line(recommendation.as_ref(), found, &sizer, sizing);
        let peer = |Peer { name, session_bytes, source }| PeerBytes { name, session_bytes, source };
        Ok(Self {
            title: &simulation.title,
            complete: found.complete,
            seeds: simulation.seeds,
            tls: version(simulation.server.tls),
            servers: simulation.server.servers,
            clients: survey.clients,
            requests: survey.requests,
            counted_s: survey.counted_s,
            hints: survey.hints,
            runs: survey.runs,
            unlimited: survey.unlimited,
            target_percent,
            goal_percent: sizing.goal(),
            session_bytes: arguments.session_bytes,
            peers: [peer(NGINX), peer(HAPROXY)],
            rows,
            needs: &found.needs,
            recommendation,
            line,
            lifetime,
            lifetime_s,
            lifetime_source: lifetime_source(lifetime.as_ref(), survey.counted_s),
            configuration,
            costs,
        })
    }
}

/// The computation of memory and of savings.
struct Sizer<'a> {
    session_bytes: u32,
    ghosts_percent: Option<u32>,
    costs: &'a Costs,
}

impl Sizer<'_> {
    fn row<'a>(&self, survey: &Survey, cell: &'a Cell) -> anyhow::Result<Row<'a>> {
        let avoided_per_s = survey.avoided_per_s(cell);
        let cores_saved = avoided_per_s.and_then(|avoided| self.costs.cores(avoided));
        let bytes = self.memory(cell.policy, cell.capacity)?;
        Ok(Row { cell, avoided_per_s, cores_saved, bytes })
    }

    fn memory(&self, policy: Subject, sessions: u32) -> anyhow::Result<Memory> {
        Ok(match policy {
            FIFO => Memory {
                rejoin: None,
                openssl: Some(self.costs.openssl_bytes(sessions)),
                nginx: Some(NGINX.bytes(sessions)),
                haproxy: Some(HAPROXY.bytes(sessions)),
            },
            Subject::Yardstick(_) => Memory::default(),
            _ => Memory {
                rejoin: Some(shipped_bytes(sessions, self.session_bytes, self.ghosts_percent)?),
                ..Memory::default()
            },
        })
    }

    fn recommend(
        &self,
        need: &Need,
        found: &Found,
        rows: &[Row<'_>],
    ) -> anyhow::Result<Option<Recommendation>> {
        let Need { policy, sessions: Some(sessions), fails_at } = *need else { return Ok(None) };
        let row =
            rows.iter().find(|row| (row.cell.policy, row.cell.capacity) == (policy, sessions));
        let Some(row) = row else { return Ok(None) };
        let fifo_sessions = found.need(FIFO).and_then(|need| need.sessions);
        Ok(Some(Recommendation {
            policy,
            sessions,
            bytes: row.bytes.rejoin.unwrap_or_default(),
            fails_at,
            returning_percent: returning(row.cell).unwrap_or_default(),
            avoided_per_s: row.avoided_per_s,
            cores_saved: row.cores_saved,
            fifo_sessions,
            fifo_bytes: fifo_sessions.map(|sessions| self.memory(FIFO, sessions)).transpose()?,
        }))
    }
}

fn returning(cell: &Cell) -> Option<f64> {
    cell.rates.hit_after_first_of_device.map(|rate| rate.mean)
}

/// Returns the recommendation in one line.
fn line(
    best: Option<&Recommendation>,
    found: &Found,
    sizer: &Sizer<'_>,
    sizing: &Sizing<'_>,
) -> String {
    let largest = found.largest().unwrap_or_default();
    if let Some(best) = best {
        let percent = percent(best.returning_percent);
        let ours = format!("{}: {percent} % of returning devices resume", bytes(best.bytes));
        let openssl = |sessions| bytes(sizer.costs.openssl_bytes(sessions));
        return match (best.fifo_sessions, found.need(FIFO)) {
            (_, None) => ours,
            (Some(sessions), _) => {
                format!("{ours}; OpenSSL's own cache would need {}", openssl(sessions))
            }
            (None, _) => {
                format!("{ours}; OpenSSL's own cache would not reach it below {}", openssl(largest))
            }
        };
    }
    if !found.complete {
        return "interrupted: nothing is recommended".to_owned();
    }
    let shipped = found.cells.iter().filter(|cell| is_shipped(cell.policy));
    let rate = |cell: &Cell| returning(cell).unwrap_or_default();
    let best = shipped.max_by(|one, other| rate(one).total_cmp(&rate(other)));
    match best {
        None => "nothing is recommended: give --policies one of both, learned, lru, predictive"
            .to_owned(),
        Some(cell) => format!(
            "no size up to {} sessions is enough for {} % of returning devices: {} % resume with {}; \
             try larger --capacities or a smaller --target",
            grouped(largest.into()),
            percent(sizing.goal()),
            percent(rate(cell)),
            cell.policy,
        ),
    }
}

fn is_shipped(policy: Subject) -> bool {
    !matches!(policy, Subject::Yardstick(_))
}

/// Returns how the lifetime was found.
fn lifetime_source(found: Option<&Lifetime>, counted_s: f64) -> String {
    let Some(found) = found else { return "as given".to_owned() };
    let age = if found.renewed {
        "since the request before, as each makes new tickets"
    } else {
        "since its full handshake, as OpenSSL counts"
    };
    let which = if found.lost_percent <= 1.0 {
        "the shortest round time that costs at most 1 % of resumptions"
    } else {
        "the longest allowed"
    };
    let mut text =
        format!("{which}; {} % find their session too old, {age}", percent(found.lost_percent));
    if f64::from(found.seconds) >= counted_s / 2.0 {
        text += &format!(
            "; arrivals of {} say little of it",
            time((counted_s / 60.0).round() as u64 * 60)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use rejoin_cache::{Capacity, Settings};

    #[test]
    fn a_session_has_the_block_of_the_cache() {
        assert_eq!(super::SESSION_BYTES, Settings::new(Capacity::Sessions(1)).block_bytes);
    }
}
