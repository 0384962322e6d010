//! What access logs tell, and whether counters tell the same.

use rejoin_logs::{ClientsBy, Counted, Counter, Counters, Pause, utc};
use rejoin_report::printable;
use rejoin_trace::grouped;
use serde::Serialize;

use crate::access_log::Logs;
use crate::units::{percent, time};

/// The share of malformed lines, in percent, from which there is a warning.
const MANY_MALFORMED_PERCENT: f64 = 1.0;
/// The part of a log's time, as its divisor, from which on a pause leads to a warning.
const LONG_PAUSE: u64 = 4;
/// The fewest clients that come back of which anything is said.
const FEWEST_BACK: u64 = 10;
/// The difference between log and counters, in percent, from which there is a warning.
const ANOTHER_COUNT_PERCENT: f64 = 5.0;

/// The logs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Logged {
    pub(super) lines: u64,
    pub(super) malformed: Vec<LeftOut>,
    /// The first malformed line of all.
    pub(super) first_malformed: Option<LeftOut>,
    pub(super) requests: u64,
    pub(super) without_tls: u64,
    pub(super) connections: u64,
    /// The requests that tell their connection, in percent.
    pub(super) connection_told_percent: f64,
    /// The requests that name a program, in percent.
    pub(super) program_told_percent: f64,
    /// True if a client is a program at an address, and false if it is an address.
    pub(super) clients_by_program: bool,
    /// The pause that ends a connection where none is told, in seconds.
    pub(super) keep_alive_s: f64,
    /// The requests that came after a later one, and how much later that was at most.
    pub(super) out_of_order: u64,
    pub(super) out_of_order_ms: u64,
    pub(super) without_zone: u64,
    /// The place at which times without a zone go back by an hour.
    pub(super) clock_back: Option<Place>,
    /// The requests with a value of TLS, resumption or place that is not understood.
    pub(super) with_odd_value: u64,
    /// The longest time in which nobody came, in seconds.
    pub(super) longest_pause_s: f64,
    /// True if nearly every client that comes back has one number of a connection for ever.
    pub(super) one_connection_each: bool,
    #[serde(skip)]
    long_pause: Option<Pause>,
    /// The connections of TLS 1.3 among those whose version is told, in percent.
    pub(super) tls_13_percent: Option<f64>,
    /// The connections that resumed among those that tell, in percent.
    pub(super) resumed_percent: Option<f64>,
    /// True if each connection tells its version of TLS: others may be without any.
    pub(super) tls_is_told: bool,
    pub(super) overflows: u64,
}

/// Lines that were left out for a reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LeftOut {
    pub(super) why: &'static str,
    pub(super) lines: u64,
    pub(super) first_log: String,
    pub(super) first_line: u64,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Place {
    pub(super) log: String,
    pub(super) line: u64,
}

impl Logged {
    pub(crate) fn of(logs: &Logs) -> Self {
        let (facts, first) = (&logs.facts, &logs.readings[0].told);
        let left_out = |(why, of): (rejoin_logs::Why, &rejoin_logs::Malformed)| LeftOut {
            why: why.as_str(),
            lines: of.count,
            first_log: of.first.0.clone(),
            first_line: of.first.1,
        };
        let of_requests = |count: u64| share((count, facts.requests)).unwrap_or_default();
        let (out_of_order, out_of_order_ms) = facts.out_of_order;
        let (pause, (back, one)) = (facts.longest_pause, facts.came_back);
        let span_ms = facts.span_ms.map_or(0, |(first_ms, last_ms)| last_ms - first_ms);
        Self {
            lines: facts.lines,
            malformed: facts.malformed.iter().map(|(why, of)| left_out((*why, of))).collect(),
            first_malformed: facts.first_malformed().map(left_out),
            requests: facts.requests,
            without_tls: facts.without_tls,
            connections: first.connections,
            connection_told_percent: of_requests(facts.with_connection),
            program_told_percent: of_requests(facts.with_agent),
            clients_by_program: first.reading.clients == ClientsBy::Program,
            keep_alive_s: first.reading.keep_alive_ms as f64 / 1_000.0,
            out_of_order,
            out_of_order_ms,
            without_zone: facts.without_zone,
            clock_back: facts.clock_back.clone().map(|(log, line)| Place { log, line }),
            with_odd_value: facts.with_odd_value,
            longest_pause_s: pause.map_or(0.0, |pause| pause.length_ms() as f64 / 1_000.0),
            one_connection_each: back >= FEWEST_BACK && one * 10 >= back * 9,
            long_pause: pause.filter(|pause| pause.length_ms() > span_ms / LONG_PAUSE),
            tls_13_percent: share(first.tls_13),
            resumed_percent: share(first.reused),
            tls_is_told: first.tls_13.1 == first.connections,
            overflows: first.overflows,
        }
    }

    fn malformed_lines(&self) -> u64 {
        self.malformed.iter().map(|left_out| left_out.lines).sum()
    }

    /// Returns what was read, in lines.
    pub(crate) fn text(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "log: {} lines, {} requests{}, {} connections",
            grouped(self.lines),
            grouped(self.requests),
            if self.tls_is_told { " over TLS" } else { "" },
            grouped(self.connections)
        )];
        lines.extend(self.left_out());
        if self.out_of_order > 0 {
            lines.push(format!(
                "sorted: {} requests came after a later one, by up to {}",
                grouped(self.out_of_order),
                time(self.out_of_order_ms.div_ceil(1_000))
            ));
        }
        lines.push(self.how_read());
        if self.without_zone > 0 {
            lines.push("times without a zone are read as UTC".to_owned());
        }
        if let Some(resumed) = self.resumed_percent {
            lines.push(format!("the log says that {} % of connections resumed", percent(resumed)));
        }
        lines
    }

    /// Returns what was left out, in lines.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.without_tls > 0 {
            lines.push(format!("left out: {} requests without TLS", grouped(self.without_tls)));
        }
        for left_out in &self.malformed {
            let LeftOut { why, lines: count, first_log, first_line } = left_out;
            let (count, first_log) = (grouped(*count), printable(first_log));
            lines.push(format!(
                "left out: {count} malformed lines, {why}; the first is line {first_line} of {first_log}"
            ));
        }
        lines
    }

    fn how_read(&self) -> String {
        let client = match self.clients_by_program {
            true => "a program (user agent) at an address",
            false => "an address",
        };
        let pause = match self.keep_alive_s {
            short if short.fract() > 0.0 => format!("{short} s"),
            long => time(long as u64),
        };
        let connection = match self.connection_told_percent {
            100.0 => "connections are told apart by the log".to_owned(),
            0.0 => format!("a pause of {pause} ends a connection"),
            told => format!(
                "{} % of requests tell their connection; elsewhere a pause of {pause} ends it",
                percent(told)
            ),
        };
        format!("a client is {client}; {connection}")
    }

    /// Returns the warning of clients so few that their addresses may be those of balancers, whose connections have the
    /// requests of many.
    pub(super) fn few_clients(&self, clients: u64) -> Option<String> {
        let may_be = clients <= FEW_CLIENTS && self.are_shared();
        may_be.then(|| format!("{}; {BALANCER}", self.counts(clients)))
    }

    /// Returns true if connections have two requests or more.
    fn are_shared(&self) -> bool {
        self.connections * 2 <= self.requests
    }

    fn counts(&self, clients: u64) -> String {
        let counted = |count: u64, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{} {what}s", grouped(count)),
        };
        format!(
            "{} are {} of {}",
            counted(self.requests, "request"),
            counted(self.connections, "connection"),
            counted(clients, "client")
        )
    }

    /// Returns what speaks against the log.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let malformed = self.malformed_lines();
        let malformed_percent = share((malformed, self.lines)).unwrap_or_default();
        if let Some(first) =
            self.first_malformed.as_ref().filter(|_| malformed_percent >= MANY_MALFORMED_PERCENT)
        {
            warnings.push(format!(
                "{} % of the lines are malformed and left out, the first is line {} of {}: {}",
                percent(malformed_percent),
                first.first_line,
                printable(&first.first_log),
                first.why
            ));
        }
        if let Some(pause) = &self.long_pause {
            let (from_ms, until_ms) = pause.between_ms;
            warnings.push(format!(
                "nobody came for {} between {} and {} UTC, after {} of {} requests: rates a second are too low by that; if \
                 a log is missing or a clock was wrong, leave out what is on one side of it",
                time(pause.length_ms() / 1_000),
                utc(from_ms),
                utc(until_ms),
                grouped(pause.before),
                grouped(self.requests)
            ));
        }
        if let Some(Place { log, line }) = &self.clock_back {
            warnings.push(format!(
                "times without a zone go back by an hour at line {line} of {}, as where summer time ends: two hours are \
                 taken for one, and rates are wrong; log times with a zone, or leave out what is on one side of it",
                printable(log)
            ));
        }
        if self.with_odd_value > 0 {
            warnings.push(format!(
                "{} of {} requests have a value of tls, reused, nth or kept that is not understood, and counts as not told",
                grouped(self.with_odd_value),
                grouped(self.requests)
            ));
        }
        if self.one_connection_each {
            warnings.push(
                "all requests of nearly every client have the same port or connection, so that returns are missed: if \
                 that is the server's port, or a header, rename it in the log"
                    .to_owned(),
            );
        }
        if self.overflows > 0 {
            warnings.push(
                "more connections are open at once than are remembered: some count twice"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// The clients of a log, at most, whose addresses may be those of balancers.
const FEW_CLIENTS: u64 = 10;
const BALANCER: &str = "is it a balancer's address? log the client's";

/// Returns what a log without returning clients has, and what may be the cause, to be added to a sentence.
pub(super) fn why_nobody_returns(logs: &Logs, clients: u64) -> String {
    let log = Logged::of(logs);
    let lower = if log.connection_told_percent < 100.0 { "lower --keep-alive" } else { "" };
    let cause = match (log.one_connection_each, log.are_shared(), lower) {
        (true, ..) => {
            "is their port the server's, or their connection a header? rename it in the log"
                .to_owned()
        }
        (_, false, _) => String::new(),
        (.., lower) if clients > FEW_CLIENTS => lower.to_owned(),
        (.., "") => BALANCER.to_owned(),
        (.., lower) => format!("{BALANCER}, or {lower}"),
    };
    let mut text = format!("; {}", log.counts(clients));
    if !cause.is_empty() {
        text += &format!("; {cause}");
    }
    text
}

/// Returns a share in percent; `None` of nothing.
fn share((part, whole): (u64, u64)) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// A counter beside the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Checked {
    pub(super) counter: String,
    /// The thing counted: `requests` or `connections`; by its name, or else what is closer.
    pub(super) counts: &'static str,
    pub(super) window_s: f64,
    pub(super) counter_growth: f64,
    pub(super) log_count: u64,
    /// Those of them without TLS: a counter may have them or not, and what is closer is taken.
    pub(super) without_tls: u64,
    /// The surplus of the log over the counter, in percent of the counter.
    pub(super) log_more_percent: f64,
}

/// Compares each counter with the log, in the time that both have.
///
/// # Errors
/// Returns a warning if they have none.
pub(super) fn check(counters: &Counters, logs: &Logs) -> Result<Vec<Checked>, String> {
    let Some(window) = logs.window_ms else { return Err(never_counted(logs)) };
    let (plain_requests, plain_connections) = logs.facts.plain_in_window;
    let requests = (logs.facts.in_window, plain_requests);
    let connections = (logs.readings[0].told.in_window, plain_connections);
    let compared = |counter: Counter| {
        let off = |count: u64| (count as f64 - counter.growth) * 100.0 / counter.growth.max(1.0);
        // What the log has, and how much of it is without TLS.
        let closest = |(tls, plain): (u64, u64)| {
            let with_plain = off(tls + plain).abs() < off(tls).abs();
            if with_plain { (tls + plain, plain) } else { (tls, 0) }
        };
        let (requests, connections) = (closest(requests), closest(connections));
        let closer = off(requests.0).abs() < off(connections.0).abs();
        let (counts, (log_count, without_tls)) = match counter.counted {
            Counted::Requests => ("requests", requests),
            Counted::Unknown if closer => ("requests", requests),
            Counted::Connections | Counted::Unknown => ("connections", connections),
        };
        Checked {
            counts,
            window_s: (window.1 - window.0) as f64 / 1_000.0,
            counter_growth: counter.growth,
            log_count,
            without_tls,
            log_more_percent: off(log_count),
            counter: counter.name,
        }
    };
    Ok(counters.growth(window).into_iter().map(compared).collect())
}

fn never_counted(logs: &Logs) -> String {
    let (first_ms, last_ms) = logs.facts.span_ms.unwrap_or_default();
    format!(
        "the counters have no two samples between {} and {} UTC, the time of the log: nothing was compared",
        utc(first_ms),
        utc(last_ms)
    )
}

impl Checked {
    pub(super) fn text(&self) -> String {
        let name = printable(&self.counter);
        let name = if name.is_empty() { "a counter without a name".to_owned() } else { name };
        let plain = match self.without_tls {
            0 => String::new(),
            plain => format!(", {} of them without TLS", grouped(plain)),
        };
        format!(
            "{name} grew by {} in {}; the log has {} {}{plain} ({:+.1} %)",
            rejoin_sim::report::thousands(self.counter_growth),
            time(self.window_s as u64),
            grouped(self.log_count),
            self.counts,
            self.log_more_percent
        )
    }

    pub(super) fn warning(&self) -> Option<String> {
        let differs = self.log_more_percent.abs() > ANOTHER_COUNT_PERCENT;
        let what = "the log lacks some, has those of other servers too, or is of another time zone";
        differs.then(|| format!("{}: {what}", self.text()))
    }
}
