//! A hyper server whose tickets are sealed under the keys of a store: any number of these processes open them, also
//! after a restart. The keys rotate by themselves.
//!
//! `cargo run --example hyper -- FOLDER CERTIFICATE KEY`

use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use rejoin_cache::{Capacity, Settings};
use rejoin_rustls::tokio::Acceptor;
use rejoin_rustls::{Context, TicketKeys};
use rejoin_store::Store;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, certificate, key] = &arguments[..] else {
        return Err("FOLDER CERTIFICATE KEY".into());
    };
    // The folder is Store::FOLDER, which is in memory, unless this is a test. Tickets need no room for sessions.
    let settings = Settings::new(Capacity::Sessions(1_000));
    let store = Arc::new(Store::open(Path::new(folder), &"hyper".parse()?, Some(&settings))?);
    store.on_trouble(|trouble| tell(format_args!("cache hyper: {trouble}")));
    let keys = TicketKeys::shared(&store, None)?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(
        CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?,
        PrivateKeyDer::from_pem_file(key)?,
    )?;
    let acceptor = Acceptor::with_tickets(config, &keys.ticketer(Context::new(b"hyper")?));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    loop {
        let tcp = accept(&listener).await;
        tokio::spawn(serve(tcp, acceptor.clone()));
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

async fn serve(tcp: TcpStream, acceptor: Acceptor) {
    let Ok(Ok(tls)) = timeout(PATIENCE, acceptor.accept(tcp)).await else { return };
    // A client that goes away is no error of the server.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), service_fn(hello)).await;
}

/// Writes a line. It goes nowhere if nobody reads it: no handshake fails of that.
fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "rejoin: {line}");
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from("hello\n"))))
}
