//! One program's visits to one server, and how they are told apart from others.

use std::fs;
use std::process::{Command, Stdio};

use super::server::Client;

/// All that a program's user can notice of one run, and what its server saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    pub code: Option<i32>,
    /// The number of bytes that it wrote, and their SHA-256.
    pub bytes: (usize, String),
    /// Standard error, without Rejoin's lines and without chance.
    pub stderr: String,
    pub clients: Vec<Client>,
}

/// Runs a program. Returns its visit without the server's view, and Rejoin's lines.
pub(super) fn run(command: &mut Command, writes: Option<&str>, port: u16) -> (Visit, Vec<String>) {
    let output = command.stdin(Stdio::null()).output().expect("timeout");
    let bytes = match writes {
        None => output.stdout,
        Some(file) => {
            let folder = command.get_current_dir().expect("a folder of its own");
            fs::read(folder.join(file)).unwrap_or_default()
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let (told, said): (Vec<_>, Vec<_>) =
        stderr.lines().map(str::to_owned).partition(|line| line.contains("rejoin: "));
    let lines = said.iter().map(|line| normal(line, port) + "\n");
    let visit = Visit {
        code: output.status.code(),
        bytes: (bytes.len(), digest(&bytes)),
        stderr: lines.collect(),
        clients: Vec::new(),
    };
    (visit, told)
}

/// A line without ports, addresses in memory, processes, threads and times.
fn normal(line: &str, port: u16) -> String {
    let line = line.replace(&port.to_string(), "PORT");
    let word = |word: &str| if is_time(word) { "TIME".to_owned() } else { without_numbers(word) };
    let mut words: Vec<_> = line.split(' ').map(word).collect();
    for at in 1..words.len() {
        if ["milliseconds", "ms", "ms:"].contains(&words[at].as_str()) {
            words[at - 1] = "N".to_owned();
        }
    }
    words.join(" ")
}

/// Returns true for `2026/11/25` and `01:48:13`.
fn is_time(word: &str) -> bool {
    let is_made_of = |sign: char| {
        let mut parts = word.split(sign);
        parts.clone().count() == 3
            && parts.all(|part| part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    is_made_of('/') || is_made_of(':')
}

/// A word without long numbers in hex, and without the number of a process: `name[123]`.
fn without_numbers(word: &str) -> String {
    if let Some((name, number)) = word.strip_suffix(']').and_then(|word| word.split_once('['))
        && number.parse::<u32>().is_ok()
    {
        return format!("{name}[N]");
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric();
    let short = |part: &str| {
        let bare = part.trim_start_matches("0x");
        let is_hex = bare.len() >= 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { "N".to_owned() } else { part.to_owned() }
    };
    let mut text = String::new();
    let mut rest = word;
    while let Some(end) = rest.find(|letter| !is_word(letter)) {
        text += &short(&rest[..end]);
        let after = rest[end..].find(is_word).map_or(rest.len(), |at| end + at);
        text += &rest[end..after];
        rest = &rest[after..];
    }
    text + &short(rest)
}

/// The SHA-256 of bytes, in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    openssl::sha::sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A difference between two visits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Difference {
    /// Its user can notice it.
    Program(String),
    /// Only the server can.
    Server(Unlike, String),
}

/// The differences that a server sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unlike {
    /// A connection of the manager's own, on which nothing came about, and then the program's.
    Twice,
    /// The connection ends without the alert that says why.
    NoAlert,
    /// It hears no close_notify where the program sends one, or the other way round.
    End,
    /// The connection lasts as long as the manager is stopped.
    Held,
    /// It was asked for something else.
    Asked,
}

impl Visit {
    /// Names what differs from every one of these.
    pub(super) fn difference(&self, others: &[Self], with_clients: bool) -> Option<Difference> {
        let like = |what: &dyn Fn(&Self) -> bool| others.iter().any(what);
        let other = &others[others.len() - 1];
        let said = |text: String| Some(Difference::Program(text));
        if !like(&|other| other.code == self.code) {
            said(format!(
                "exit code {:?}, without {:?}: {}",
                self.code,
                other.code,
                self.stderr.trim()
            ))
        } else if !like(&|other| other.bytes == self.bytes) {
            said(format!("{} bytes, without {}", self.bytes.0, other.bytes.0))
        } else if !like(&|other| other.stderr == self.stderr) {
            said(format!("says {:?}, without {:?}", self.stderr, other.stderr))
        } else if !with_clients || like(&|other| other.clients == self.clients) {
            None
        } else {
            let text = format!("the server saw {:?}, without {:?}", self.clients, other.clients);
            Some(Difference::Server(unlike(&self.clients, &other.clients), text))
        }
    }
}

fn unlike(with: &[Client], without: &[Client]) -> Unlike {
    if with.iter().any(Client::is_held) {
        return Unlike::Held;
    }
    if with.len() != without.len() {
        let others: Vec<_> = with.iter().filter(|client| !client.said.is_empty()).collect();
        let is_same = others == without.iter().collect::<Vec<_>>() || others.is_empty();
        return if is_same && with.len() > without.len() { Unlike::Twice } else { Unlike::Asked };
    }
    let mut all = with.iter().zip(without).filter(|(with, without)| with != without);
    let but_end = |client: &Client| Client { end: String::new(), ..client.clone() };
    if !all.clone().all(|(client, other)| but_end(client) == but_end(other)) {
        Unlike::Asked
    } else if all.all(|(_, other)| other.end.contains("alert")) {
        Unlike::NoAlert
    } else {
        Unlike::End
    }
}
