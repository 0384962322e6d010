//! All that is found out before an answer is written.

use rejoin_logs::{ClientsBy, Reading};
use rejoin_sim::sizing::{FIFO, Found, Sizing, Survey};
use rejoin_sim::{Cell, Error, Progress, Server, Simulation, Source, Subject, Tls};
use serde::Serialize;

use super::advice::{self, Chosen, Wish};
use super::memory::Sizer;
use super::trials::{Trials, returning};
use super::unseen::{self, Unseen};
use crate::access_log::Logs;
use crate::arrivals::ToldBy;
use crate::units::time;

/// The ratio by which two readings of a log may differ and still say the same.
const SAME_RATIO: f64 = 1.02;

/// The reading of a log of which nothing tells the version of TLS.
pub(super) const OVER_TLS_13: &str = "connections are of TLS 1.3";

/// The findings.
pub(super) struct Findings {
    /// All cells, in the order of capacities, then of policies.
    pub(super) cells: Vec<Cell>,
    /// The sizes to show, at which every policy was tried.
    pub(super) sizes: Vec<u32>,
    pub(super) chosen: Option<Chosen>,
    /// The sessions with which FIFO resumes as much.
    pub(super) fifo_sessions: Option<u32>,
    pub(super) same_bytes: Vec<SameBytes>,
    /// The check on the half that is not seen; none where arrivals are drawn.
    pub(super) unseen: Option<Result<Unseen, unseen::Why>>,
    pub(super) others: Vec<OtherReading>,
}

/// Another cache in the same memory as the recommended one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SameBytes {
    pub(super) name: &'static str,
    pub(super) sessions: u32,
    pub(super) returning_percent: f64,
}

/// The answer if the log is read in another way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OtherReading {
    /// The reading in words.
    pub(super) reading: String,
    pub(super) connections: u64,
    pub(super) clients: u64,
    /// False if it has as many clients and connections as the first reading: then no size is sought.
    pub(super) differs: bool,
    pub(super) sessions: Option<u32>,
    pub(super) returning_percent: Option<f64>,
}

/// The means of finding out.
#[derive(Clone, Copy)]
pub(super) struct Finder<'a> {
    pub(super) sizing: &'a Sizing<'a>,
    pub(super) found: &'a Found,
    pub(super) source: &'a dyn Source,
    pub(super) progress: &'a Progress,
    /// Shows what is done next, in as many characters as everywhere.
    pub(super) begins: &'a dyn Fn(&'static str),
    pub(super) wish: Wish,
    pub(super) sizer: Sizer<'a>,
    /// True if the sizes were found, and not given.
    pub(super) may_try_more: bool,
    /// True if the arrivals were recorded.
    pub(super) is_recorded: bool,
    pub(super) logs: Option<&'a Logs>,
    pub(super) tls_told_by: ToldBy,
    /// The lifetime that was given.
    pub(super) lifetime_s: Option<u32>,
}

impl Finder<'_> {
    pub(super) fn run(&self) -> anyhow::Result<Findings> {
        let Self { sizing, found, source, progress, wish, .. } = *self;
        let mut trials = Trials::of(sizing.simulation, source, progress, found);
        let mut findings = Findings {
            cells: Vec::new(),
            sizes: found.sizes.clone(),
            chosen: None,
            fifo_sessions: None,
            same_bytes: Vec::new(),
            unseen: None,
            others: Vec::new(),
        };
        (self.begins)("comparing with it          ");
        if found.complete {
            findings.chosen = self.choose(&mut trials)?;
        }
        if let Some(chosen) = findings.chosen {
            self.compare(&mut trials, chosen, &mut findings)?;
            if self.is_recorded {
                (self.begins)("checking on the second half");
                let recommended = (chosen.sessions, chosen.percent);
                let simulation = sizing.simulation;
                let compared = unseen::compare(
                    simulation,
                    source,
                    progress,
                    chosen.policy,
                    recommended,
                    wish,
                    sizing.survey.requests,
                );
                findings.unseen = Some(compared?);
            }
            (self.begins)("reading the log otherwise  ");
            findings.others = self.other_readings(chosen.policy)?;
            if self.tls_told_by == ToldBy::Nobody {
                (self.begins)("trying TLS 1.3             ");
                findings.others.extend(self.over_tls_13(chosen.policy)?);
            }
        }
        findings.cells = trials.cells;
        if !self.is_complete() {
            findings.chosen = None;
        }
        Ok(findings)
    }

    /// Returns true if nothing was stopped so far.
    pub(super) fn is_complete(&self) -> bool {
        self.found.complete && !self.progress.stopped()
    }

    fn choose(&self, trials: &mut Trials<'_>) -> Result<Option<Chosen>, Error> {
        let goal = self.sizing.goal();
        if self.may_try_more {
            return advice::choose(trials, self.found, self.wish, goal);
        }
        Ok(advice::among(trials, self.found))
    }

    /// Compares the choice with half and twice the size, and with FIFO and other caches.
    fn compare(
        &self,
        trials: &mut Trials<'_>,
        chosen: Chosen,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let Chosen { policy, sessions, percent, .. } = chosen;
        let asked = |policy: &Subject| self.sizing.simulation.policies.contains(policy);
        let goal = match self.wish {
            Wish::Knee => percent,
            Wish::Target(_) => self.sizing.goal(),
        };
        if !self.may_try_more {
            let need = self.found.need(FIFO).and_then(|need| need.sessions);
            findings.fifo_sessions = need;
            return Ok(());
        }
        let around = [(sessions / 2).max(1), sessions, sessions.saturating_mul(2)];
        trials.run(&[policy], &around)?;
        let is_complete = |size: &u32| {
            let policies = &self.sizing.simulation.policies;
            policies.iter().all(|policy| trials.cell(*policy, *size).is_some())
        };
        findings.sizes.extend(around.iter().filter(|size| is_complete(size)));
        findings.sizes.sort_unstable();
        findings.sizes.dedup();
        if asked(&FIFO) {
            findings.fifo_sessions = trials.need(FIFO, goal)?;
            let bytes = self.sizer.rejoin(policy, sessions)?.unwrap_or_default();
            for (name, _, sessions) in self.sizer.others_with(bytes) {
                trials.run(&[FIFO], &[sessions])?;
                let cell = trials.cell(FIFO, sessions);
                findings.same_bytes.extend(cell.map(|cell| SameBytes {
                    name,
                    sessions,
                    returning_percent: returning(cell),
                }));
            }
        }
        Ok(())
    }

    /// Answers for the readings of a log but the first.
    fn other_readings(&self, policy: Subject) -> Result<Vec<OtherReading>, Error> {
        let Some(([first, others @ ..], survey)) =
            self.logs.map(|logs| (&logs.readings[..], self.sizing.survey))
        else {
            return Ok(Vec::new());
        };
        let simulation = Simulation { policies: vec![policy], ..self.sizing.simulation.clone() };
        let mut answers = Vec::new();
        for other in others {
            let Some(its) = Survey::of(&simulation, other, self.progress)? else { break };
            let same = |one: u64, other: u64| {
                let (one, other) = (one.max(1) as f64, other.max(1) as f64);
                (one / other).max(other / one) <= SAME_RATIO
            };
            let connections = other.told.connections;
            let differs =
                !same(connections, first.told.connections) || !same(its.clients, survey.clients);
            let mut answer = OtherReading {
                reading: words(&first.told.reading, &other.told.reading),
                connections,
                clients: its.clients,
                differs,
                sessions: None,
                returning_percent: None,
            };
            if differs {
                self.answer(&simulation, &its, other, &mut answer)?;
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Finds the size for another reading.
    fn answer(
        &self,
        simulation: &Simulation,
        survey: &Survey,
        source: &dyn Source,
        answer: &mut OtherReading,
    ) -> Result<(), Error> {
        if survey.returning_percent() > 0.0 {
            let sizing = Sizing { simulation, survey, target_percent: self.wish.target() };
            let found = sizing.run(None, source, self.progress, &|_| {})?;
            let mut trials = Trials::of(simulation, source, self.progress, &found);
            let chosen = advice::choose(&mut trials, &found, self.wish, sizing.goal())?;
            answer.sessions = chosen.map(|chosen| chosen.sessions);
            answer.returning_percent = chosen.map(|chosen| chosen.percent);
        }
        Ok(())
    }

    /// Answers for TLS 1.3, whose handshakes make two sessions.
    fn over_tls_13(&self, policy: Subject) -> Result<Option<OtherReading>, Error> {
        let server = Server {
            tls: Tls::V1_3_OF_OPENSSL,
            lifetime_s: self.lifetime_s,
            ..self.sizing.simulation.server.clone()
        };
        let of = self.sizing.simulation.clone();
        let mut simulation = Simulation { policies: vec![policy], server, ..of };
        let survey = super::surveyed(&mut simulation, self.source, self.progress)?;
        let Some(survey) = survey else { return Ok(None) };
        let mut answer = OtherReading {
            reading: OVER_TLS_13.to_owned(),
            connections: survey.requests as u64,
            clients: survey.clients,
            differs: true,
            sessions: None,
            returning_percent: None,
        };
        self.answer(&simulation, &survey, self.source, &mut answer)?;
        Ok(Some(answer))
    }
}

/// Returns the difference of another reading to the first.
fn words(first: &Reading, other: &Reading) -> String {
    if other.clients == first.clients {
        return format!("a pause of {} ends a connection", time(other.keep_alive_ms / 1_000));
    }
    match other.clients {
        ClientsBy::Address => "each address is one client".to_owned(),
        ClientsBy::Program => "each program at an address is a client".to_owned(),
    }
}
