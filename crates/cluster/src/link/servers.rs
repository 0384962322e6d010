//! The addresses of Valkey, and the settings of the connections.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates,
};
use zeroize::Zeroizing;

use super::asker::lost;
use crate::Error;

/// The place where Valkey is, and the settings of the connections.
#[derive(Debug, Clone)]
pub struct Servers {
    /// The place.
    pub place: Place,
    /// The user at Valkey.
    pub login: Login,
    /// The TLS files. Without them connections are not encrypted.
    pub tls: Option<Tls>,
}

/// The place where Valkey is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A server, or a primary and its replicas in any order. Whichever is the primary is used.
    Primary(Vec<NodeAddress>),
    /// Some nodes of a Valkey cluster.
    Cluster(Vec<NodeAddress>),
    /// Sentinels, which know the primary.
    Sentinels(Sentinels),
}

/// Sentinels, and the primary that they watch.
#[derive(Debug, Clone)]
pub struct Sentinels {
    /// All of them: what a majority says counts.
    pub addresses: Vec<NodeAddress>,
    /// The name under which they watch the primary.
    pub master: String,
    /// The user at the sentinels.
    pub login: Login,
    /// The TLS files for them. Without them connections to sentinels are not encrypted.
    pub tls: Option<Tls>,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    host: Box<str>,
    port: u16,
}

/// A user of Valkey. Clones share the password, which may change in its file.
#[derive(Clone, Default)]
pub struct Login {
    user: Option<String>,
    password: Option<Arc<Password>>,
}

struct Password {
    file: Option<PathBuf>,
    current: Mutex<Current>,
}

/// A password, and how often it has changed.
struct Current {
    text: Zeroizing<String>,
    changes: u64,
}

/// The contents of [`TlsFiles`](crate::TlsFiles), in PEM.
#[derive(Clone)]
pub struct Tls {
    pub(crate) ca: Option<Vec<u8>>,
    /// A certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

impl Servers {
    /// The servers of this place, without a user and without TLS.
    pub fn new(place: Place) -> Self {
        Self { place, login: Login::default(), tls: None }
    }
}

impl NodeAddress {
    /// The longest name of a host, in bytes (RFC 1035, section 2.3.4).
    const LONGEST_HOST: usize = 255;

    /// Returns the address. `None` if the host's name is empty, too long, or not of visible ASCII.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let is_name = (1..=Self::LONGEST_HOST).contains(&host.len())
            && host.bytes().all(|byte| byte.is_ascii_graphic());
        is_name.then(|| Self { host: host.into(), port })
    }

    /// Returns a client of the server with this address.
    pub(super) fn client(&self, login: &Login, tls: Option<&Tls>) -> RedisResult<Client> {
        let node = self.node(login, tls.is_some())?;
        match tls {
            Some(tls) => Client::build_with_tls(node, tls.certificates()),
            None => Client::open(node),
        }
    }

    pub(super) fn node(&self, login: &Login, is_tls: bool) -> RedisResult<ConnectionInfo> {
        let (host, port) = (self.host.to_string(), self.port);
        let address = match is_tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        Ok(address.into_connection_info()?.set_redis_settings(login.redis()))
    }
}

/// Parses `host:port`; a host with colons may have brackets.
impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Self::new(host, port.parse().ok()?)
        });
        parsed.ok_or_else(|| format!("{text:?} is not host:port"))
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary(addresses) | Self::Cluster(addresses) => f.write_str(&listed(addresses)),
            Self::Sentinels(Sentinels { addresses, master, .. }) => {
                write!(f, "{master} of the sentinels {}", listed(addresses))
            }
        }
    }
}

fn listed(addresses: &[NodeAddress]) -> String {
    addresses.iter().map(NodeAddress::to_string).collect::<Vec<_>>().join(", ")
}

/// The users and TLS files do not count.
impl PartialEq for Sentinels {
    fn eq(&self, other: &Self) -> bool {
        self.addresses == other.addresses && self.master == other.master
    }
}

impl Eq for Sentinels {}

impl Login {
    /// The longest password file, in bytes.
    const LONGEST: u64 = 64 << 10;

    /// A user, or else the default one, and the password.
    pub fn new(user: Option<String>, password: Option<Zeroizing<String>>) -> Self {
        Self { user, password: password.map(|text| Password::new(None, text)) }
    }

    /// A user whose password is in a file. It is read now, and again when Valkey refuses the password.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn with_file(user: Option<String>, file: &Path) -> Result<Self, Error> {
        let text = read(file)?;
        Ok(Self { user, password: Some(Password::new(Some(file.into()), text)) })
    }

    /// Returns how often the password has changed.
    pub(super) fn changes(&self) -> u64 {
        self.password.as_ref().map_or(0, |password| password.current().changes)
    }

    /// Looks for another password than that of `changes`, which this server has refused.
    ///
    /// # Errors
    /// There is none, perhaps because this process has given up root and cannot read the file.
    pub(super) fn renew(&self, changes: u64, server: &impl fmt::Display) -> RedisResult<()> {
        let refused = format!("{server} refuses {self} and the password");
        match self.password.as_ref().map_or(Ok(false), |password| password.renew(changes)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(lost(format!("{refused}: check user and password_file"))),
            Err(error) => Err(lost(format!(
                "{refused}, and a newer one is not to be had: {error}; let the user of this process read the file, or \
                 restart this process"
            ))),
        }
    }

    pub(super) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    fn redis(&self) -> RedisConnectionInfo {
        // The client's name and version are of no use to Valkey, and setting them needs another permission.
        let mut who = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.user {
            who = who.set_username(user);
        }
        if let Some(password) = &self.password {
            who = who.set_password(password.current().text.as_str());
        }
        who
    }
}

impl Password {
    fn new(file: Option<PathBuf>, text: Zeroizing<String>) -> Arc<Self> {
        Arc::new(Self { file, current: Mutex::new(Current { text, changes: 0 }) })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there is another password than that of `changes`.
    fn renew(&self, changes: u64) -> Result<bool, Error> {
        let known = self.current().changes;
        let file = self.file.as_ref().filter(|_| known == changes);
        if let Some(file) = file {
            let text = read(file)?;
            let mut current = self.current();
            if *text != *current.text {
                *current = Current { text, changes: changes + 1 };
            }
        }
        Ok(self.current().changes != changes)
    }
}

fn read(file: &Path) -> Result<Zeroizing<String>, Error> {
    let unreadable = |cause| Error::Unreadable { path: file.into(), cause };
    let mut text = Zeroizing::new(String::new());
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(Login::LONGEST).read_to_string(&mut text).map_err(unreadable)?;
    Ok(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned()))
}

impl Tls {
    pub(super) fn certificates(&self) -> TlsCertificates {
        // The client uses the process's default provider. One that is already installed stays.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client_tls = self.identity.as_ref().map(|(certificate, key)| ClientTlsConfig {
            client_cert: certificate.clone(),
            client_key: key.to_vec(),
        });
        TlsCertificates { client_tls, root_cert: self.ca.clone() }
    }
}

/// Names the user.
impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "user {user}"),
            None => f.write_str("the default user"),
        }
    }
}

/// Omits the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Omits the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, shown) in [
            ("10.0.0.5:6379", "10.0.0.5:6379"),
            ("[::1]:6379", "[::1]:6379"),
            ("::1:6379", "[::1]:6379"),
            ("valkey.example:1", "valkey.example:1"),
        ] {
            assert_eq!(text.parse::<NodeAddress>().expect(text).to_string(), shown);
        }
        for text in ["", "host", ":1", "host:", "host:x", "host:65536", "a b:1", "ä:1"] {
            assert!(text.parse::<NodeAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_read_again() {
        let folder = rejoin_testkit::folder::Folder::new();
        let file = folder.write("password", "one\n");
        let login = Login::with_file(None, &file).expect("readable");
        let password = |login: &Login| format!("{:?}", login.redis().password());
        let renewed = || login.renew(login.changes(), &"valkey").map_err(|error| error.to_string());
        assert!(password(&login).contains("one"));
        assert!(renewed().expect_err("the same").contains("valkey refuses the default user"));
        folder.write("password", "two\n");
        let (shared, before) = (login.clone(), login.changes());
        renewed().expect("another");
        shared.renew(before, &"another server").expect("it is known already");
        assert!(password(&shared).contains("two"));
        assert!(!format!("{login:?} {login}").contains("two"));
        std::fs::remove_file(file).expect("there");
        assert!(renewed().expect_err("no file").contains("restart this process"));
        assert!(password(&login).contains("two"), "the last one stays");
    }
}
