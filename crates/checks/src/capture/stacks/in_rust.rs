//! rustls, both ends in threads of the check.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

use rejoin_testkit::certificates::Authority;
use rejoin_testkit::house::rustls_server::{RustlsServer, provider, with_pair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion, version,
};

use super::{CLIENTS, Ground, Told, VISITS};

pub(super) fn visits(_: &Ground) -> Option<Vec<Told>> {
    let authority = Authority::new();
    let pair = authority.issue(&["localhost"]);
    let mut told = Vec::new();
    for tls in [&version::TLS12, &version::TLS13] {
        for tickets in [true, false] {
            let config = ServerConfig::builder_with_provider(provider());
            let config = config.with_protocol_versions(&[tls]).expect("a version");
            let mut config = with_pair(config.with_no_client_auth(), &pair);
            if tickets {
                config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("keys");
            }
            let server = RustlsServer::serve(Arc::new(config)).port;
            for _ in 0..CLIENTS {
                let client = client(&authority, tls);
                told.extend((0..VISITS).map(|_| call(server, &client)));
            }
        }
    }
    Some(told)
}

/// A client that begins without sessions.
fn client(authority: &Authority, tls: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.der().to_vec())).expect("an authority");
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_protocol_versions(&[tls]).expect("a version");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

fn call(server: u16, config: &Arc<ClientConfig>) -> Told {
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).expect("a server");
    let client = Some(tcp.local_addr().expect("an address").port());
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut stream = StreamOwned::new(tls, tcp);
    stream.write_all(b"question\n").expect("taken");
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).expect("an answer");
    stream.conn.send_close_notify();
    stream.flush().expect("taken");
    let resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
    Told { server, client, resumed }
}
