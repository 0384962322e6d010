//! The figures of the measurement, per transaction, and the model fitted to them.

use rejoin_report::median;
use serde::Serialize;

use super::counters::{Counters, Missing};
use super::load::Wire;
use super::model::{Fit, Model, Parts, Point};
use super::threads::PerTransaction;
use super::{Cell, Cores, Handshake, Round, Settings, Size, Suite, Traffic};
use crate::Ended;
use crate::conditions::MARK;
use crate::fleet::{MOST_FAILED_PERCENT, failed_percent};
use crate::usage::Usage;

/// All that a measurement says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in rounds of all cells.
    #[serde(flatten)]
    pub ended: Ended,
    /// The cores of the server and of its clients, for each number of cores that a server had.
    pub cores: Vec<Cores>,
    /// How the server resumed.
    pub resumption: &'static str,
    /// Clients at a time for each core of the server.
    pub clients: u16,
    /// Rounds that were asked for.
    pub rounds: u16,
    /// Seconds of a round.
    pub round_s: f64,
    /// Why some or all of what the processor counts is missing.
    pub counters_missing: Option<Missing>,
    /// One for each combination that was measured at all.
    pub cells: Vec<Row>,
    /// One for each kind of TLS, where there were full handshakes, plain HTTP, and sizes enough: with the
    /// smallest number of cores.
    pub models: Vec<SuiteModel>,
}

/// The figures of a combination. "Per transaction" and "per second" are medians over rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// `plain`, `full`, `resumed` or `once`.
    pub mode: &'static str,
    /// Version of TLS; `None` in clear.
    pub tls: Option<&'static str>,
    /// The server's key; `None` in clear.
    pub key: Option<&'static str>,
    /// The cipher; `None` in clear.
    pub cipher: Option<&'static str>,
    /// Cores of the server.
    pub cores: usize,
    /// Bytes of a response's body.
    pub size_bytes: Size,
    /// Rounds measured.
    pub rounds: usize,
    /// False if the machine did not keep up in the median round.
    pub kept_up: bool,
    /// Transactions of all rounds.
    pub transactions: u64,
    /// Transactions that failed, of all rounds.
    pub failed: u64,
    /// Why the first of them did.
    pub failure: Option<String>,
    /// Transactions a second.
    pub per_s: f64,
    /// Share of its cores that the server used.
    pub utilisation: f64,
    /// Transactions a second if it used all of it (§4.1): `per_s / utilisation`, which is what fits
    /// into a second of CPU time of each core.
    pub scaled_per_s: f64,
    /// The work of the server's threads for a transaction.
    pub server: PerTransaction,
    /// Microseconds to the first byte of a response, the median of transactions: from the beginning
    /// of its connection, or, where that stays, from the request.
    pub first_byte_us: f64,
    /// The bytes and packets of a transaction.
    pub wire: WirePerTransaction,
    /// Full handshakes of all rounds, as the server counts them.
    pub server_full: u64,
    /// Resumed handshakes of all rounds, as the server counts them.
    pub server_resumed: u64,
    /// Requests of all rounds, as the server counts them.
    pub server_requests: u64,
}

/// The wire's part of a transaction, in the mean. A connection that stays had its handshake before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WirePerTransaction {
    /// Bytes in TCP segments, their headers not counted, from client to server.
    pub bytes_to_server: f64,
    /// The same, from server to client.
    pub bytes_to_client: f64,
    /// TCP segments of up to 1,460 bytes from client to server, those without data too, as the
    /// client's kernel counts them (`TCP_INFO`).
    pub packets_to_server: f64,
    /// The same, from server to client, but for the last acknowledgement.
    pub packets_to_client: f64,
}

/// The model of a kind of TLS. Times are the server's CPU time, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SuiteModel {
    /// Version of TLS.
    pub tls: &'static str,
    /// The server's key.
    pub key: &'static str,
    /// The cipher.
    pub cipher: &'static str,
    /// `Ts`: with a full handshake each time.
    pub full: Fit,
    /// With a resumed one each time, if that was measured.
    pub resumed: Option<Fit>,
    /// `Tn`: in clear.
    pub plain: Fit,
    /// The lines' shares for each size measured.
    pub sizes: Vec<Shares>,
}

/// Where the time of a transaction goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shares {
    /// Bytes of a response's body.
    pub size_bytes: Size,
    /// With a full handshake, in microseconds.
    pub full_us: Parts,
    /// The same in percent.
    pub full_percent: Parts,
    /// With a resumed handshake, in microseconds.
    pub resumed_us: Option<Parts>,
    /// The same in percent.
    pub resumed_percent: Option<Parts>,
    /// CPU time that resumption saves, in percent of a transaction with a full handshake.
    pub saved_percent: Option<f64>,
    /// The paper's model for this size, in percent.
    pub paper_percent: Parts,
}

impl Outcome {
    pub(super) fn of(
        settings: &Settings,
        ended: Ended,
        cores: Vec<Cores>,
        cells: Vec<(Cell, Vec<Round>)>,
    ) -> Self {
        let mut counters_missing = None;
        let cells: Vec<(Cell, Row)> = cells
            .into_iter()
            .filter(|(_, rounds)| !rounds.is_empty())
            .map(|(cell, rounds)| {
                let missing = rounds.iter().find_map(|round| round.counted.missing);
                counters_missing = counters_missing.or(missing);
                let kept_up = !ended.doubts(cell);
                (cell, Row { kept_up, ..Row::of(cell, &rounds) })
            })
            .collect();
        let suites = settings.suites().into_iter();
        Self {
            ended,
            cores,
            resumption: settings.resumption.name(),
            clients: settings.clients,
            rounds: settings.rounds,
            round_s: settings.round.as_secs_f64(),
            counters_missing,
            models: suites.filter_map(|suite| SuiteModel::of(suite, &cells)).collect(),
            cells: cells.into_iter().map(|(_, row)| row).collect(),
        }
    }
}

impl Outcome {
    /// Returns what failed where most transactions did, if they are so many that the figures are wrong.
    pub fn failure(&self) -> Option<String> {
        let percent = |row: &&Row| failed_percent(row.failed, row.transactions);
        let worst = self.cells.iter().max_by(|a, b| percent(a).total_cmp(&percent(b)))?;
        worst.failed_too_often().map(|why| format!("{}: {why}", worst.named()))
    }
}

impl Row {
    /// Returns a figure with a mark if the machine did not keep up with this cell, or too many transactions failed.
    pub(super) fn marked(&self, figure: String) -> String {
        let is_good = self.kept_up && self.failed_too_often().is_none();
        if is_good || figure.ends_with(MARK) { figure } else { format!("{figure} {MARK}") }
    }

    /// Returns its combination, as notes name it.
    pub(super) fn named(&self) -> String {
        let names = [self.tls, self.key, self.cipher].into_iter().flatten();
        let tls: String = names.map(|name| format!("{name} ")).collect();
        format!("{tls}{} {}", self.mode, self.size_bytes)
    }

    /// Returns how many transactions failed, and why, if they are so many that the figures are wrong.
    fn failed_too_often(&self) -> Option<String> {
        let percent = failed_percent(self.failed, self.transactions);
        let why = self.failure.as_deref().unwrap_or("for no known reason");
        (percent > MOST_FAILED_PERCENT)
            .then(|| format!("{percent:.0} % of the transactions failed, the first of them: {why}"))
    }

    fn of(cell: Cell, rounds: &[Round]) -> Self {
        let names = cell.traffic.suite().map(Suite::names);
        let sum = |value: fn(&Round) -> u64| rounds.iter().map(value).sum::<u64>();
        let each = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let used = |round: &Round| round.usage.cpu_ns as f64;
        let took_ns = |round: &Round| round.seen.took.as_nanos() as f64;
        let transactions = |round: &Round| round.seen.transactions as f64;
        let cores = cell.cores as f64;
        let first_bytes = rounds.iter().flat_map(|round| &round.seen.first_byte_ns);
        Self {
            mode: cell.traffic.mode(),
            tls: names.map(|[tls, ..]| tls),
            key: names.map(|[_, key, _]| key),
            cipher: names.map(|[.., cipher]| cipher),
            cores: cell.cores,
            size_bytes: cell.size,
            rounds: rounds.len(),
            kept_up: true,
            transactions: sum(|round| round.seen.transactions),
            failed: sum(|round| round.seen.failed),
            failure: rounds.iter().find_map(|round| round.seen.failure.clone()),
            per_s: each(&|round| transactions(round) * 1e9 / took_ns(round)),
            utilisation: each(&|round| used(round) / took_ns(round) / cores),
            scaled_per_s: each(&|round| transactions(round) * 1e9 * cores / used(round).max(1.0)),
            server: PerTransaction::of(rounds),
            first_byte_us: median(first_bytes.map(|ns| *ns as f64 / 1e3).collect()),
            wire: WirePerTransaction::of(rounds),
            server_full: sum(|round| round.counts.full),
            server_resumed: sum(|round| round.counts.resumed),
            server_requests: sum(|round| round.counts.requests),
        }
    }
}

/// Below so many samples nothing is said of user and kernel.
const LEAST_TICKS: u64 = 10;

impl PerTransaction {
    fn of(rounds: &[Round]) -> Self {
        let per = |round: &Round, value: u64| value as f64 / round.seen.transactions.max(1) as f64;
        let cpu: Vec<f64> = rounds.iter().map(|round| per(round, round.usage.cpu_ns)).collect();
        let switches = rounds.iter().map(|round| per(round, round.usage.context_switches));
        let all = rounds.iter().fold(Usage::default(), |sum, round| sum.plus(round.usage));
        let cpu_ns = median(cpu.clone());
        let ticks = all.user_ticks + all.kernel_ticks;
        let counters = std::array::from_fn(|event| {
            let count = |round: &Round| round.counted.counts[event];
            let counts: Option<Vec<f64>> = rounds.iter().map(count).collect();
            let per = |(round, count): (&Round, f64)| count / round.seen.transactions.max(1) as f64;
            Some(median(rounds.iter().zip(counts?).map(per).collect()))
        });
        let half = |of: u64| (ticks >= LEAST_TICKS).then(|| cpu_ns * of as f64 / ticks as f64);
        Self {
            cpu_ns,
            cpu_ns_lowest: cpu.iter().copied().fold(f64::INFINITY, f64::min),
            cpu_ns_highest: cpu.iter().copied().fold(0.0, f64::max),
            user_ns: half(all.user_ticks),
            kernel_ns: half(all.kernel_ticks),
            context_switches: median(switches.collect()),
            counters: Counters::from_events(counters),
        }
    }
}

impl WirePerTransaction {
    fn of(rounds: &[Round]) -> Self {
        let mut all = Wire::default();
        rounds.iter().for_each(|round| all.add(round.seen.wire));
        let transactions: u64 = rounds.iter().map(|round| round.seen.transactions).sum();
        let per = |count: u64| count as f64 / transactions.max(1) as f64;
        Self {
            bytes_to_server: per(all.bytes_to_server),
            bytes_to_client: per(all.bytes_to_client),
            packets_to_server: per(all.segments.sent),
            packets_to_client: per(all.segments.received),
        }
    }
}

impl SuiteModel {
    /// `None` where something is missing for it.
    fn of(suite: Suite, cells: &[(Cell, Row)]) -> Option<Self> {
        let least = cells.iter().map(|(cell, _)| cell.cores).min()?;
        let fit = |traffic: Traffic| {
            let is = |cell: &Cell| cell.traffic == traffic && cell.cores == least;
            let of = cells.iter().filter(|(cell, _)| is(cell));
            let point = |(cell, row): &(Cell, Row)| Point {
                kb: cell.size.kb(),
                cost: row.server.cpu_ns / 1e3,
            };
            Fit::through(&of.map(point).collect::<Vec<_>>())
        };
        let full = fit(Traffic::Tls(suite, Handshake::Full))?;
        let plain = fit(Traffic::Plain)?;
        let resumed = fit(Traffic::Tls(suite, Handshake::Resumed));
        let model = Model { tls: full.line, plain: plain.line };
        let resuming = resumed.as_ref().map(|fit| model.with_handshake_of(fit.line));
        let is = |cell: &Cell| cell.traffic == Traffic::Plain && cell.cores == least;
        let sizes = cells.iter().filter(|(cell, _)| is(cell));
        let sizes = sizes.map(|(cell, _)| Shares::of(model, resuming, cell.size)).collect();
        let [tls, key, cipher] = suite.names();
        Some(Self { tls, key, cipher, full, resumed, plain, sizes })
    }
}

impl Shares {
    fn of(model: Model, resuming: Option<Model>, size: Size) -> Self {
        let full = model.parts(size.kb());
        let resumed = resuming.map(|model| model.parts(size.kb()));
        Self {
            size_bytes: size,
            full_us: full,
            full_percent: full.percent(),
            resumed_us: resumed,
            resumed_percent: resumed.map(Parts::percent),
            saved_percent: resumed.map(|resumed| (1.0 - resumed.total() / full.total()) * 100.0),
            paper_percent: Model::PAPER.parts(size.kb()).percent(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::Cipher;
    use super::super::counters::Reading;
    use super::super::load::Seen;
    use super::super::segments::Segments;
    use super::*;
    use crate::server;
    use rejoin_serve::{KeyType, Resumption, Versions};

    /// The paper's model as if it had been measured in microseconds, resumed handshakes at a third.
    pub(in crate::cost) fn papers() -> Outcome {
        let suite = SUITE;
        let traffics = [
            (Traffic::Plain, 240.0, 10.0),
            (Traffic::Tls(suite, Handshake::Full), 1_510.0, 40.0),
            (Traffic::Tls(suite, Handshake::Resumed), 660.0, 40.0),
            (Traffic::Tls(suite, Handshake::Once), 50.0, 40.0),
        ];
        let cells = traffics.into_iter().flat_map(|(traffic, constant, per_kb)| {
            Size::DEFAULT.map(|size| {
                let us = constant + per_kb * size.kb();
                (
                    Cell { cores: 1, size, traffic },
                    vec![round(us * 1.5), round(us), round(us * 0.9)],
                )
            })
        });
        let cores = vec![Cores { server: vec![1], clients: vec![0] }];
        Outcome::of(&settings(), Ended::complete(48), cores, cells.collect())
    }

    const SUITE: Suite =
        Suite { versions: Versions::Tls12, key: KeyType::Rsa2048, cipher: Cipher::AesGcm };

    fn settings() -> Settings {
        Settings {
            program: "rejoin".into(),
            sizes: Size::DEFAULT.to_vec(),
            modes: Vec::new(),
            versions: vec![SUITE.versions],
            keys: vec![SUITE.key],
            ciphers: vec![SUITE.cipher],
            cores: vec![1],
            resumption: Resumption::Predictive,
            rounds: 3,
            round: Duration::from_secs(1),
            clients: 4,
        }
    }

    /// A hundred transactions in a second.
    fn round(us: f64) -> Round {
        let cpu_ns = (us * 1e3 * 100.0) as u64;
        let usage = Usage {
            cpu_ns,
            user_ticks: 6,
            kernel_ticks: 2,
            context_switches: 150,
            ..Usage::default()
        };
        let segments = Segments { sent: 700, received: 900 };
        let seen = Seen {
            transactions: 100,
            took: Duration::from_secs(1),
            first_byte_ns: vec![4_000, 1_000, 2_000],
            wire: Wire { bytes_to_server: 50_000, bytes_to_client: 90_000, segments },
            ..Seen::default()
        };
        // The first event once a transaction, the second twice, …
        let counts = std::array::from_fn(|event| Some((event + 1) as f64 * 100.0));
        let counted = Reading { counts, missing: None };
        let counts = server::Reading { full: 100, requests: 100, ..server::Reading::default() };
        Round { usage, counted, counts, seen }
    }

    #[test]
    fn figures_are_medians_per_transaction() {
        let outcome = papers();
        assert_eq!(outcome.cells.len(), 16);
        let row = &outcome.cells[1];
        assert_eq!((row.mode, row.size_bytes.bytes(), row.rounds), ("plain", 36_864, 3));
        assert_eq!((row.server.cpu_ns, row.server.cpu_ns_highest), (600_000.0, 900_000.0));
        assert_eq!(row.server.user_ns, Some(450_000.0));
        assert_eq!(row.server.counters.user_cycles, Some(4.0));
        assert_eq!((row.per_s, row.utilisation), (100.0, 0.06));
        assert!((row.scaled_per_s - row.per_s / row.utilisation).abs() < 1e-6);
        assert_eq!((row.first_byte_us, row.server.context_switches), (2.0, 1.5));
        assert_eq!((row.wire.bytes_to_client, row.wire.packets_to_server), (900.0, 7.0));
        assert_eq!((row.transactions, row.server_full), (300, 300));
    }

    #[test]
    fn the_papers_measurement_gives_the_papers_model() {
        let outcome = papers();
        let model = outcome.models.first().expect("four sizes");
        let at_36_kb = model.sizes[1];
        let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
        let (ours, paper) = (at_36_kb.full_percent, at_36_kb.paper_percent);
        assert!(close(ours.handshake, paper.handshake) && close(ours.cipher, paper.cipher));
        assert!(close(at_36_kb.saved_percent.expect("resumed"), 850.0 / 29.5), "{at_36_kb:?}");
        assert!(model.full.worst_percent() < 0.01, "{model:?}");
    }

    #[test]
    fn figures_of_which_too_many_failed_are_marked() {
        let mut outcome = papers();
        let row = &mut outcome.cells[4];
        (row.failed, row.failure) = (6, Some("reset".to_owned()));
        assert_eq!(row.marked("9".to_owned()), "9");
        row.failed = 10;
        assert_eq!(row.marked("9".to_owned()), "9 *");
        let why = "1.2 RSA-2048 AES-GCM full 30 B: 3 % of the transactions failed, the first of them: reset";
        assert_eq!(outcome.failure().as_deref(), Some(why));
        assert_eq!(papers().failure(), None);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let size = Size::DEFAULT[0];
        let cells = vec![(Cell { cores: 1, size, traffic: Traffic::Plain }, Vec::new())];
        let cores = vec![Cores { server: vec![0], clients: vec![0] }];
        let outcome = Outcome::of(&settings(), Ended::interrupted(), cores, cells);
        assert!(outcome.cells.is_empty() && outcome.models.is_empty());
    }
}
