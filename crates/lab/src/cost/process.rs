//! A `rejoin serve` under load, in a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::Settings;
use super::counters::Meter;
use super::place::{Cores, Place};
use super::threads::Usage;
use crate::Error;
use rejoin_serve::KeyType;
use rejoin_serve::Resumption;

/// For a server to start and to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server that has used no CPU time for so long is at rest.
const REST: Duration = Duration::from_millis(3);
/// Looks at most until it is.
const LOOKS: u32 = 100;
/// The longest text of metrics.
const LONGEST_TEXT_BYTES: u64 = 1 << 20;

/// What a server serves: by which key if it speaks TLS, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) key: Option<KeyType>,
    pub(super) body_bytes: u32,
    /// How many it has.
    pub(super) cores: usize,
}

/// A server with one thread for each of its cores, which ends with whoever holds it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    service: Service,
    child: Ended,
    addresses: Listening,
}

/// A server that may not listen yet.
#[derive(Debug)]
pub(super) struct Starting {
    service: Service,
    child: Ended,
}

/// A process that ends when it is dropped.
#[derive(Debug)]
struct Ended(Child);

/// What `rejoin serve --json` prints when it listens.
#[derive(Debug, Deserialize)]
struct Listening {
    listening: SocketAddrV4,
    metrics: SocketAddr,
}

/// What a server counted by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) full: u64,
    pub(super) resumed: u64,
    pub(super) requests: u64,
}

impl Starting {
    /// What `command` runs is to be a `rejoin serve --json`. Its parent is this thread: it ends when the
    /// thread does.
    pub(super) fn spawn(mut command: Command, service: Service) -> Result<Self, Error> {
        let child = command.spawn().map_err(unstarted)?;
        Ok(Self { service, child: Ended(child) })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Its standard error, once, if that is a pipe.
    pub(super) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.0.stderr.take()
    }

    /// Waits for it to say where it listens.
    pub(super) fn listening(self, patience: Duration) -> Result<ServerProcess, Error> {
        let Self { service, mut child } = self;
        let stdout = child.0.stdout.take().ok_or_else(|| failed(service, "has no output"))?;
        let silent = || {
            let what = format!("ended without a word, or said none for {} s", patience.as_secs());
            failed(service, &what)
        };
        let line = first_line(stdout, patience).ok_or_else(silent)?;
        let addresses = serde_json::from_str(&line)
            .map_err(|error| failed(service, &format!("printed something unexpected: {error}")))?;
        Ok(ServerProcess { service, child, addresses })
    }
}

impl ServerProcess {
    /// On its cores alone. Its parent is this thread: it ends when the thread does.
    pub(super) fn start(
        settings: &Settings,
        service: Service,
        cores: &Cores,
    ) -> Result<Self, Error> {
        let place = Place::take(&cores.server).map_err(unstarted)?;
        let mut command = Command::new(&settings.program);
        serve(&mut command, settings.resumption, service);
        if let Some(key) = service.key {
            command.args(["--key-type", &key.name().to_ascii_lowercase()]);
        }
        let starting = Starting::spawn(command, service)?;
        drop(place);
        starting.listening(PATIENCE)
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn end(mut self, patience: Duration) -> Result<(), Error> {
        let what = "cannot end a server";
        let pid = Pid::from_raw(self.child.0.id() as i32);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)
                .map_err(|errno| Error::System { what, source: errno.into() })?;
        }
        let asked = Instant::now();
        while asked.elapsed() < patience {
            let ended = self.child.0.try_wait();
            match ended.map_err(|source| Error::System { what, source })? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(self.service, &format!("ended with {status}"))),
                None => thread::sleep(REST),
            }
        }
        Err(failed(self.service, "does not end when it is asked to"))
    }

    pub(super) fn serves(&self, service: Service) -> bool {
        self.service == service
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        self.addresses.listening
    }

    /// What its threads used so far, once they are at rest, or after a third of a second.
    pub(super) fn usage(&self) -> Result<Usage, Error> {
        let read = || {
            Usage::of(self.child.0.id())
                .map_err(|source| Error::System { what: "cannot read a server's CPU time", source })
        };
        let mut usage = read()?;
        for _ in 0..LOOKS {
            thread::sleep(REST);
            let before = std::mem::replace(&mut usage, read()?);
            if usage.cpu_ns == before.cpu_ns {
                break;
            }
        }
        Ok(usage)
    }

    /// What the processor counts of it, from now on.
    pub(super) fn meter(&self) -> Result<Meter, Error> {
        Meter::start(self.child.0.id())
            .map_err(|source| Error::System { what: "cannot list a server's threads", source })
    }

    pub(super) fn counts(&self) -> Result<Counts, Error> {
        let address = self.addresses.metrics;
        let text = metrics(address).map_err(|source| Error::Connect { address, source })?;
        let what = "tells other metrics than expected";
        Counts::parse(&text).ok_or_else(|| failed(self.service, what))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Nobody waits for what it would have to say.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Counts {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            full: self.full.saturating_sub(earlier.full),
            resumed: self.resumed.saturating_sub(earlier.resumed),
            requests: self.requests.saturating_sub(earlier.requests),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            full: self.full + other.full,
            resumed: self.resumed + other.resumed,
            requests: self.requests + other.requests,
        }
    }

    /// `None` unless all is told.
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.trim().parse().ok()
        };
        Some(Self {
            full: value("rejoin_handshakes_full_total")?,
            resumed: value("rejoin_handshakes_resumed_total")?,
            requests: value("rejoin_requests_total")?,
        })
    }
}

fn failed(service: Service, what: &str) -> Error {
    let name = if service.key.is_some() { "TLS" } else { "plain HTTP" };
    Error::Server { resumption: name, what: what.to_owned() }
}

fn unstarted(source: io::Error) -> Error {
    Error::System { what: "cannot start a server", source }
}

fn first_line(stdout: ChildStdout, patience: Duration) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    // Reading has no deadline of its own; the thread ends with the child's output.
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout.take(LONGEST_TEXT_BYTES)).read_line(&mut line);
        let _ = sender.send(read.map(|_| line));
    });
    let line = receiver.recv_timeout(patience).ok()?.ok()?;
    (!line.is_empty()).then_some(line)
}

/// Makes `command` serve, and end with its parent. Which key is to be said, too.
pub(super) fn serve(command: &mut Command, resumption: Resumption, service: Service) {
    command
        .args(["serve", "--json", "--end-with-parent"])
        .args(["--workers", &service.cores.to_string()])
        .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--resumption", resumption.name()])
        .args(["--body-bytes", &service.body_bytes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C is for who measures: the servers are needed until the round is over.
        .process_group(0);
    if service.key.is_none() {
        command.args(["--stack", "none"]);
    }
}

fn metrics(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.take(LONGEST_TEXT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_or_none() {
        let text = "rejoin_handshakes_full_total 3\nrejoin_handshakes_resumed_total 5\n\
            rejoin_requests_total 8\n";
        let counts = Counts::parse(text).expect("whole");
        assert_eq!(counts, Counts { full: 3, resumed: 5, requests: 8 });
        for line in text.lines() {
            assert_eq!(Counts::parse(&text.replace(line, "")), None, "{line}");
        }
    }
}
