//! The operator's settings: a TOML file.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::unistd::User;
use rejoin_cache::Capacity;
use serde::{Deserialize, Deserializer, de};

use crate::Error;
use crate::clock::Clock;
use crate::protocol::{Fingerprint, Host};

/// The settings of a manager. Bounds apply to the whole manager unless they say otherwise.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The bytes of stored sessions, at most.
    #[serde(deserialize_with = "bytes")]
    pub session_bytes: u64,
    /// The tickets kept for one server, user, label and client certificate, at most.
    pub tickets: usize,
    /// The longest use of a session in seconds, even if its server allows more; seven days at most.
    pub session_lifetime_s: u64,
    /// The longest use of a session after its certificate was verified, in seconds.
    pub verified_within_s: u64,
    /// The rule for offering a session of one name to a server of another name.
    pub across_names: AcrossNames,
    /// Lists of names, each served by one server: for `across_names = "listed"`.
    pub names: Vec<BTreeSet<Host>>,
    /// Hosts whose sessions are not shared.
    pub unshared_hosts: Vec<HostPattern>,
    /// Programs whose sessions are not shared, as `/proc/PID/comm` names them.
    pub unshared_programs: Vec<String>,
    /// Certificates and public keys that are rejected, whoever signed them.
    pub revoked: Vec<Fingerprint>,
    /// A file of authorities that replaces the system's for programs that trust `"system"`.
    pub system_bundle: Option<PathBuf>,
    /// The users that may connect, which a file names or gives by number. If empty, all users that can open the socket.
    #[serde(deserialize_with = "users")]
    pub users: Vec<u32>,
    /// The concurrent connections, at most.
    pub connections: usize,
    /// The concurrent connections of one user, at most.
    pub connections_per_user: usize,
    /// The longest time for which open connections go on when the manager is told to end, in seconds.
    pub drain_s: u64,
    /// The network namespaces whose programs are served.
    pub network_namespaces: Namespaces,
    /// The rules for connections that the manager opens itself.
    pub connect: ConnectRules,
    /// The requests that are sent as 0-RTT data.
    pub early_data: EarlyRules,
    /// The clock.
    #[serde(skip)]
    pub clock: Clock,
}

/// The network namespaces whose programs are served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Namespaces {
    /// The manager's own.
    #[default]
    Own,
    /// The manager's own, and these, each by a file such as `/run/netns/NAME`.
    Listed(Vec<PathBuf>),
    /// All.
    Any,
}

impl<'de> Deserialize<'de> for Namespaces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            Paths(Vec<PathBuf>),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Word(word)) if word == "own" => Ok(Self::Own),
            Ok(Written::Word(word)) if word == "any" => Ok(Self::Any),
            Ok(Written::Paths(paths)) => Ok(Self::Listed(paths)),
            _ => Err(de::Error::custom("write \"own\", \"any\", or a list of files")),
        }
    }
}

/// The rules for connections that the manager opens itself, because a program asked for one by name or address. What is
/// `None` is not limited.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectRules {
    /// The programs that may ask, as `/proc/PID/comm` names them.
    pub programs: Option<Vec<String>>,
    /// The hosts that may be connected to. Programs may then give no addresses.
    pub hosts: Option<Vec<HostPattern>>,
    /// The ports that may be connected to.
    pub ports: Option<Vec<NonZeroU16>>,
    /// True if programs under a seccomp filter may ask.
    pub sandboxed: bool,
}

/// The requests that are sent as 0-RTT data, if a session allows it, although their programs did not ask for that. Anyone
/// on the way can repeat such a request to the server (RFC 8446, section 8).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyRules {
    /// The hosts whose requests may be repeated. By default none.
    pub hosts: Vec<HostPattern>,
    /// The HTTP methods of these requests.
    pub methods: Vec<String>,
}

impl Default for EarlyRules {
    fn default() -> Self {
        Self { hosts: Vec::new(), methods: ["GET", "HEAD"].map(Into::into).into() }
    }
}

impl EarlyRules {
    /// The methods that change something each time, or whose effect nobody knows (RFC 9110, section 9.2.2).
    const UNSAFE: [&str; 3] = ["POST", "PATCH", "CONNECT"];

    /// Returns true if requests to this host may be repeated.
    pub(crate) fn lists(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Returns true if these bytes are the head of one HTTP/1 request with a listed method, and nothing else.
    pub(crate) fn may_be_repeated(&self, first: &[u8]) -> bool {
        // A server may take a line feed alone for the end of a line (RFC 9112, section 2.2), and so see two requests.
        let Some(head) =
            std::str::from_utf8(first).ok().and_then(|text| text.strip_suffix("\r\n\r\n"))
        else {
            return false;
        };
        let mut lines = head.split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let is_listed = |method| self.methods.iter().any(|listed| listed == method);
        let is_request = matches!(
            words[..],
            [method, target, "HTTP/1.0" | "HTTP/1.1"] if is_listed(method) && !target.is_empty()
        );
        is_request
            && lines.all(|line| !line.is_empty())
            && !head.replace("\r\n", "").contains(['\r', '\n'])
    }

    fn check(&self) -> Result<(), String> {
        for method in &self.methods {
            let is_word =
                !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
            if !is_word || Self::UNSAFE.contains(&method.as_str()) {
                return Err(format!("early_data.methods: {method:?} cannot be repeated safely"));
            }
        }
        Ok(())
    }
}

/// A host name, or `*.` and a name for all names below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: Host,
    is_parent: bool,
}

impl HostPattern {
    pub(crate) fn matches(&self, host: &Host) -> bool {
        if !self.is_parent {
            return self.host == *host;
        }
        let below = host.as_str().strip_suffix(self.host.as_str());
        below.is_some_and(|below| below.ends_with('.'))
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parent = text.strip_prefix("*.");
        let host =
            parent.unwrap_or(text).parse().map_err(|_| format!("{text:?} is not a host name"))?;
        Ok(Self { host, is_parent: parent.is_some() })
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The rule for offering a session of one name to a server of another name. In every case only with TLS 1.3, only
/// if the session's certificate is valid for the new name, and only if a ticket is to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcrossNames {
    /// Never.
    Never,
    /// Between names of one list in the settings.
    Listed,
    /// Once as a trial, afterwards according to its outcome.
    Learned,
}

/// The longest use of a ticket: seven days (RFC 9846, section 4.6.1).
pub(crate) const MOST_LIFETIME_S: u64 = 7 * 24 * 3_600;
/// The least memory for sessions: the engine divides it into units.
const LEAST_SESSION_BYTES: u64 = 64 * 1024;
const MOST_SESSION_BYTES: u64 = 16 << 30;
const MOST_DRAIN_S: u64 = 24 * 3_600;
/// The longest settings file.
const FILE_BYTES: u64 = 1024 * 1024;
/// The length to which Linux truncates programs' names (`proc_pid_comm(5)`).
const PROGRAM_BYTES: u64 = 15;

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_bytes: 16 << 20,
            tickets: 8,
            session_lifetime_s: MOST_LIFETIME_S,
            verified_within_s: 24 * 3_600,
            across_names: AcrossNames::Learned,
            names: Vec::new(),
            unshared_hosts: Vec::new(),
            unshared_programs: Vec::new(),
            revoked: Vec::new(),
            system_bundle: None,
            users: Vec::new(),
            connections: 10_000,
            connections_per_user: 5_000,
            drain_s: 300,
            network_namespaces: Namespaces::Own,
            connect: ConnectRules::default(),
            early_data: EarlyRules::default(),
            clock: Clock::default(),
        }
    }
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or its settings are invalid.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let unreadable = |cause| Error::Unreadable { path: path.into(), cause };
        let wrong = |what: String| Error::BadSettings { path: path.into(), what };
        if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES {
            return Err(wrong("the file is longer than 1 MiB".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(0, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            let fits = (least..=most).contains(&value);
            fits.then_some(()).ok_or_else(|| format!("{name}: give {least} to {most}"))
        };
        let least = LEAST_SESSION_BYTES;
        within("session_bytes", self.session_bytes, least, MOST_SESSION_BYTES)?;
        within("tickets", self.tickets as u64, 1, 64)?;
        within("session_lifetime_s", self.session_lifetime_s, 1, MOST_LIFETIME_S)?;
        within("verified_within_s", self.verified_within_s, 1, MOST_LIFETIME_S)?;
        within("connections", self.connections as u64, 1, 1_000_000)?;
        within("connections_per_user", self.connections_per_user as u64, 1, 1_000_000)?;
        within("drain_s", self.drain_s, 0, MOST_DRAIN_S)?;
        for name in &self.unshared_programs {
            within("unshared_programs: the bytes of a name", name.len() as u64, 1, PROGRAM_BYTES)?;
        }
        for name in self.connect.programs.iter().flatten() {
            within("connect.programs: the bytes of a name", name.len() as u64, 1, PROGRAM_BYTES)?;
        }
        self.early_data.check()
    }

    /// Returns the names of settings that differ from the new ones, and take effect only at the next start.
    pub(crate) fn not_reloaded(&self, new: &Self) -> Vec<&'static str> {
        let differs = self.session_bytes != new.session_bytes;
        differs.then_some("session_bytes").into_iter().collect()
    }

    /// Returns true if sessions of this host are shared.
    pub(crate) fn shares_host(&self, host: &Host) -> bool {
        !self.unshared_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Returns true if sessions of this program are shared. Without a list of unshared programs all are; with one, a
    /// program whose name cannot be read is not, because it might be on the list.
    pub(crate) fn shares_program<'a>(&self, name: impl FnOnce() -> Option<&'a str>) -> bool {
        let unshared = &self.unshared_programs;
        let is_shared = |name| !unshared.iter().any(|unshared| unshared == name);
        unshared.is_empty() || name().is_some_and(is_shared)
    }

    /// Returns true if the operator lists both as names of one server.
    pub(crate) fn lists_together(&self, one: &Host, other: &Host) -> bool {
        self.names.iter().any(|names| names.contains(one) && names.contains(other))
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Bytes {
        Number(u64),
        Text(String),
    }
    match Bytes::deserialize(deserializer)? {
        Bytes::Number(bytes) => Ok(bytes),
        Bytes::Text(text) => match text.parse() {
            Ok(Capacity::Bytes(bytes)) => Ok(bytes),
            _ => Err(de::Error::custom("write bytes as 4096, 64KiB, 512MiB or 2GiB")),
        },
    }
}

/// Reads users. The number of a name is looked up now, and once.
fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u32),
        Name(String),
    }
    struct Uid(u32);
    impl<'de> Deserialize<'de> for Uid {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            match Written::deserialize(deserializer) {
                Ok(Written::Number(uid)) => Ok(Self(uid)),
                Ok(Written::Name(name)) => uid_of(&name).map(Self).map_err(de::Error::custom),
                Err(_) => Err(de::Error::custom("write users by name, as \"alice\", or by number")),
            }
        }
    }
    Ok(Vec::<Uid>::deserialize(deserializer)?.into_iter().map(|Uid(uid)| uid).collect())
}

fn uid_of(name: &str) -> Result<u32, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("there is no user {name}: create it, or name another")),
        Err(cause) => Err(format!("the user {name} cannot be looked up: {cause}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_defaults() {
        let text = r#"
            session_bytes = "1MiB"
            across_names = "listed"
            names = [["a.example", "b.example"]]
            unshared_hosts = ["bank.example", "*.health.example"]
            unshared_programs = ["secretive"]
            network_namespaces = ["/run/netns/blue"]
            [connect]
            hosts = ["*.health.example"]
            ports = [443]
        "#;
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.session_bytes, 1 << 20);
        assert_eq!(settings.tickets, Settings::default().tickets);
        let host = |name: &str| name.parse::<Host>().unwrap();
        assert!(settings.lists_together(&host("a.example"), &host("B.example.")));
        assert!(!settings.lists_together(&host("a.example"), &host("c.example")));
        assert!(!settings.shares_host(&host("Bank.example")));
        assert!(!settings.shares_host(&host("x.y.health.example")));
        assert!(settings.shares_host(&host("health.example")));
        assert!(settings.shares_host(&host("myhealth.example")));
        assert!(!settings.shares_program(|| Some("secretive")));
        assert!(!settings.shares_program(|| None));
        assert!(settings.shares_program(|| Some("curl")));
        assert_eq!(settings.network_namespaces, Namespaces::Listed(vec!["/run/netns/blue".into()]));
        assert!(settings.connect.programs.is_none() && !settings.connect.sandboxed);
        assert_eq!(settings.connect.ports.unwrap()[0].get(), 443);
    }

    #[test]
    fn only_the_whole_head_of_one_listed_request_may_be_repeated() {
        let rules = EarlyRules::default();
        for yes in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /a?b HTTP/1.0\r\n\r\n"] {
            assert!(rules.may_be_repeated(yes.as_bytes()), "{yes:?}");
        }
        for no in [
            "",
            "\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "GET / HTTP/1.1\r\n\r\nbody",
            "GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\n\r\n",
            "get / HTTP/1.1\r\n\r\n",
            "GETS / HTTP/1.1\r\n\r\n",
            "GET  HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET /\r\n\r\n",
            " GET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET / HTTP/1.1\n\nPOST / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\nPOST / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\n\nPOST / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rPOST / HTTP/1.1\r\n\r\n",
        ] {
            assert!(!rules.may_be_repeated(no.as_bytes()), "{no:?}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_in_one_line() {
        for text in [
            "session_byte = 1",
            "session_bytes = 1",
            "session_bytes = \"much\"",
            "session_lifetime_s = 604801",
            "tickets = 0",
            "across_names = \"maybe\"",
            "revoked = [\"12\"]",
            "unshared_hosts = [\"*\"]",
            "unshared_hosts = [\"bank.example..\"]",
            "unshared_programs = [\"sixteen-letters-\"]",
            "drain_s = 86401",
            "network_namespaces = \"blue\"",
            "connect.ports = [0]",
            "connect.programs = [\"\"]",
            "connect.host = [\"a.example\"]",
            "early_data.methods = [\"POST\"]",
            "early_data.methods = [\"get\"]",
            "early_data.methods = [\"\"]",
            "early_data.hosts = [\"*\"]",
            "names = [[\"*.a\"]]",
        ] {
            let refused = Settings::parse(text).unwrap_err();
            assert!(!refused.contains('\n') && !refused.is_empty(), "{text}: {refused}");
            let below = Settings::parse(&format!("\n# A comment.\n{text}")).unwrap_err();
            assert_eq!(below, refused.replace("line 1: ", "line 3: "), "{text}");
        }
    }

    #[test]
    fn users_have_names_or_numbers() {
        let settings = Settings::parse("users = [\"root\", 1234]").unwrap();
        assert_eq!(settings.users, [0, 1234]);
        let refused = Settings::parse("\nusers = [\"no-such-user\"]").unwrap_err();
        assert_eq!(refused, "line 2: there is no user no-such-user: create it, or name another");
        for text in ["users = [-1]", "users = [true]", "users = \"root\"", "users = [\"\"]"] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
    }

    /// The file that packages install has each setting in a comment.
    #[test]
    fn every_example_of_the_package_may_be_uncommented() {
        let file = include_str!("../../../packaging/etc/manager.toml");
        // Nobody has that name here.
        let file = file.replace("alice", "root");
        let is_setting = |line: &&str| line.starts_with('[') || line.contains(" = ");
        let lines: Vec<_> =
            file.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_setting).collect();
        assert!(lines.len() > 15, "{lines:?}");
        let settings = Settings::parse(&lines.join("\n")).unwrap();
        assert_eq!(settings.users, [0, 1000]);
        assert_eq!(settings.tickets, Settings::default().tickets);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line) in [
            ("session_byte = 1", 1),
            ("tickets = 1\n\nsession_byte = 1\n", 3),
            ("tickets = 1\nsession_bytes = \"much\"\n", 2),
            ("tickets = 1\ntickets 2", 2),
        ] {
            let refused = Settings::parse(text).unwrap_err();
            assert!(refused.starts_with(&format!("line {line}: ")), "{text}: {refused}");
        }
    }
}
