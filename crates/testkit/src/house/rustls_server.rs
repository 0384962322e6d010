//! A server on rustls, in threads of the test: it sends back reversed lines.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::Pair;
use crate::proxy;

pub struct RustlsServer {
    pub port: u16,
}

impl RustlsServer {
    pub fn start(pair: &Pair, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::serve(config(pair, change))
    }

    pub fn serve(config: Arc<ServerConfig>) -> Self {
        let port = proxy::rogue(move |stream| {
            talk(stream, &config);
        });
        Self { port }
    }
}

/// A server that does this with every client, after the handshake. Returns its port.
pub fn rogue(
    config: Arc<ServerConfig>,
    act: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> u16 {
    let act = Arc::new(act);
    proxy::rogue(move |tcp| {
        // Whatever the act writes goes at once.
        tcp.set_nodelay(true).expect("an option");
        shaken(tcp, &config).into_iter().for_each(&*act);
    })
}

fn shaken(
    mut stream: TcpStream,
    config: &Arc<ServerConfig>,
) -> Option<StreamOwned<ServerConnection, TcpStream>> {
    let mut tls = ServerConnection::new(Arc::clone(config)).ok()?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).ok()?;
    }
    Some(StreamOwned::new(tls, stream))
}

pub fn config(pair: &Pair, change: impl FnOnce(&mut ServerConfig)) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let mut config = with_pair(config.with_no_client_auth(), pair);
    change(&mut config);
    Arc::new(config)
}

pub fn with_pair(
    config: ConfigBuilder<ServerConfig, WantsServerCert>,
    pair: &Pair,
) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    config.with_single_cert(chain, key).expect("a pair")
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn talk(stream: TcpStream, config: &Arc<ServerConfig>) -> Option<()> {
    let mut lines = BufReader::new(shaken(stream, config)?);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            lines.get_mut().conn.send_close_notify();
            let _ = lines.get_mut().flush();
            return None;
        }
        let back: String = line.trim_end().chars().rev().chain(['\n']).collect();
        lines.get_mut().write_all(back.as_bytes()).ok()?;
    }
}
