//! A connection to one Valkey or Redis server, or to a cluster of them, that reconnects by itself.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisFuture, TlsCertificates, Value,
};
use zeroize::Zeroizing;

use crate::Error;

/// The addresses of Valkey, and the settings of the connection.
#[derive(Clone)]
pub struct Servers {
    /// The host and port of each server, or of some nodes of a cluster.
    pub addresses: Vec<(String, u16)>,
    /// True if they are one Valkey cluster. Otherwise only the first is used.
    pub clustered: bool,
    /// The ACL user, if it is not the default one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Zeroizing<String>>,
    /// The TLS files. Without them the connection is not encrypted.
    pub tls: Option<Tls>,
}

/// The contents of [`TlsFiles`](crate::TlsFiles), in PEM.
#[derive(Clone)]
pub struct Tls {
    pub(crate) ca: Option<Vec<u8>>,
    /// A certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

/// A connection. Clones share it; commands of all are pipelined.
#[derive(Clone)]
pub struct Link(Kind);

#[derive(Clone)]
enum Kind {
    One(ConnectionManager),
    Many(ClusterConnection),
}

/// The time limit for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// The time limit for an answer, if the caller has no deadline of its own.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two attempts, with jitter.
const RECONNECT_AFTER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// The attempts for one command.
const RECONNECT_TIMES: usize = 1;

impl Link {
    /// Connects. Reads no files except the system's authorities, neither now nor when it reconnects.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn connect(servers: &Servers) -> Result<Self, Error> {
        let certificates = servers.tls.as_ref().map(Tls::certificates);
        let addresses = servers.addresses.iter();
        let nodes = addresses.map(|(host, port)| servers.node(host, *port));
        let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        if servers.clustered {
            let mut builder = ClusterClientBuilder::new(nodes)
                .connection_timeout(CONNECT_WITHIN)
                .response_timeout(ANSWER_WITHIN);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates);
            }
            let connection = builder.build()?.get_async_connection().await?;
            return Ok(Self(Kind::Many(connection)));
        }
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(nodes.swap_remove(0), certificates)?,
            None => Client::open(nodes.swap_remove(0))?,
        };
        let [least, most] = RECONNECT_AFTER;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_number_of_retries(RECONNECT_TIMES)
            .set_min_delay(least)
            .set_max_delay(most);
        let manager = ConnectionManager::new_with_config(client, config).await?;
        Ok(Self(Kind::One(manager)))
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match &mut self.0 {
            Kind::One(one) => one.req_packed_command(cmd),
            Kind::Many(many) => many.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match &mut self.0 {
            Kind::One(one) => one.req_packed_commands(pipeline, offset, count),
            Kind::Many(many) => many.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match &self.0 {
            Kind::One(one) => one.get_db(),
            Kind::Many(many) => many.get_db(),
        }
    }
}

impl Servers {
    fn node(&self, host: &str, port: u16) -> Result<ConnectionInfo, Error> {
        let host = host.to_owned();
        let address = match &self.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        // The client's name and version are of no use to Valkey, and setting them needs another permission.
        let mut who = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.user {
            who = who.set_username(user);
        }
        if let Some(password) = &self.password {
            who = who.set_password(password.as_str());
        }
        Ok(address.into_connection_info()?.set_redis_settings(who))
    }
}

impl Tls {
    fn certificates(&self) -> TlsCertificates {
        // The client uses the process's default provider. One that is already installed stays.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client_tls = self.identity.as_ref().map(|(certificate, key)| ClientTlsConfig {
            client_cert: certificate.clone(),
            client_key: key.to_vec(),
        });
        TlsCertificates { client_tls, root_cert: self.ca.clone() }
    }
}

/// Omits the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Omits the password.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("addresses", &self.addresses)
            .field("clustered", &self.clustered)
            .field("user", &self.user)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::One(_) => "Link(one)",
            Kind::Many(_) => "Link(cluster)",
        })
    }
}
