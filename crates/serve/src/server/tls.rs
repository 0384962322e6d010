//! TLS connections of either library.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslRef, SslSessionCacheMode,
};
use rejoin_cache::{Cache, Capacity, Hints, Policy, Prediction};
use rejoin_openssl::{InternalCache, TicketHistory, TicketKeys};
use rejoin_rustls::tokio::Acceptor as RustlsAcceptor;
use rejoin_store::{SharedKeys, Store};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;

use super::{Resumption, Settings, Stack, TicketKeysOf, Versions};
use crate::{Error, Identity};

pub(super) type OpenSslStream = tokio_openssl::SslStream<TcpStream>;
pub(super) type RustlsStream = rejoin_rustls::tokio::TlsStream<TcpStream>;

/// A connection after its handshake.
pub(super) enum Accepted {
    OpenSsl(OpenSslStream),
    Rustls(Box<RustlsStream>),
    Plain(TcpStream),
}

/// A configured TLS library.
#[derive(Debug)]
pub(super) enum Acceptor {
    OpenSsl { context: Context, sessions: Option<Arc<rejoin_openssl::ServerSessions>> },
    Rustls { acceptor: RustlsAcceptor, cache: Option<Arc<Cache>> },
    Plain,
}

/// An `SSL_CTX`, whose `Debug` shows only its name.
pub(super) struct Context(SslContext);

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SslContext")
    }
}

/// OpenSSL's default lifetime of a session, used for rustls too: two hours.
const LIFETIME_MS: u64 = 7_200_000;
/// Room of a cache that is made for its ticket keys alone.
const KEYS_ONLY_SESSIONS: u64 = 1_000;
/// A session-id context is required wherever sessions are resumed.
const ID_CONTEXT: &[u8] = b"rejoin serve";

impl Acceptor {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let possible = settings.stack != Stack::None && settings.resumption == Resumption::Tickets;
        if settings.ticket_keys.is_some() && !possible {
            return Err(Error::Settings(
                "--ticket-keys is for tickets: give --resumption tickets, and no --stack none",
            ));
        }
        match settings.stack {
            Stack::OpenSsl => Self::openssl(settings),
            Stack::Rustls => Self::rustls(settings),
            Stack::None => Ok(Self::Plain),
        }
    }

    fn openssl(settings: &Settings) -> Result<Self, Error> {
        let mut context = openssl_context(settings)?;
        let mut sessions = None;
        match settings.resumption {
            Resumption::Predictive | Resumption::Lru => {
                let cache = cache(settings, rejoin_openssl::now_ms())?;
                let ours =
                    rejoin_openssl::ServerSessions::new(cache, random_key()?, hints(settings));
                ours.attach(&mut context, ID_CONTEXT)?;
                sessions = Some(ours);
            }
            Resumption::OpenSsl => {
                let Capacity::Sessions(capacity) = settings.cache.capacity else {
                    return Err(Error::Settings(
                        "OpenSSL's internal cache is limited in sessions: give --capacity-sessions",
                    ));
                };
                // For OpenSSL zero means no limit.
                let size = i32::try_from(capacity).ok().filter(|size| *size > 0);
                let size = size.ok_or(Error::Settings(
                    "OpenSSL's internal cache holds 1 to 2147483647 sessions: give --capacity-sessions",
                ))?;
                context.set_session_id_context(ID_CONTEXT)?;
                context.set_session_cache_mode(SslSessionCacheMode::SERVER);
                context.set_session_cache_size(size);
                context.set_options(SslOptions::NO_TICKET);
            }
            Resumption::Tickets => {
                context.set_session_id_context(ID_CONTEXT)?;
                context.set_session_cache_mode(SslSessionCacheMode::OFF);
                if let Some(of) = &settings.ticket_keys {
                    let keys = TicketKeys::following(Box::new(shared_keys(of)?));
                    keys.attach(&mut context, ID_CONTEXT, TicketHistory::NotCarried)?;
                }
            }
            Resumption::None => {
                context.set_session_cache_mode(SslSessionCacheMode::OFF);
                context.set_options(SslOptions::NO_TICKET);
                context.set_num_tickets(0)?;
            }
        }
        Ok(Self::OpenSsl { context: Context(context.build()), sessions })
    }

    fn rustls(settings: &Settings) -> Result<Self, Error> {
        let mut config = rustls_config(settings)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let mut kept = None;
        let acceptor = match (settings.resumption, &settings.ticket_keys) {
            (Resumption::Predictive | Resumption::Lru, _) => {
                let cache = cache(settings, rejoin_rustls::now_ms())?;
                kept = Some(Arc::clone(&cache));
                let sessions =
                    rejoin_rustls::ServerSessions::new(cache, LIFETIME_MS, hints(settings));
                RustlsAcceptor::with_sessions(config, &sessions)
            }
            (Resumption::OpenSsl, _) => {
                return Err(Error::Settings(
                    "--resumption openssl uses OpenSSL's internal cache: give --stack openssl",
                ));
            }
            (Resumption::Tickets, Some(of)) => {
                let keys = rejoin_rustls::TicketKeys::following(Arc::new(shared_keys(of)?));
                let context = rejoin_rustls::Context::new(ID_CONTEXT)
                    .unwrap_or_else(|_| unreachable!("it is not empty"));
                RustlsAcceptor::with_tickets(config, &keys.ticketer(context))
            }
            (Resumption::Tickets, None) => {
                config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
                Arc::new(config).into()
            }
            (Resumption::None, _) => {
                config.send_tls13_tickets = 0;
                Arc::new(config).into()
            }
        };
        Ok(Self::Rustls { acceptor, cache: kept })
    }

    pub(super) async fn accept(&self, tcp: TcpStream) -> io::Result<Accepted> {
        match self {
            Self::OpenSsl { context, .. } => {
                let mut stream = OpenSslStream::new(Ssl::new(&context.0)?, tcp)?;
                Pin::new(&mut stream).accept().await.map_err(io::Error::other)?;
                Ok(Accepted::OpenSsl(stream))
            }
            Self::Rustls { acceptor, .. } => {
                Ok(Accepted::Rustls(Box::new(acceptor.accept(tcp).await?)))
            }
            Self::Plain => Ok(Accepted::Plain(tcp)),
        }
    }

    /// Passes the hint of the first request to the cache, or that there was none.
    pub(super) fn hint_openssl(&self, ssl: &SslRef, interval_ms: Option<u64>) {
        match interval_ms {
            Some(interval_ms) => rejoin_openssl::hint(ssl, interval_ms),
            None => rejoin_openssl::no_hint(ssl),
        }
    }

    /// Does the same as [`Self::hint_openssl`] for rustls.
    pub(super) fn hint_rustls(&self, stream: &RustlsStream, interval_ms: Option<u64>) {
        match interval_ms {
            Some(interval_ms) => stream.connection().hint(interval_ms),
            None => stream.connection().no_hint(),
        }
    }

    /// Returns Rejoin's cache, if it is used.
    pub(super) fn cache(&self) -> Option<&Cache> {
        match self {
            Self::OpenSsl { sessions, .. } => sessions.as_ref().map(|sessions| &**sessions.store()),
            Self::Rustls { cache, .. } => cache.as_deref(),
            Self::Plain => None,
        }
    }

    /// Returns the bytes of a session on the server, or zero without a cache. Empties OpenSSL's internal
    /// cache.
    pub(super) fn bytes_per_session(&self) -> f64 {
        if let Some(cache) = self.cache() {
            return cache.capacity_bytes() as f64 / cache.capacity_sessions() as f64;
        }
        let Self::OpenSsl { context, .. } = self else { return 0.0 };
        let InternalCache { sessions, bytes } = InternalCache::empty(&context.0);
        if sessions == 0 { 0.0 } else { bytes as f64 / sessions as f64 }
    }
}

fn openssl_context(settings: &Settings) -> Result<SslContextBuilder, Error> {
    let mut context = SslContextBuilder::new(SslMethod::tls_server())?;
    settings.versions.limit(&mut context)?;
    context.set_options(SslOptions::NO_RENEGOTIATION);
    identity(settings)?.install(&mut context)?;
    Ok(context)
}

fn identity(settings: &Settings) -> Result<&Identity, Error> {
    let missing =
        Error::Settings("a TLS server needs a certificate and a key: give --certificate and --key");
    settings.identity.as_ref().ok_or(missing)
}

fn rustls_config(settings: &Settings) -> Result<ServerConfig, Error> {
    let versions: &[&SupportedProtocolVersion] = match settings.versions {
        Versions::Tls12 => &[&rustls::version::TLS12],
        Versions::Tls13 => &[&rustls::version::TLS13],
        Versions::Both => rustls::ALL_VERSIONS,
    };
    let (chain, key) = identity(settings)?.for_rustls()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?)
}

/// Opens the ticket keys of a shared cache. A cache that is made for them has room for few sessions.
fn shared_keys(of: &TicketKeysOf) -> Result<SharedKeys, Error> {
    let settings = rejoin_cache::Settings::new(Capacity::Sessions(KEYS_ONLY_SESSIONS));
    let store = Arc::new(Store::open(&of.folder, &of.name, Some(&settings))?);
    // A clock before 1970 counts as 1970.
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Without a file there is nothing to complain of.
    Ok(SharedKeys::open(store, None, None, now_s, |_| {})?)
}

fn cache(settings: &Settings, now_ms: u64) -> Result<Arc<Cache>, Error> {
    let policy = match settings.resumption {
        Resumption::Lru => Policy::Lru,
        _ => Policy::Predictive,
    };
    let cache = rejoin_cache::Settings { policy, ..settings.cache.clone() };
    let cache = Cache::new(&cache, random_key()?, now_ms)?;
    let system = rustix::system::sysinfo();
    let memory_bytes = system.totalram * u64::from(system.mem_unit);
    let bytes = cache.capacity_bytes();
    if bytes > memory_bytes {
        return Err(Error::LargerThanMemory { bytes, memory_bytes });
    }
    Ok(Arc::new(cache))
}

/// Returns `Expected` only if the cache uses hints.
fn hints(settings: &Settings) -> Hints {
    let listens = settings.cache.prediction != Prediction::Learned;
    let predicts = settings.resumption == Resumption::Predictive;
    if listens && predicts { Hints::Expected } else { Hints::Never }
}

fn random_key() -> Result<[u8; 16], Error> {
    let mut key = [0; 16];
    openssl::rand::rand_bytes(&mut key)?;
    Ok(key)
}
