//! A `rejoin serve` under load, in a process of its own.

use std::io;
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_serve::{KeyType, Resumption};

use super::Settings;
use super::counters::Meter;
use super::place::{Cores, Place};
use crate::Error;
use crate::child::lines;
use crate::server::{self, Listening, PATIENCE, Reading, terminate};
use crate::usage::Usage;

/// A server that has used no CPU time for so long is at rest.
const REST: Duration = Duration::from_millis(3);
/// Looks at most until it is.
const LOOKS: u32 = 100;

/// The service of a server: the key if it speaks TLS, the size of a body, and the number of cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) key: Option<KeyType>,
    pub(super) body_bytes: u32,
    /// How many it has.
    pub(super) cores: usize,
}

/// A server with one thread for each of its cores. It ends when this is dropped.
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

impl Starting {
    /// Spawns `command`, which must run `rejoin serve --json`. Its parent is this thread: it ends when the thread
    /// does.
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
        let line = lines(stdout).recv_timeout(patience).map_err(|_| silent())?;
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
        terminate(self.child.0.id())?;
        let what = "cannot wait for a server";
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

    /// Returns the time that its threads used so far, once they are at rest, or after a third of a second.
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

    /// Starts the processor's counters for its threads.
    pub(super) fn meter(&self) -> Result<Meter, Error> {
        Meter::start(self.child.0.id())
            .map_err(|source| Error::System { what: "cannot list a server's threads", source })
    }

    pub(super) fn counts(&self) -> Result<Reading, Error> {
        Reading::take(self.addresses.metrics)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Its summary is not needed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn failed(service: Service, what: &str) -> Error {
    let name = if service.key.is_some() { "TLS" } else { "plain HTTP" };
    Error::Server { resumption: name, what: what.to_owned() }
}

fn unstarted(source: io::Error) -> Error {
    Error::System { what: "cannot start a server", source }
}

/// Makes `command` serve, and end with its parent. Which key is to be said, too.
pub(super) fn serve(command: &mut Command, resumption: Resumption, service: Service) {
    command
        .args(server::arguments(service.cores, resumption))
        .args(["--body-bytes", &service.body_bytes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C is for this process: the servers are needed until the round is over.
        .process_group(0);
    if service.key.is_none() {
        command.args(["--stack", "none"]);
    }
}
