//! The settings of the connections to one Valkey.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;
use crate::link::{Login, NodeAddress, Place, Sentinels, Servers, Tls};

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

/// The place of one Valkey, and the files for it, as settings name them.
pub(super) struct Access<'a> {
    pub(super) servers: &'a [String],
    pub(super) clustered: bool,
    pub(super) sentinel: Option<&'a SentinelSettings>,
    pub(super) user: Option<&'a String>,
    pub(super) password_file: Option<&'a Path>,
    pub(super) tls: Option<&'a TlsFiles>,
}

impl Access<'_> {
    /// Checks all that can be checked without reading a file.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.sentinel {
            None => drop(self.addresses()?),
            Some(_) if self.clustered || !self.servers.is_empty() => {
                return Err("sentinel: give neither servers nor clustered with it".to_owned());
            }
            Some(sentinel) => sentinel.check()?,
        }
        let of_sentinels = self.sentinel.and_then(|sentinel| sentinel.tls.as_ref());
        let is_half = |tls: &TlsFiles| tls.certificate.is_some() != tls.key.is_some();
        if self.tls.into_iter().chain(of_sentinels).any(is_half) {
            return Err("tls: give both certificate and key, or neither".to_owned());
        }
        Ok(())
    }

    /// Reads the files of the password and of TLS.
    pub(super) fn read(&self) -> Result<Servers, Error> {
        let bad = |what| Error::BadSettings { path: PathBuf::new(), what };
        let tls = self.tls.map(TlsFiles::read).transpose()?;
        let place = match self.sentinel {
            Some(sentinel) => Place::Sentinels(sentinel.read(tls.clone())?),
            None if self.clustered => Place::Cluster(self.addresses().map_err(bad)?),
            None => Place::Primary(self.addresses().map_err(bad)?),
        };
        Ok(Servers { place, login: login(self.user, self.password_file)?, tls })
    }

    /// Returns the addresses of the servers.
    pub(super) fn addresses(&self) -> Result<Vec<NodeAddress>, String> {
        addresses("servers", self.servers)
    }
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

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|cause| Error::Unreadable { path: path.into(), cause })
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
