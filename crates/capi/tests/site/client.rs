//! A client that comes back with the session of its last connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openssl::ssl::{
    SslConnector, SslMethod, SslSession, SslSessionCacheMode, SslVerifyMode, SslVersion,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    Tls12,
    Tls13,
}

pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    connector: SslConnector,
    session: Arc<Mutex<Option<SslSession>>>,
    /// The server that is asked for.
    pub(crate) name: &'static str,
    /// What servers said, the last line of each answer.
    pub(crate) answers: Vec<String>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, versions: Versions) -> Self {
        let version = match versions {
            Versions::Tls12 => SslVersion::TLS1_2,
            Versions::Tls13 => SslVersion::TLS1_3,
        };
        let mut connector = SslConnector::builder(SslMethod::tls_client()).expect("a context");
        connector.set_verify(SslVerifyMode::NONE);
        connector.set_min_proto_version(Some(version)).expect("a version");
        connector.set_max_proto_version(Some(version)).expect("a version");
        connector.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        let session = Arc::new(Mutex::new(None));
        let newest = Arc::clone(&session);
        connector.set_new_session_callback(move |_, session| {
            *newest.lock().expect("no panic") = Some(session);
        });
        let connector = connector.build();
        Self { address, connector, session, name: "localhost", answers: Vec::new() }
    }

    /// Asks for a page; whether the session was resumed.
    pub(crate) fn connect(&mut self) -> bool {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut ssl = self.connector.configure().expect("a connection");
        ssl.set_verify_hostname(false);
        if let Some(session) = &*self.session.lock().expect("no panic") {
            // SAFETY: it came from a connection of this context.
            unsafe { ssl.set_session(session) }.expect("a session");
        }
        let mut tls = ssl.connect(self.name, stream).expect("a handshake");
        let request = format!("GET / HTTP/1.0\r\nHost: {}\r\n\r\n", self.name);
        tls.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        // A server that ends without close_notify has said what it had to say.
        let _ = tls.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        self.answers.push(answer.lines().last().unwrap_or_default().to_owned());
        // A connection that ends without close_notify takes its session with it.
        let _ = tls.shutdown();
        tls.ssl().session_reused()
    }
}
