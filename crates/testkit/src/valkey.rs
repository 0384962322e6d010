//! Valkey or Redis, started on loopback for a test and ended with it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::folder::Folder;
use crate::port;
use crate::process::{DEADLINE, Process};

/// One server, with a folder of its own.
#[derive(Debug)]
pub struct Valkey {
    /// The port of 127.0.0.1 that it listens on.
    pub port: u16,
    /// The folder in which it saves.
    pub folder: Folder,
    process: Option<Process>,
    arguments: Vec<String>,
}

impl Valkey {
    /// Starts one, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If neither Valkey nor Redis is installed.
    pub fn start(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let (port, folder) = (port::reserve(), Folder::new());
        let mut valkey = Self { port, folder, process: None, arguments };
        valkey.start_again();
        valkey
    }

    /// Kills it.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it after [`Self::stop`], with what it saved.
    pub fn start_again(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let process = server(self.port, &self.folder, &arguments);
        self.process = Some(process.expect("valkey-server or redis-server is installed"));
    }

    /// Kills it, and starts an empty one in its place.
    pub fn restart_empty(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(self.folder.join("dump.rdb"));
        self.start_again();
    }

    /// True unless it was stopped.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Its process, while it runs.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// Sends a command, written as one does by hand. Returns its answer as text.
    ///
    /// # Panics
    ///
    /// If the answer is an error.
    pub fn say(&self, command: &str) -> String {
        say(self.port, command)
    }

    /// How often a command was called, by clients and by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.say("INFO commandstats");
        let prefix = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        let calls = calls.and_then(|line| line.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }
}

/// Starts a server on this port, which saves in this folder and only if told to, and waits until it
/// listens. `None` if neither Valkey nor Redis is installed.
pub fn server(port: u16, folder: &Path, arguments: &[&str]) -> Option<Process> {
    let start = |program| {
        let mut command = Command::new(program);
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        // Tests search what is saved, so it must not be compressed.
        command.args(["--rdbcompression", "no", "--port", &port.to_string()]);
        // Replicas need not wait for others that may come.
        command.args(["--repl-diskless-sync-delay", "0", "--dir"]);
        Process::try_start(command.arg(folder).args(arguments).stdout(Stdio::null()))
    };
    let started = start("valkey-server").or_else(|_| start("redis-server")).ok()?;
    port::wait_until_open(port);
    Some(started)
}

/// Sends a command to the server on this port of 127.0.0.1. Returns its answer as text: the items of
/// an array are lines, and nil is empty.
///
/// # Panics
///
/// If nobody answers, or the answer is an error.
pub fn say(port: u16, command: &str) -> String {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
    connection.set_read_timeout(Some(DEADLINE)).expect("an option");
    write!(connection, "{command}\r\n").expect("a connection");
    answer(&mut BufReader::new(connection)).unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Reads one value of RESP 2.
fn answer(reader: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    reader.read_line(&mut line).map_err(|error| error.to_string())?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or("no answer")?;
    let length = || usize::try_from(rest.parse::<i64>().expect("a number")).ok();
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "$" => Ok(length().map_or_else(String::new, |bytes| {
            let mut text = vec![0; bytes + 2];
            reader.read_exact(&mut text).expect("the whole value");
            String::from_utf8_lossy(&text[..bytes]).into_owned()
        })),
        "*" => {
            let items = (0..length().unwrap_or(0)).map(|_| answer(reader));
            Ok(items.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        _ => Err(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_every_kind_are_text() {
        let mut valkey = Valkey::start(&[]);
        assert_eq!(valkey.say("SET one 1"), "OK");
        assert_eq!(valkey.say("INCR one"), "2");
        assert_eq!(valkey.say("MGET one none one"), "2\n\n2");
        assert_eq!(valkey.calls("incr"), 1);
        let _ = valkey.say("SAVE");
        valkey.stop();
        valkey.start_again();
        assert_eq!(valkey.say("GET one"), "2");
        valkey.restart_empty();
        assert_eq!(valkey.say("DBSIZE"), "0");
    }
}
