//! hyper's client, and reqwest's requests, through a manager and without one.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, Version};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rejoin_client::Manager;
use rejoin_client::hyper::Connector;
use rejoin_client::protocol::{Connect, Connected, Trust};
use rejoin_testkit::certificates::{Authority, Pair};
use rejoin_testkit::house::{House, rustls_server};
use rejoin_testkit::{alone, process, shipped};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::block_in_place;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// The time that curl waits for the manager, on a machine that is busy.
const PATIENCE_MS: &str = "10000";

/// Starts a server that says hello, over both versions of HTTP, or without TLS. Returns its port.
async fn serve(pair: Option<&Pair>) -> u16 {
    let config = pair.map(|pair| {
        rustls_server::config(pair, |config| {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        })
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("a client");
            let config = config.clone();
            tokio::spawn(async move {
                let http = auto::Builder::new(TokioExecutor::new());
                let hello = service_fn(async |_: Request<Incoming>| {
                    Ok::<_, Infallible>(Response::new("hello".to_owned()))
                });
                let _ = match config {
                    None => http.serve_connection(TokioIo::new(tcp), hello).await,
                    Some(config) => match TlsAcceptor::from(config).accept(tcp).await {
                        Ok(tls) => http.serve_connection(TokioIo::new(tls), hello).await,
                        Err(_) => return,
                    },
                };
            });
        }
    });
    port
}

/// A direct connector that trusts an authority, and counts its connections.
#[derive(Clone)]
struct Direct {
    inner: HttpsConnector<HttpConnector>,
    calls: Arc<AtomicU32>,
}

impl Direct {
    fn trusting(authority: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.der().to_vec())).expect("a root");
        let config = ClientConfig::builder_with_provider(rustls_server::provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let inner = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        Self { inner: inner.enable_http1().build(), calls: Arc::default() }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Service<Uri> for Direct {
    type Response = <HttpsConnector<HttpConnector> as Service<Uri>>::Response;
    type Error = <HttpsConnector<HttpConnector> as Service<Uri>>::Error;
    type Future = <HttpsConnector<HttpConnector> as Service<Uri>>::Future;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.call(to)
    }
}

/// Gets a page by a client of its own, with a connection of its own.
async fn get(connector: Connector<Direct>, url: &str) -> Result<Response<Incoming>, String> {
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::get(url).body(Empty::<Bytes>::new()).expect("a request");
    client.request(request).await.map_err(|error| {
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    })
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

fn resumed(response: &Response<Incoming>) -> Option<bool> {
    response.extensions().get::<Connected>().map(|session| session.resumed)
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_share_one_full_handshake() {
    let mut house = House::new();
    let port = serve(Some(&house.certify("server", &["localhost"]))).await;
    let (manager, direct) = (Manager::at(house.socket()), Direct::trusting(&house.authority));
    let url = format!("https://localhost:{port}/");

    // A program that uses the blocking client.
    let blocking = manager.clone();
    let page = tokio::task::spawn_blocking(move || {
        let port = port.try_into().expect("a port");
        let mut stream =
            blocking.connect(&Connect::new("localhost".parse().expect("a name"), port))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((stream.session().resumed, page))
    });
    let (is_resumed, page) = page.await.expect("no panic").expect("a page");
    assert!(!is_resumed && page.ends_with("hello"), "{page}");

    let connector = Connector::new(manager, direct.clone());
    let response = get(connector.clone(), &url).await.expect("a page");
    assert_eq!(resumed(&response), Some(true));
    assert_eq!((response.version(), text(response).await.as_str()), (Version::HTTP_11, "hello"));

    let over_http_2 = connector.clone().asking(|wanted| {
        wanted.alpn = vec!["h2".parse().expect("a name"), "http/1.1".parse().expect("a name")];
    });
    let response = get(over_http_2, &url).await.expect("a page");
    assert_eq!(resumed(&response), Some(true));
    assert_eq!((response.version(), text(response).await.as_str()), (Version::HTTP_2, "hello"));

    let client = Client::builder(TokioExecutor::new()).build(connector);
    let request = reqwest::Client::new().get(&url).build().expect("a request");
    let request: Request<reqwest::Body> = request.try_into().expect("a request");
    let response = client.request(request).await.expect("a page");
    assert_eq!(resumed(&response), Some(true));
    let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
    assert_eq!(response.text().await.expect("a page"), "hello");

    assert_eq!(direct.calls(), 0);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"]).arg(house.file("authority.pem")).arg(&url);
    curl.env("LD_PRELOAD", shipped::library("librejoin_preload.so")).env("REJOIN_DEBUG", "1");
    curl.env("REJOIN_MANAGER", house.socket()).env("REJOIN_PATIENCE_MS", PATIENCE_MS);
    let output = block_in_place(|| process::output(&mut curl, process::DEADLINE));
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{told}");
    let counts = house.stop().handshakes;
    assert_eq!((counts.full, counts.resumed, counts.failed), (1, 4, 0), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manager_it_connects_as_without_rejoin() {
    let house = House::empty();
    let port = serve(Some(&house.certify("server", &["localhost"]))).await;
    let direct = Direct::trusting(&house.authority);
    let connector = Connector::new(Manager::at(house.socket()), direct.clone());
    let response = get(connector, &format!("https://localhost:{port}/")).await.expect("a page");
    assert_eq!(resumed(&response), None);
    assert_eq!((direct.calls(), text(response).await.as_str()), (1, "hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_tls_is_not_the_managers() {
    let mut house = House::new();
    let (port, direct) = (serve(None).await, Direct::trusting(&house.authority));
    let connector = Connector::new(Manager::at(house.socket()), direct.clone());
    let response = get(connector, &format!("http://localhost:{port}/")).await.expect("a page");
    assert_eq!((direct.calls(), text(response).await.as_str()), (1, "hello"));
    assert_eq!(house.stop().handshakes.full, 0);
}

/// The example is a program of its own each time.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_with_reqwest_shares_sessions_and_does_without() {
    let mut house = House::new();
    let port = serve(Some(&house.certify("server", &["localhost"]))).await;
    let url = format!("https://localhost:{port}/");
    // Where a user's own manager listens.
    symlink(house.socket(), house.file("rejoin.sock")).expect("a link");
    let (folder, bundle) = (house.folder.clone(), house.file("authority.pem"));
    let example = |authorities: Option<&Path>| {
        let mut command = Command::new(shipped::example("reqwest"));
        command.arg(&url).env("XDG_RUNTIME_DIR", &folder);
        // Where these name others than the system's, the connector is its own.
        command.env_remove("SSL_CERT_DIR").env_remove("SSL_CERT_FILE");
        command.envs(authorities.map(|file| ("SSL_CERT_FILE", file)));
        let output = process::output(&mut command, process::DEADLINE);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(block_in_place(|| example(None)), "resumed: Some(false)\nhello\n");
    assert_eq!(block_in_place(|| example(None)), "resumed: Some(true)\nhello\n");
    assert_eq!(block_in_place(|| example(Some(&bundle))), "resumed: None\nhello\n");
    let counts = house.stop().handshakes;
    assert_eq!((counts.full, counts.resumed), (1, 1));
    assert_eq!(block_in_place(|| example(Some(&bundle))), "resumed: None\nhello\n");
}

/// Otherwise a server that the manager refuses would get a second chance.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_manager_says_of_a_server_is_final() {
    let (house, strange) = (House::new(), Authority::new());
    let port = serve(Some(&strange.issue(&["localhost"]))).await;
    // The direct connector would believe it.
    let direct = Direct::trusting(&strange);
    let connector = Connector::new(Manager::at(house.socket()), direct.clone());
    let url = format!("https://localhost:{port}/");
    let error = get(connector.clone(), &url).await.expect_err("an unknown authority");
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(direct.calls(), 0);

    let bundle = strange.pem();
    let trusting = connector.asking(move |wanted| wanted.trust = Trust::Bundle(bundle.clone()));
    assert_eq!(text(get(trusting, &url).await.expect("a page")).await, "hello");
    assert_eq!(direct.calls(), 0);
}

/// A manager that answers with this kind of error.
fn refusing(house: &House, kind: &str) -> Manager {
    let path = house.file(kind);
    let listener = UnixListener::bind(&path).expect("a socket");
    let kind = kind.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let error = json!({"kind": kind, "detail": "no", "remedy": "none"});
            let answer = json!({"rejoin": 1, "error": error}).to_string();
            let mut stream = stream.expect("a program");
            let _ = stream.read(&mut [0; 1_000]);
            stream.write_all(&(answer.len() as u32).to_be_bytes()).expect("room");
            stream.write_all(answer.as_bytes()).expect("room");
        }
    });
    Manager::at(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_the_managers_are_not_the_programs() {
    let house = House::empty();
    let port = serve(Some(&house.certify("server", &["localhost"]))).await;
    let url = format!("https://localhost:{port}/");
    let direct = Direct::trusting(&house.authority);
    let pem = house.authority.pem();
    let trust = move |wanted: &mut Connect| wanted.trust = Trust::Bundle(pem.clone());
    for kind in ["too_large", "bad_request", "timeout"] {
        let connector = Connector::new(refusing(&house, kind), direct.clone());
        let before = direct.calls();
        let response = get(connector.clone(), &url).await.expect(kind);
        assert_eq!(
            (text(response).await.as_str(), direct.calls()),
            ("hello", before + 1),
            "{kind}"
        );
        // The other connector may not know what only the function says.
        let is_open = get(connector.clone().asking(trust.clone()), &url).await.is_ok();
        assert_eq!(is_open, kind == "too_large", "{kind}");
        let patient = connector.asking(|wanted| wanted.deadline_ms = 20_000);
        assert_eq!(get(patient, &url).await.is_ok(), kind != "timeout", "{kind}");
    }
    // No manager reads so much.
    let long = house.authority.pem() + &"# more\n".repeat(40_000);
    let before = direct.calls();
    let connector = Connector::new(refusing(&house, "long"), direct.clone());
    let connector = connector.asking(move |wanted| wanted.trust = Trust::Bundle(long.clone()));
    assert_eq!(text(get(connector, &url).await.expect("a page")).await, "hello");
    assert_eq!(direct.calls(), before + 1);
}

/// Runs itself again, because the environment is the process's.
#[test]
fn the_environments_authorities_are_trusted_as_without_a_manager() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(part) = alone::part() {
        let [socket, url, expected] = part.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let direct = Direct::trusting(&Authority::new());
        let connector = Connector::new(Manager::at(socket), direct.clone());
        let is_managed = runtime.block_on(get(connector, url)).is_ok();
        let said = match (is_managed, direct.calls()) {
            (true, 0) => "managed",
            (false, 1) => "direct",
            _ => "refused",
        };
        assert_eq!(said, expected);
        return;
    }
    let (house, strange) = (House::new(), Authority::new());
    let (own, other) = (house.certify("server", &["localhost"]), strange.issue(&["localhost"]));
    let (own, other) = (runtime.block_on(serve(Some(&own))), runtime.block_on(serve(Some(&other))));
    let file = house.file("strange.pem");
    std::fs::write(&file, strange.pem()).expect("a file");
    let name = "connector::the_environments_authorities_are_trusted_as_without_a_manager";
    for (variable, value, port, expected) in [
        ("SSL_CERT_FILE", Path::new(""), own, "managed"),
        ("SSL_CERT_FILE", &file, other, "direct"),
        ("SSL_CERT_FILE", &file, own, "direct"),
        ("SSL_CERT_FILE", Path::new("/nowhere/file.pem"), own, "direct"),
        ("SSL_CERT_DIR", &house.folder, own, "direct"),
    ] {
        let part = format!("{} https://localhost:{port}/ {expected}", house.socket().display());
        let mut again = alone::playing(name, &part);
        again.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").env(variable, value);
        let output = process::output(&mut again, process::DEADLINE);
        assert!(output.status.success(), "{variable} {value:?} {part}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_is_told_though_the_stream_is_dropped() {
    let house = House::new();
    let pair = house.certify("server", &["localhost"]);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let port = rustls_server::rogue(rustls_server::config(&pair, |_| {}), move |mut stream| {
        let mut heard = Vec::new();
        let ended = stream.read_to_end(&mut heard).map_err(|error| error.to_string());
        tell.send(ended).expect("the test waits");
    });
    let port = port.try_into().expect("a port");
    let wanted = Connect::new("localhost".parse().expect("a name"), port);
    for _ in 0..100 {
        let manager = Manager::at(house.socket());
        let mut stream = rejoin_client::tokio::connect(&manager, &wanted).await.expect("a server");
        stream.write_all(&[7; 1_000]).await.expect("room");
        stream.shutdown().await.expect("an end");
        drop(stream);
    }
    for _ in 0..100 {
        assert_eq!(told.recv().await, Some(Ok(1_000)));
    }
}
