//! The operator's settings: one file, equal on all machines of a cluster except for local paths, and for the part that
//! says which site a machine is in.

mod access;
mod sites;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::link::Servers;
use crate::sessions::Bounds;
use crate::{ClusterName, Error, KeyFile, MachineName, SiteName};
use access::Access;
use rejoin_cache::Capacity;
use rejoin_store::{CacheName, Store};
use rejoin_tickets::{Schedule, Seconds};
use serde::{Deserialize, Deserializer};

pub use access::{SentinelSettings, TlsFiles};
pub use sites::SiteSettings;

/// The settings of a cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The cluster's name.
    #[serde(deserialize_with = "parsed")]
    pub name: ClusterName,
    /// The name of this machine's site, if there are several. The servers or sentinels below are its Valkey.
    #[serde(default, deserialize_with = "optional")]
    pub site: Option<SiteName>,
    /// The site whose Valkey decides which ring of ticket keys is the cluster's.
    #[serde(default, deserialize_with = "optional")]
    pub home: Option<SiteName>,
    /// The host and port of Valkey, of a primary and its replicas, or of some nodes of a Valkey cluster.
    #[serde(default)]
    pub servers: Vec<String>,
    /// True if they are one Valkey cluster.
    #[serde(default)]
    pub clustered: bool,
    /// The sentinels that know the primary, instead of servers.
    pub sentinel: Option<SentinelSettings>,
    /// The ACL user, if it is not the default one.
    pub user: Option<String>,
    /// A file with the user's password. It is read again when Valkey refuses the password.
    pub password_file: Option<PathBuf>,
    /// The TLS files. Without them the connection to Valkey is not encrypted.
    pub tls: Option<TlsFiles>,
    /// The file with the key that encrypts all data that leaves a machine, as created by `rejoin cluster key`.
    pub key_file: PathBuf,
    /// The user that the agent becomes, to whom the key file may belong: then the agent notices when it changes.
    pub agent_user: Option<String>,
    /// The user id of that user.
    #[serde(skip)]
    pub agent_uid: Option<u32>,
    /// The machine's name. The default is the system's host name.
    #[serde(default, deserialize_with = "optional")]
    pub machine: Option<MachineName>,
    /// The name of the machine's cache. The default is the cluster's name.
    pub cache: Option<String>,
    /// The folder of caches.
    #[serde(default = "folder")]
    pub folder: PathBuf,
    /// The capacity of the machine's cache.
    #[serde(deserialize_with = "parsed")]
    pub capacity: Capacity,
    /// The longest wait of a handshake for a session, in milliseconds. If there is none, a handshake waits for no longer than
    /// answers usually take, and for [`Mailbox::DEADLINE`](rejoin_store::Mailbox::DEADLINE) at most.
    pub deadline_ms: Option<u64>,
    /// The time for which a ticket key encrypts.
    #[serde(default, deserialize_with = "optional")]
    pub rotate_every: Option<Seconds>,
    /// The time after its turn for which a key opens tickets.
    #[serde(default, deserialize_with = "optional")]
    pub ticket_lifetime: Option<Seconds>,
    /// The bounds of the sessions of all machines in Valkey.
    #[serde(default)]
    pub sessions: SessionBounds,
    /// The other sites.
    #[serde(default)]
    pub sites: Vec<SiteSettings>,
}

/// The bounds of the sessions in Valkey.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionBounds {
    /// The number of sessions, at most.
    pub most: u64,
    /// The bytes of sessions, including Valkey's overhead for each.
    #[serde(deserialize_with = "parsed")]
    pub bytes: Capacity,
    /// The number of shards, each of which is on one node.
    pub shards: u16,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self { most: 1_000_000, bytes: Capacity::Bytes(1 << 30), shards: Bounds::SHARDS }
    }
}

impl Settings {
    /// Parses the text of a file. An error is one line, which begins with the line in the file.
    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(0, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message().replace('\n', " "))
        })
    }

    /// Reads a file of TOML.
    ///
    /// # Errors
    /// The file cannot be read, or its settings are invalid.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let unreadable = |cause| Error::Unreadable { path: path.into(), cause };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let wrong = |what: String| Error::BadSettings { path: path.into(), what };
        let settings = Self::parse(&text).map_err(&wrong)?;
        settings.access().check().map_err(&wrong)?;
        settings.check_sites().map_err(&wrong)?;
        settings.bounds().check()?;
        if settings.deadline_ms.is_some_and(|ms| !(1..=Self::MOST_DEADLINE_MS).contains(&ms)) {
            let most = Self::MOST_DEADLINE_MS;
            return Err(wrong(format!("deadline_ms: give 1 to {most}")));
        }
        settings.cache().map_err(|error| wrong(error.to_string()))?;
        settings.schedule().map_err(|error| wrong(error.to_string()))?;
        Ok(settings)
    }

    /// Reads the key file.
    ///
    /// # Errors
    /// Those of [`KeyFile::open`].
    pub fn open_key_file(&self) -> Result<KeyFile, Error> {
        KeyFile::open(&self.key_file, self.agent_uid)
    }

    /// Returns the name of the machine's cache.
    ///
    /// # Errors
    /// It is not a valid name of a cache.
    pub fn cache(&self) -> Result<CacheName, rejoin_store::Error> {
        self.cache.as_deref().unwrap_or(self.name.as_str()).parse()
    }

    /// Returns the machine's name.
    pub fn machine(&self) -> MachineName {
        self.machine.clone().unwrap_or_else(MachineName::of_host)
    }

    /// Returns the schedule of ticket keys.
    ///
    /// # Errors
    /// Those of [`Schedule::new`].
    pub fn schedule(&self) -> Result<Schedule, rejoin_tickets::Error> {
        let usual = Schedule::default();
        let or = |given: Option<Seconds>, usual| given.map_or(usual, |Seconds(seconds)| seconds);
        let rotate_every_s = or(self.rotate_every, usual.rotate_every_s());
        let lifetime_s = or(self.ticket_lifetime, usual.ticket_lifetime_s());
        Schedule::with_usual_lead(rotate_every_s, lifetime_s)
    }

    /// Returns the longest wait of a handshake.
    pub fn deadline(&self) -> Duration {
        self.deadline_ms.map_or(rejoin_store::Mailbox::DEADLINE, Duration::from_millis)
    }

    /// Returns the bounds of the sessions in Valkey.
    pub fn bounds(&self) -> Bounds {
        let SessionBounds { most, bytes, shards } = self.sessions;
        let (Capacity::Bytes(bytes) | Capacity::Sessions(bytes)) = bytes;
        Bounds { shards, sessions: most, bytes, grace_ms: Self::GRACE_MS }
    }

    const MOST_DEADLINE_MS: u64 = rejoin_store::Mailbox::MOST_WAIT.as_millis() as u64;
    /// The grace period, as in a machine's cache.
    const GRACE_MS: u64 = 5_000;

    /// Returns the connection settings of the machine's own site. Reads the files of the password and of TLS.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn valkey(&self) -> Result<Servers, Error> {
        self.access().read()
    }

    fn access(&self) -> Access<'_> {
        Access {
            servers: &self.servers,
            clustered: self.clustered,
            sentinel: self.sentinel.as_ref(),
            user: self.user.as_ref(),
            password_file: self.password_file.as_deref(),
            tls: self.tls.as_ref(),
        }
    }

    /// Returns the rules of the ACL user that agents need in Valkey, but for its name and password.
    pub fn acl_rules(&self) -> String {
        let name = &self.name;
        format!(
            "resetkeys ~rejoin:{{{name}}}:ring ~rejoin:{{{name}}}:lease ~rejoin:{{{name}}}:machines \
             ~rejoin:{{{name}}}:reported ~rejoin:{{{name}.*}}:order ~rejoin:{{{name}.*}}:values \
             ~rejoin:{{{name}.*}}:counts ~rejoin:{{{name}.*}}:taken resetchannels \
             -@all +{}",
            Self::COMMANDS.join(" +")
        )
    }

    /// The commands that agents need: all of them in scripts or by themselves, and none beside them.
    const COMMANDS: [&str; 26] = [
        "evalsha",
        "script|load",
        "get",
        "set",
        "del",
        "hget",
        "hmget",
        "hset",
        "hdel",
        "hexists",
        "hincrby",
        "hstrlen",
        "zadd",
        "zcard",
        "zrange",
        "zrangebyscore",
        "zrem",
        "zremrangebyscore",
        "zrevrange",
        "zrevrangebyscore",
        "zscore",
        "info",
        "time",
        "ping",
        "asking",
        "cluster|slots",
    ];
}

fn folder() -> PathBuf {
    Store::FOLDER.into()
}

fn parsed<'de, D: Deserializer<'de>, T>(from: D) -> Result<T, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn optional<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    parsed(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn valkey_is_in_one_place() {
        const REST: &str = "name = \"web\"\nkey_file = \"/key\"\ncapacity = \"1MiB\"\n";
        let told = |place: &str| {
            let settings =
                Settings::parse(&format!("{REST}{place}")).map_err(|_| "no TOML".to_owned())?;
            settings
                .access()
                .check()
                .map(|()| settings.valkey().expect("no files").place.to_string())
        };
        for (place, expected) in [
            ("servers = [\"a:1\"]", Ok("a:1")),
            ("servers = [\"a:1\", \"b:2\"]", Ok("a:1, b:2")),
            ("servers = [\"a:1\", \"b:2\"]\nclustered = true", Ok("a:1, b:2")),
            (
                "sentinel = { servers = [\"a:1\", \"b:2\"], master = \"m\" }",
                Ok("m of the sentinels a:1, b:2"),
            ),
            ("", Err("servers: give at least one")),
            ("servers = []", Err("servers: give at least one")),
            ("servers = [\"a\"]", Err("servers: \"a\" is not host:port")),
            (
                "sentinel = { servers = [], master = \"m\" }",
                Err("sentinel.servers: give at least one"),
            ),
            ("sentinel = { servers = [\"a:1\"], master = \"\" }", Err("sentinel.master")),
            (
                "servers = [\"a:1\"]\nsentinel = { servers = [\"a:1\"], master = \"m\" }",
                Err("neither"),
            ),
            (
                "clustered = true\nsentinel = { servers = [\"a:1\"], master = \"m\" }",
                Err("neither"),
            ),
        ] {
            match (told(place), expected) {
                (Ok(place), Ok(expected)) => assert_eq!(place, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{place}: {why}"),
                (told, _) => panic!("{place}: {told:?}"),
            }
        }
    }

    #[test]
    fn a_machine_has_its_hosts_name_unless_another_is_given() {
        const REST: &str = "name = \"web\"\nkey_file = \"/key\"\ncapacity = \"1MiB\"\n";
        let named = |machine: &str| Settings::parse(&format!("{REST}{machine}"));
        let name = |machine| named(machine).map(|settings| settings.machine().to_string());
        assert_eq!(name("machine = \"web-1\""), Ok("web-1".to_owned()));
        assert_eq!(name(""), Ok(crate::MachineName::of_host().to_string()));
        for bad in ["", "a b", "\\u001b[2J", &"x".repeat(65)] {
            let refused = named(&format!("machine = \"{bad}\"")).expect_err(bad);
            assert!(refused.starts_with("line 4: ") && refused.contains("site or machine"));
        }
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line) in [
            ("nam = 1", 1),
            ("# settings\n\nnam = 1\n", 3),
            ("# settings\nname = 1\n", 2),
            ("# settings\nname 1", 2),
        ] {
            let refused = Settings::parse(text).expect_err(text);
            assert!(refused.starts_with(&format!("line {line}: ")), "{text}: {refused}");
        }
    }
}
