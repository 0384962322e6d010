//! The hosts of all services: TLS servers, each at an address of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ProducesTickets;
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::population::{Place, Population};
use super::{Visit, failed, other};
use crate::Error;

/// All hosts listen on one port: sessions are known by a service's name and port.
const PORTS_TRIED: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// Servers that stop when dropped.
pub(super) struct Hosts {
    port: u16,
    authority: String,
    counts: Arc<Counts>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    full: AtomicU64,
    resumed: AtomicU64,
    bytes: AtomicU64,
}

/// The counts of all hosts together.
pub(super) struct Counted {
    pub(super) full: u64,
    pub(super) resumed: u64,
    pub(super) bytes: u64,
}

impl Hosts {
    /// With ticket keys of their own, or those of a service shared.
    pub(super) async fn start(population: &Population, shared_keys: bool) -> Result<Self, Error> {
        let authority = authority().map_err(|error| other("cannot make a certificate", error))?;
        let (port, listeners) = listen(population).await?;
        let counts = Arc::<Counts>::default();
        let mut serving = JoinSet::new();
        let mut service: Option<(u8, Service)> = None;
        for (place, listener) in listeners {
            if service.as_ref().is_none_or(|(number, _)| *number != place.service) {
                service = Some((place.service, Service::new(place.service, &authority)?));
            }
            if let Some((_, service)) = &service {
                let acceptor = TlsAcceptor::from(service.config(shared_keys)?);
                serving.spawn(serve(listener, acceptor, Arc::clone(&counts)));
            }
        }
        Ok(Self { port, authority: authority.pem(), counts, _serving: serving })
    }

    /// In PEM.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn visit(&self, place: Place) -> Visit {
        let host = SocketAddr::new(address(place), self.port);
        Visit { name: name(place.service), host }
    }

    pub(super) fn stop(self) -> Counted {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { full, resumed, bytes } = &*self.counts;
        Counted { full: value(full), resumed: value(resumed), bytes: value(bytes) }
    }
}

fn name(service: u8) -> String {
    format!("service-{service}.test")
}

fn address(Place { service, host }: Place) -> IpAddr {
    Ipv4Addr::new(127, 1, service, host + 1).into()
}

/// A port that is free at all addresses.
async fn listen(population: &Population) -> Result<(u16, Vec<(Place, TcpListener)>), Error> {
    let mut last = io::Error::other("no port was tried");
    for _ in 0..PORTS_TRIED {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let port = free.and_then(|free| free.local_addr()).map_err(failed("cannot listen"))?.port();
        match listen_on(population, port).await {
            Ok(listeners) => return Ok((port, listeners)),
            Err(error) => last = error,
        }
    }
    Err(failed("cannot listen")(last))
}

async fn listen_on(population: &Population, port: u16) -> io::Result<Vec<(Place, TcpListener)>> {
    let mut listeners = Vec::new();
    for place in population.places() {
        listeners.push((place, TcpListener::bind((address(place), port)).await?));
    }
    Ok(listeners)
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Result<Authority, rcgen::Error> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
}

/// A certificate of its own: no session of another service is valid for it.
struct Service {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    keys: Arc<dyn ProducesTickets>,
}

impl Service {
    fn new(service: u8, authority: &Authority) -> Result<Self, Error> {
        let made = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let parameters = CertificateParams::new(vec![name(service)])?;
            Ok((parameters.signed_by(&key, authority)?, key))
        };
        let (certificate, key) =
            made().map_err(|error| other("cannot make a certificate", error))?;
        let key = key.serialize_der().try_into();
        let key = key.map_err(|error: &str| other("cannot make a key", error))?;
        Ok(Self { certificate: certificate.der().clone(), key, keys: Ticketer::new()? })
    }

    fn config(&self, shared_keys: bool) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.ticketer = if shared_keys { Arc::clone(&self.keys) } else { Ticketer::new()? };
        Ok(Arc::new(config))
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, counts: Arc<Counts>) {
    // One app runs at a time, and makes one connection at a time.
    while let Ok((tcp, _)) = listener.accept().await {
        let answered = answer(tcp, &acceptor, &counts);
        // The client sees a connection that ends.
        let _ = timeout(PATIENCE, answered).await;
    }
}

async fn answer(tcp: TcpStream, acceptor: &TlsAcceptor, counts: &Counts) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut tls = acceptor.accept(Weighed { tcp, bytes: &counts.bytes }).await?;
    let kind = match tls.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => &counts.resumed,
        _ => &counts.full,
    };
    kind.fetch_add(1, Ordering::Relaxed);
    let mut request = [0; 256];
    let _ = tls.read(&mut request).await?;
    tls.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n").await?;
    tls.shutdown().await
}

/// Counts what passes.
struct Weighed<'a> {
    tcp: TcpStream,
    bytes: &'a AtomicU64,
}

impl AsyncRead for Weighed<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(context, buffer);
        self.bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Weighed<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(context, buffer);
        if let Poll::Ready(Ok(bytes)) = written {
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
