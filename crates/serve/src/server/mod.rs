//! The reference server: HTTPS/1.1 on OpenSSL or rustls, with every way of resuming.

mod metrics;
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslVersion};
use rejoin_cache::Settings as CacheSettings;
use rejoin_store::CacheName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::{Answer, Error, Identity, StatusPort, http};
use metrics::Counts;
pub use metrics::Summary;
use tls::{Accepted, Acceptor};

/// The TLS library of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stack {
    /// The system's OpenSSL.
    #[default]
    OpenSsl,
    /// rustls with aws-lc-rs.
    Rustls,
    /// No TLS but plain HTTP, for comparison.
    None,
}

/// The TLS versions of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Versions {
    /// TLS 1.2 only.
    Tls12,
    /// TLS 1.3 only.
    Tls13,
    /// Both, the newer preferred.
    #[default]
    Both,
}

impl Versions {
    /// Returns each version by itself.
    pub fn each(self) -> &'static [Self] {
        match self {
            Self::Tls12 => &[Self::Tls12],
            Self::Tls13 => &[Self::Tls13],
            Self::Both => &[Self::Tls12, Self::Tls13],
        }
    }

    /// Allows these versions alone in a context.
    ///
    /// # Errors
    /// OpenSSL's, if it was built without one of them.
    pub fn limit(self, context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        let (oldest, newest) = match self {
            Self::Tls12 => (SslVersion::TLS1_2, SslVersion::TLS1_2),
            Self::Tls13 => (SslVersion::TLS1_3, SslVersion::TLS1_3),
            Self::Both => (SslVersion::TLS1_2, SslVersion::TLS1_3),
        };
        context.set_min_proto_version(Some(oldest))?;
        context.set_max_proto_version(Some(newest))
    }

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
            Self::Both => "both",
        }
    }
}

/// The way of resuming sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resumption {
    /// Rejoin's cache, evicting by predicted return time.
    #[default]
    Predictive,
    /// Rejoin's cache, evicting the least recently used session.
    Lru,
    /// OpenSSL's internal cache.
    OpenSsl,
    /// Stateless tickets.
    Tickets,
    /// No resumption.
    None,
}

impl Resumption {
    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Predictive => "predictive",
            Self::Lru => "lru",
            Self::OpenSsl => "openssl",
            Self::Tickets => "tickets",
            Self::None => "none",
        }
    }
}

/// A shared cache, with whose ticket keys a server seals its tickets. They rotate by themselves, and all servers that
/// name the cache have them, also those that are started later.
#[derive(Debug, Clone)]
pub struct TicketKeysOf {
    /// The folder of the cache.
    pub folder: PathBuf,
    /// The cache, which is made if there is none.
    pub name: CacheName,
}

/// A server's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to serve on.
    pub listen: SocketAddr,
    /// The address to serve `/metrics` on, over plain HTTP.
    pub metrics: Option<SocketAddr>,
    /// The TLS library.
    pub stack: Stack,
    /// The TLS versions.
    pub versions: Versions,
    /// The way of resuming.
    pub resumption: Resumption,
    /// The shared cache whose ticket keys are used, if the way of resuming is [`Resumption::Tickets`]. Otherwise a server
    /// with tickets makes a key of its own.
    pub ticket_keys: Option<TicketKeysOf>,
    /// The settings of Rejoin's cache, for the ways of resuming that use it.
    pub cache: CacheSettings,
    /// The certificate and key, unless the stack is [`Stack::None`].
    pub identity: Option<Identity>,
    /// Bytes of a whole response.
    pub response_bytes: usize,
    /// Bytes of a response's body, which override `response_bytes`.
    pub body_bytes: Option<usize>,
    /// The longest time for a handshake, a request or a response.
    pub patience: Duration,
}

/// The paper's mean response, Table II.
pub const RESPONSE_BYTES: usize = 1_405;
/// The largest number of open connections; more wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;
/// The default patience, which suits a server that nothing slows down.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that open connections get when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Enables the summary to report the memory of OpenSSL's internal cache. Must be called before any
/// other use of OpenSSL; returns true if it was in time.
pub fn weigh_internal_cache() -> bool {
    rejoin_openssl::count_memory()
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    metrics: Option<StatusPort>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    acceptor: Acceptor,
    counts: Counts,
    began: Instant,
    responses: Responses,
    patience: Duration,
}

/// The responses, which are made once, so that requests cost no more than the server itself.
#[derive(Debug)]
struct Responses {
    keep_alive: Vec<u8>,
    close: Vec<u8>,
}

impl Responses {
    fn new(settings: &Settings) -> Self {
        let response = |keep_alive| match settings.body_bytes {
            Some(bytes) => http::response(bytes, keep_alive),
            None => http::padded_response(settings.response_bytes, keep_alive),
        };
        Self { keep_alive: response(true), close: response(false) }
    }

    fn to(&self, request: &http::Request) -> &[u8] {
        if request.keep_alive { &self.keep_alive } else { &self.close }
    }
}

impl Server {
    /// Listens, and makes the cache.
    ///
    /// # Errors
    /// An address in use, settings that exclude each other, a cache that cannot be made.
    pub async fn bind(settings: &Settings) -> Result<Self, Error> {
        let acceptor = Acceptor::new(settings)?;
        let listener = listen(settings.listen).await?;
        let metrics = match settings.metrics {
            Some(address) => Some(StatusPort::listen(address).await?),
            None => None,
        };
        let responses = Responses::new(settings);
        let (counts, began, patience) = (Counts::default(), Instant::now(), settings.patience);
        let shared = Shared { acceptor, counts, began, responses, patience };
        Ok(Self { listener, metrics, shared: Arc::new(shared) })
    }

    /// Where it listens: the port that the system chose, if 0 was asked for.
    ///
    /// # Errors
    /// The operating system's.
    pub fn addresses(&self) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let metrics = self.metrics.as_ref().map(StatusPort::address).transpose()?;
        Ok((self.listener.local_addr()?, metrics))
    }

    /// Serves until `stop`, then lets open connections finish for two seconds.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Summary {
        let Self { listener, metrics, shared } = self;
        let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let accepting = accept_all(&listener, &shared, &connections);
        let answering = answer_all(metrics.as_ref(), &shared);
        tokio::select! {
            never = accepting => never,
            never = answering => never,
            () = stop => {}
        }
        drop(listener);
        let all_closed = connections.acquire_many(MOST_CONNECTIONS as u32);
        // Connections that are still open are cut when the process ends.
        let _ = timeout(DRAIN, all_closed).await;
        Summary::of(&shared.acceptor, &shared.counts)
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

async fn accept_all(listener: &TcpListener, shared: &Arc<Shared>, connections: &Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((tcp, _)) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    serve(tcp, &shared).await;
                    drop(place);
                });
            }
            // No free descriptors, or the client has gone. Both are temporary.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(tcp: TcpStream, shared: &Shared) {
    // Without TCP_NODELAY, small records wait for the client's acknowledgement.
    let _ = tcp.set_nodelay(true);
    let Shared { acceptor, counts, patience, .. } = shared;
    let open = counts.open();
    match timeout(*patience, acceptor.accept(tcp)).await {
        Ok(Ok(Accepted::OpenSsl(mut stream))) => {
            counts.record_handshake(stream.ssl().session_reused());
            let hinted = |stream: &tls::OpenSslStream, ms| acceptor.hint_openssl(stream.ssl(), ms);
            converse(&mut stream, hinted, shared).await;
        }
        Ok(Ok(Accepted::Rustls(mut stream))) => {
            let kind = stream.get_ref().1.handshake_kind();
            counts.record_handshake(kind == Some(rustls::HandshakeKind::Resumed));
            let hinted = |stream: &tls::RustlsStream, ms| acceptor.hint_rustls(stream, ms);
            converse(&mut *stream, hinted, shared).await;
        }
        Ok(Ok(Accepted::Plain(mut stream))) => {
            converse(&mut stream, |_, _| {}, shared).await;
        }
        Ok(Err(_)) | Err(_) => counts.record_failure(),
    }
    drop(open);
}

/// Answers requests until the client closes. Only the first can carry a hint.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    hinted: impl Fn(&S, Option<u64>),
    shared: &Shared,
) {
    let patience = shared.patience;
    let mut rest = Vec::new();
    let mut first = true;
    while let Ok(Ok(Some(request))) = timeout(patience, http::read_request(stream, &mut rest)).await
    {
        shared.counts.record_request();
        if std::mem::take(&mut first) {
            hinted(stream, request.next_connect_ms);
        }
        let response = shared.responses.to(&request);
        if !matches!(timeout(patience, stream.write_all(response)).await, Ok(Ok(()))) {
            return;
        }
        if !request.keep_alive {
            break;
        }
    }
    if first {
        hinted(stream, None);
    }
    let _ = timeout(patience, stream.shutdown()).await;
}

async fn answer_all(port: Option<&StatusPort>, shared: &Arc<Shared>) {
    let Some(port) = port else {
        return std::future::pending().await;
    };
    let shared = Arc::clone(shared);
    let pages = move |path: &str| match path {
        "/metrics" => {
            let Shared { acceptor, counts, began, .. } = &*shared;
            Answer::metrics(metrics::meters(acceptor, counts, *began))
        }
        _ => Answer::not_found("try /metrics\n"),
    };
    port.serve(pages).await;
}
