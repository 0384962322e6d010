//! A server on rustls, in threads of the test: it sends back reversed lines.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::Pair;

pub struct RustlsServer {
    pub port: u16,
}

impl RustlsServer {
    pub fn start(pair: &Pair, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::serve(config(pair, change))
    }

    pub fn serve(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                std::thread::spawn(move || talk(stream, config));
            }
        });
        Self { port }
    }
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

fn talk(mut stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    let mut tls = ServerConnection::new(config).ok()?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).ok()?;
    }
    let mut lines = BufReader::new(StreamOwned::new(tls, stream));
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
