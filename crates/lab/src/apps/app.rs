//! One app: it makes its visits one after the other, with sessions of its own or through the manager.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rejoin_client::Manager;
use rejoin_client::protocol::Connect;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use serde::{Deserialize, Serialize};

use super::{failed, other};
use crate::Error;

/// The instructions of an app, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct App {
    /// A file of the authority that it believes.
    pub authority: PathBuf,
    /// The manager's socket, if it is to ask that.
    pub manager: Option<PathBuf>,
    /// Its visits, in this order.
    pub visits: Vec<Visit>,
}

/// A connection, a request and its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Visit {
    /// The service's name.
    pub name: String,
    /// The host that answers for it.
    pub host: SocketAddr,
}

/// One visit as an app saw it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Seen {
    /// True if the handshake was a resumption.
    pub resumed: bool,
    /// From the wish for a connection to the answer's first byte.
    pub first_byte_us: u64,
}

impl App {
    /// Makes the visits.
    ///
    /// # Errors
    /// A connection that fails.
    pub fn run(&self) -> Result<Vec<Seen>, Error> {
        match &self.manager {
            Some(socket) => {
                let manager = Manager::at(socket);
                self.visits.iter().map(|visit| managed(visit, &manager)).collect()
            }
            None => {
                let config = own_config(&self.authority)?;
                self.visits.iter().map(|visit| unmodified(visit, &config)).collect()
            }
        }
    }
}

fn managed(visit: &Visit, manager: &Manager) -> Result<Seen, Error> {
    let began = Instant::now();
    let host = visit.name.parse().map_err(|error: String| other("a service's name", error))?;
    let port = visit.host.port().try_into().map_err(|error| other("a host's port", error))?;
    let mut wanted = Connect::new(host, port);
    wanted.addresses = vec![visit.host.ip()];
    let mut stream = manager.connect(&wanted).map_err(|error| other("the manager", error))?;
    let first_byte_us = ask(&mut stream, began)?;
    Ok(Seen { resumed: stream.session().resumed, first_byte_us })
}

fn unmodified(visit: &Visit, config: &Arc<ClientConfig>) -> Result<Seen, Error> {
    let began = Instant::now();
    let name = visit.name.clone().try_into().map_err(|error| other("a service's name", error))?;
    let tls = ClientConnection::new(Arc::clone(config), name)?;
    let tcp = TcpStream::connect(visit.host).map_err(failed("cannot reach a host"))?;
    tcp.set_nodelay(true).map_err(failed("cannot set up a socket"))?;
    let mut stream = StreamOwned::new(tls, tcp);
    let first_byte_us = ask(&mut stream, began)?;
    let resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok(Seen { resumed, first_byte_us })
}

/// A request and its whole answer; when its first byte came.
fn ask(stream: &mut (impl Read + Write), began: Instant) -> Result<u64, Error> {
    let mut first = [0];
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").map_err(failed("cannot ask a host"))?;
    stream.read_exact(&mut first).map_err(failed("a host does not answer"))?;
    let first_byte_us = began.elapsed().as_micros() as u64;
    stream.read_to_end(&mut Vec::new()).map_err(failed("an answer is cut short"))?;
    Ok(first_byte_us)
}

/// Connects as a program does that knows nothing of the manager: rustls, with its own store of sessions.
fn own_config(authority: &Path) -> Result<Arc<ClientConfig>, Error> {
    let authority = CertificateDer::from_pem_file(authority);
    let mut roots = RootCertStore::empty();
    roots.add(authority.map_err(|error| other("the authority", error))?)?;
    let mut provider = aws_lc_rs::default_provider();
    // The group that the manager prefers, so that the rows differ in sessions alone.
    provider.kx_groups.insert(0, aws_lc_rs::kx_group::X25519MLKEM768);
    // The first random number of a process takes milliseconds, which are no part of a handshake.
    provider.secure_random.fill(&mut [0]).map_err(|_| other("the provider", "has no entropy"))?;
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
