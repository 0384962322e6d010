//! A connector for the client of hyper-util (`client::legacy::Client`), and for all that is built on it.
//!
//! reqwest's own client cannot use it: `reqwest::ClientBuilder::connector_layer` wraps a connector, and its layers can
//! neither see where a connection goes nor return another than reqwest has made. But its requests and responses convert
//! to and from those of hyper's client: see `examples/reqwest.rs`.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::replace;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::hyper::Uri;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use crate::protocol::{Connect, DEADLINE_MS, ErrorKind, Malformed, Trust};
use crate::{Error, Manager, tokio};

type AnyError = Box<dyn StdError + Send + Sync>;

/// Connects through the manager, or else by another connector `D`, as without Rejoin: if no manager runs, if it is
/// busy or does not serve this program, and for all but `https`. Likewise if a request is larger than the manager takes;
/// and, unless [`Connector::asking`] sets a trust or an identity, if the manager does not take it for another reason, or
/// if a handshake takes longer than the usual deadline.
///
/// The manager verifies servers, by the system's authorities unless [`Connector::asking`] says otherwise. Where
/// `SSL_CERT_FILE` or `SSL_CERT_DIR` names other authorities, the other connector connects. The manager's errors of this
/// and of the server are final, because the other connector would fail, too.
///
/// The manager's description of a connection is among the extensions of each response:
/// `response.extensions().get::<rejoin_client::protocol::Connected>()`.
#[derive(Clone)]
pub struct Connector<D> {
    manager: Manager,
    ask: Arc<dyn Fn(&mut Connect) + Send + Sync>,
    direct: D,
}

impl<D> Connector<D> {
    /// Makes a connector. It asks servers for HTTP/1.1.
    pub fn new(manager: Manager, direct: D) -> Self {
        Self { manager, ask: Arc::new(|_| {}), direct }
    }

    /// Lets a function change each request to the manager: its trust settings, a client certificate, the label, or the
    /// protocols of ALPN. `direct` should do alike.
    #[must_use]
    pub fn asking(self, ask: impl Fn(&mut Connect) + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask), ..self }
    }

    /// Returns the request for a connection, or `None` if the manager has no use for it.
    fn wanted(&self, to: &Uri) -> Option<Wanted> {
        if to.scheme_str() != Some("https") {
            return None;
        }
        let host = to.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        let port = NonZeroU16::new(to.port_u16().unwrap_or(443))?;
        let mut connect = Connect { alpn: vec![HTTP_1.parse().ok()?], ..Connect::new(host, port) };
        (self.ask)(&mut connect);
        let is_usual = connect.trust == Trust::System && connect.identity.is_none();
        let is_others = connect.trust == Trust::System && environment_names_others();
        (!is_others).then_some(Wanted { connect, is_usual })
    }
}

/// A request for a connection.
struct Wanted {
    connect: Connect,
    /// True if the program sets neither trust nor identity. The other connector may not know what only
    /// [`Connector::asking`] says.
    is_usual: bool,
}

/// The places where systems keep the authorities that the manager trusts, too.
const SYSTEMS: [&str; 8] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
];

/// Returns true if the environment names authorities that the manager does not know. What they are for depends on the other connector:
/// rustls-native-certs trusts them alone, OpenSSL others, too, and webpki-roots none of them.
fn environment_names_others() -> bool {
    let resolved = |place: &Path| place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let is_systems = |place: PathBuf| {
        let place = resolved(&place);
        SYSTEMS.iter().any(|system| resolved(Path::new(system)) == place)
    };
    ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| {
        let named = std::env::var_os(name).filter(|value| !value.is_empty());
        named.is_some_and(|all| !std::env::split_paths(&all).all(is_systems))
    })
}

const HTTP_1: &str = "http/1.1";
const HTTP_2: &str = "h2";

impl<D> Service<Uri> for Connector<D>
where
    D: Service<Uri> + Clone + Send + 'static,
    D::Error: Into<AnyError>,
    D::Future: Send,
{
    type Response = Stream<D::Response>;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, AnyError>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        self.direct.poll_ready(task).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // The connector that was polled is the one that is ready.
        let next = self.direct.clone();
        let (mut direct, wanted) = (replace(&mut self.direct, next), self.wanted(&to));
        let manager = self.manager.clone();
        Box::pin(async move {
            if let Some(wanted) = wanted {
                match tokio::connect(&manager, &wanted.connect).await {
                    Ok(stream) => return Ok(Stream::Managed(Box::new(TokioIo::new(stream)))),
                    Err(error) if goes_directly(&error, &wanted) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            direct.call(to).await.map(Stream::Direct).map_err(Into::into)
        })
    }
}

fn goes_directly(error: &Error, wanted: &Wanted) -> bool {
    if wanted.connect.early_data.is_some() && error.early_data_may_have_left() {
        return false;
    }
    error.is_the_managers() || is_its_limit(error, wanted)
}

/// Returns true if the manager has a limit that the other connector does not have.
fn is_its_limit(error: &Error, Wanted { connect, is_usual }: &Wanted) -> bool {
    let kind = match error {
        Error::Malformed(Malformed::TooLarge { .. }) => ErrorKind::TooLarge,
        Error::Refused(problem) => problem.kind,
        _ => return false,
    };
    match kind {
        // Its trust or its identity is long, and the other connector does alike.
        ErrorKind::TooLarge => connect.early_data.is_none(),
        ErrorKind::BadRequest => *is_usual,
        ErrorKind::Timeout => {
            *is_usual && connect.early_data.is_none() && connect.deadline_ms == DEADLINE_MS
        }
        _ => false,
    }
}

impl<D: fmt::Debug> fmt::Debug for Connector<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manager, direct, .. } = self;
        f.debug_struct("Connector")
            .field("manager", manager)
            .field("direct", direct)
            .finish_non_exhaustive()
    }
}

/// A connection through the manager, or a direct one.
#[derive(Debug)]
pub enum Stream<D> {
    /// A connection that the manager has made.
    Managed(Box<TokioIo<tokio::Stream>>),
    /// A connection of the other connector.
    Direct(D),
}

impl<D: Connection> Connection for Stream<D> {
    fn connected(&self) -> Connected {
        match self {
            Self::Managed(stream) => {
                let session = stream.inner().session().clone();
                let is_http_2 = session.alpn.as_deref() == Some(HTTP_2);
                let connected = Connected::new().extra(session);
                if is_http_2 { connected.negotiated_h2() } else { connected }
            }
            Self::Direct(stream) => stream.connected(),
        }
    }
}

/// Leaves a call to the connection, whichever it is.
macro_rules! left_to {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Managed($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Stream::Direct($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
        }
    };
}

impl<D: Read + Unpin> Read for Stream<D> {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        left_to!(self, stream => stream.poll_read(task, buffer))
    }
}

impl<D: Write + Unpin> Write for Stream<D> {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        left_to!(self, stream => stream.poll_write(task, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        left_to!(self, stream => stream.poll_flush(task))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        left_to!(self, stream => stream.poll_shutdown(task))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Managed(stream) => stream.is_write_vectored(),
            Self::Direct(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        left_to!(self, stream => stream.poll_write_vectored(task, parts))
    }
}
