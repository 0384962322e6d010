//! An axum server whose sessions are in a store: any number of these processes resume them, also after a restart.
//! A response may tell when its client returns: `Next-Connect: 60`, in seconds.
//!
//! `cargo run --example axum -- FOLDER CERTIFICATE KEY`

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rejoin_cache::{Capacity, Hints, Settings};
use rejoin_rustls::tokio::Acceptor;
use rejoin_rustls::{Connection, Context, ServerSessions};
use rejoin_store::Store;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const LIFETIME_MS: u64 = 24 * 3_600_000;
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, certificate, key] = &arguments[..] else {
        return Err("FOLDER CERTIFICATE KEY".into());
    };
    // The folder is Store::FOLDER, which is in memory, unless this is a test.
    let settings = Settings::new(Capacity::Bytes(8 << 20));
    let store = Arc::new(Store::open(Path::new(folder), &"axum".parse()?, Some(&settings))?);
    store.on_trouble(|trouble| tell(format_args!("cache axum: {trouble}")));
    let context = Context::new(b"axum")?;
    let sessions = ServerSessions::shared(store, context, LIFETIME_MS, Hints::Expected);
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(
        CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?,
        PrivateKeyDer::from_pem_file(key)?,
    )?;
    let acceptor = Acceptor::with_sessions(config, &sessions);

    let app = Router::new().route("/", get(async || ([("next-connect", "60")], "hello\n")));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    loop {
        let tcp = accept(&listener).await;
        tokio::spawn(serve(tcp, acceptor.clone(), app.clone()));
    }
}

/// Accepts the next client. Errors pass, such as too many open files: the first is told, and the server goes on.
async fn accept(listener: &TcpListener) -> TcpStream {
    let mut is_told = false;
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => return tcp,
            Err(_) if is_told => {}
            Err(error) => tell(format_args!("nobody is accepted for now: {error}")),
        }
        is_told = true;
        sleep(PAUSE).await;
    }
}

async fn serve(tcp: TcpStream, acceptor: Acceptor, app: Router) {
    let Ok(Ok(tls)) = timeout(PATIENCE, acceptor.accept(tcp)).await else { return };
    let connection = tls.connection().clone();
    let app = app.layer(from_fn(move |request, next| hinted(connection.clone(), request, next)));
    let service = TowerToHyperService::new(app);
    // A client that goes away is no error of the server.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
}

/// Writes a line. It goes nowhere if nobody reads it: no handshake fails of that.
fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "rejoin: {line}");
}

/// Takes the hint out of a response.
async fn hinted(connection: Connection, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let next_connect = response.headers_mut().remove("next-connect");
    let seconds = next_connect.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    match seconds {
        Some(seconds) => connection.hint(u64::from(seconds) * 1_000),
        None => connection.no_hint(),
    }
    response
}
