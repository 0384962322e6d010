//! The operator's settings: one file, equal on all machines of a cluster except for local paths.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::link::{Login, NodeAddress, Place, Sentinels, Servers, Tls};
use crate::sessions::Bounds;
use crate::{ClusterName, Error, KeyFile};
use rejoin_cache::Capacity;
use rejoin_store::{CacheName, Store};
use rejoin_tickets::{Schedule, Seconds};
use serde::{Deserialize, Deserializer};

/// The settings of a cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The cluster's name.
    #[serde(deserialize_with = "parsed")]
    pub name: ClusterName,
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
    /// The name of the machine's cache. The default is the cluster's name.
    pub cache: Option<String>,
    /// The folder of caches.
    #[serde(default = "folder")]
    pub folder: PathBuf,
    /// The capacity of the machine's cache.
    #[serde(deserialize_with = "parsed")]
    pub capacity: Capacity,
    /// The longest wait of a handshake for a session, in milliseconds.
    #[serde(default = "deadline_ms")]
    pub deadline_ms: u64,
    /// The time for which a ticket key encrypts.
    #[serde(default, deserialize_with = "time")]
    pub rotate_every: Option<Seconds>,
    /// The time after its turn for which a key opens tickets.
    #[serde(default, deserialize_with = "time")]
    pub ticket_lifetime: Option<Seconds>,
    /// The bounds of the sessions of all machines in Valkey.
    #[serde(default)]
    pub sessions: SessionBounds,
}

/// The sentinels of Valkey.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentinelSettings {
    /// The host and port of each sentinel.
    pub servers: Vec<String>,
    /// The name under which they watch the primary.
    pub master: String,
    /// The ACL user at the sentinels, if it is not the default one.
    pub user: Option<String>,
    /// A file with that user's password.
    pub password_file: Option<PathBuf>,
    /// The TLS files for sentinels. The default is those for Valkey.
    pub tls: Option<TlsFiles>,
}

/// The files for TLS with Valkey, in PEM.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The authorities for Valkey's certificate. The default is the system's authorities.
    pub ca: Option<PathBuf>,
    /// The client certificate, if Valkey requests one.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(&self) -> Result<Tls, Error> {
        let identity = self.certificate.as_deref().zip(self.key.as_deref());
        let identity = identity
            .map(|(certificate, key)| Ok::<_, Error>((read(certificate)?, read(key)?.into())));
        Ok(Tls { ca: self.ca.as_deref().map(read).transpose()?, identity: identity.transpose()? })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|cause| Error::Unreadable { path: path.into(), cause })
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
        settings.check_place().map_err(&wrong)?;
        settings.bounds().check()?;
        if !(1..=Self::MOST_DEADLINE_MS).contains(&settings.deadline_ms) {
            let most = Self::MOST_DEADLINE_MS;
            return Err(wrong(format!("deadline_ms: give 1 to {most}")));
        }
        settings.cache().map_err(|error| wrong(error.to_string()))?;
        settings.schedule().map_err(|error| wrong(error.to_string()))?;
        let of_sentinels = settings.sentinel.as_ref().and_then(|sentinel| sentinel.tls.as_ref());
        let is_half = |tls: &TlsFiles| tls.certificate.is_some() != tls.key.is_some();
        if settings.tls.iter().chain(of_sentinels).any(is_half) {
            return Err(wrong("tls: give both certificate and key, or neither".to_owned()));
        }
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
        Duration::from_millis(self.deadline_ms)
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

    /// Returns the connection settings. Reads the files of the password and of TLS.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn valkey(&self) -> Result<Servers, Error> {
        let bad = |what| Error::BadSettings { path: PathBuf::new(), what };
        let tls = self.tls.as_ref().map(TlsFiles::read).transpose()?;
        let place = match &self.sentinel {
            Some(sentinel) => Place::Sentinels(sentinel.read(tls.clone())?),
            None if self.clustered => Place::Cluster(self.addresses().map_err(bad)?),
            None => Place::Primary(self.addresses().map_err(bad)?),
        };
        Ok(Servers { place, login: login(self.user.as_ref(), self.password_file.as_deref())?, tls })
    }

    /// Returns the rules of the ACL user that agents need in Valkey, but for its name and password.
    pub fn acl_rules(&self) -> String {
        let name = &self.name;
        format!(
            "resetkeys ~rejoin:{{{name}}}:ring ~rejoin:{{{name}}}:lease ~rejoin:{{{name}.*}}:order \
             ~rejoin:{{{name}.*}}:values ~rejoin:{{{name}.*}}:counts ~rejoin:{{{name}.*}}:taken resetchannels \
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

    fn check_place(&self) -> Result<(), String> {
        match &self.sentinel {
            None => self.addresses().map(|_| ()),
            Some(_) if self.clustered || !self.servers.is_empty() => {
                Err("sentinel: give neither servers nor clustered with it".to_owned())
            }
            Some(sentinel) => sentinel.check(),
        }
    }

    fn addresses(&self) -> Result<Vec<NodeAddress>, String> {
        addresses("servers", &self.servers)
    }
}

impl SentinelSettings {
    /// The longest name of a primary, in bytes.
    const LONGEST_MASTER: usize = 256;

    fn check(&self) -> Result<(), String> {
        addresses("sentinel.servers", &self.servers)?;
        let is_name = (1..=Self::LONGEST_MASTER).contains(&self.master.len())
            && self.master.bytes().all(|byte| byte.is_ascii_graphic());
        is_name.then_some(()).ok_or_else(|| {
            "sentinel.master: give the name after `sentinel monitor` in the sentinels' files"
                .to_owned()
        })
    }

    /// Reads the files. Sentinels without TLS files have those of Valkey.
    fn read(&self, valkeys_tls: Option<Tls>) -> Result<Sentinels, Error> {
        let bad = |what| Error::BadSettings { path: PathBuf::new(), what };
        Ok(Sentinels {
            addresses: addresses("sentinel.servers", &self.servers).map_err(bad)?,
            master: self.master.clone(),
            login: login(self.user.as_ref(), self.password_file.as_deref())?,
            tls: self.tls.as_ref().map_or(Ok(valkeys_tls), |tls| tls.read().map(Some))?,
        })
    }
}

fn login(user: Option<&String>, password_file: Option<&Path>) -> Result<Login, Error> {
    match password_file {
        Some(file) => Login::with_file(user.cloned(), file),
        None => Ok(Login::new(user.cloned(), None)),
    }
}

/// The most servers or sentinels that settings name.
const MOST_SERVERS: usize = 64;

fn addresses(setting: &str, texts: &[String]) -> Result<Vec<NodeAddress>, String> {
    let parsed = |text: &String| text.parse().map_err(|wrong| format!("{setting}: {wrong}"));
    match texts.len() {
        0 => Err(format!("{setting}: give at least one host:port")),
        1..=MOST_SERVERS => texts.iter().map(parsed).collect(),
        _ => Err(format!("{setting}: give {MOST_SERVERS} at most")),
    }
}

fn folder() -> PathBuf {
    Store::FOLDER.into()
}

fn deadline_ms() -> u64 {
    rejoin_store::Mailbox::DEADLINE.as_millis() as u64
}

fn parsed<'de, D: Deserializer<'de>, T>(from: D) -> Result<T, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Seconds>, D::Error> {
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
            settings.check_place().map(|()| settings.valkey().expect("no files").place.to_string())
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
