//! `rejoin serve` in a process of its own, so that its CPU time is its alone.
//!
//! [`ServerProcess`] is for asynchronous studies. The study of costs has its own type of process, on chosen
//! cores, and shares with it the arguments, addresses and metrics here.

mod process;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use rejoin_serve::Resumption;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::Error;
pub(crate) use process::{Launch, Pair, ServerProcess, Servers};

/// The time for a server to start and to answer: busy ones take seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest text of metrics.
const LONGEST_TEXT_BYTES: u64 = 1 << 20;

/// The addresses that `rejoin serve --json` prints when it listens.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Listening {
    pub(crate) listening: SocketAddrV4,
    pub(crate) metrics: SocketAddr,
}

/// Returns the arguments that all servers have in common: they end with their parent, on ports of the system's choice.
pub(crate) fn arguments(workers: usize, resumption: Resumption) -> Vec<String> {
    let fixed = "serve --json --end-with-parent --listen 127.0.0.1:0 --metrics 127.0.0.1:0";
    let workers = workers.to_string();
    let chosen = ["--workers", &workers, "--resumption", resumption.name()];
    fixed.split(' ').chain(chosen).map(str::to_owned).collect()
}

/// Asks a server to end.
pub(crate) fn terminate(id: u32) -> Result<(), Error> {
    let told = Pid::from_raw(id as i32).map_or(Ok(()), |pid| kill_process(pid, Signal::TERM));
    told.map_err(|errno| Error::System { what: "cannot end a server", source: errno.into() })
}

/// A reading of a server's metrics, all of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Reading {
    /// User and system time of the process.
    pub(crate) cpu_s: f64,
    /// Time since the process began.
    pub(crate) up_s: f64,
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) requests: u64,
}

impl Reading {
    /// The longest wait for metrics: a server that got thousands of connections at once serves those first.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Reads the metrics at an address. It waits for [`Self::PATIENCE`] at most at a time.
    pub(crate) fn take(address: SocketAddr) -> Result<Self, Error> {
        let read = || -> io::Result<Self> {
            let mut stream = TcpStream::connect_timeout(&address, Self::PATIENCE)?;
            stream.set_read_timeout(Some(Self::PATIENCE))?;
            stream.set_write_timeout(Some(Self::PATIENCE))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
            let mut text = String::new();
            stream.take(LONGEST_TEXT_BYTES).read_to_string(&mut text)?;
            Self::parse(&text).ok_or_else(|| io::Error::other("its metrics are not all there"))
        };
        read().map_err(|source| Error::System { what: "cannot read a server's metrics", source })
    }

    /// `None` unless all metrics are there.
    fn parse(text: &str) -> Option<Self> {
        fn value<T: FromStr>(text: &str, name: &str) -> Option<T> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.trim().parse().ok()
        }
        Some(Self {
            cpu_s: value(text, "rejoin_server_cpu_seconds_total")?,
            up_s: value(text, "rejoin_server_up_seconds_total")?,
            full: value(text, "rejoin_server_handshakes_total{kind=\"full\"}")?,
            resumed: value(text, "rejoin_server_handshakes_total{kind=\"resumed\"}")?,
            requests: value(text, "rejoin_server_requests_total")?,
        })
    }

    /// Returns the difference between an earlier reading and this one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_s: self.cpu_s - earlier.cpu_s,
            up_s: self.up_s - earlier.up_s,
            full: self.full.saturating_sub(earlier.full),
            resumed: self.resumed.saturating_sub(earlier.resumed),
            requests: self.requests.saturating_sub(earlier.requests),
        }
    }

    /// Returns the sum with another server's. They began at the same time.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_s: self.cpu_s + other.cpu_s,
            up_s: self.up_s.max(other.up_s),
            full: self.full + other.full,
            resumed: self.resumed + other.resumed,
            requests: self.requests + other.requests,
        }
    }

    pub(crate) fn handshakes(self) -> u64 {
        self.full + self.resumed
    }

    /// Returns the CPU time for each handshake, in microseconds; of none as of one.
    pub(crate) fn cpu_us(self) -> f64 {
        self.cpu_s * 1e6 / self.handshakes().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_whole_or_none() {
        let text = "# TYPE rejoin_server_handshakes_total counter\n\
            rejoin_server_handshakes_total{kind=\"full\"} 3\n\
            rejoin_server_handshakes_total{kind=\"resumed\"} 5\nrejoin_server_requests_total 8\n\
            rejoin_server_up_seconds_total 2.5\nrejoin_server_cpu_seconds_total 0.5\n";
        let reading = Reading::parse(text).expect("whole");
        let expected = Reading { cpu_s: 0.5, up_s: 2.5, full: 3, resumed: 5, requests: 8 };
        assert_eq!(reading, expected);
        for line in text.lines().skip(1) {
            assert_eq!(Reading::parse(&text.replace(line, "")), None, "{line}");
        }
        let earlier = Reading { cpu_s: 0.1, up_s: 0.5, full: 1, resumed: 4, requests: 5 };
        let between = reading.since(earlier);
        assert_eq!((between.handshakes(), between.up_s, between.requests), (3, 2.0, 3));
        assert!((between.cpu_us() - 400_000.0 / 3.0).abs() < 1e-6);
    }
}
