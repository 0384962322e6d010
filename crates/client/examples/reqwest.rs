//! reqwest's requests and responses over connections of the manager, and direct ones where there is none.
//!
//! `cargo run --example reqwest -- https://example.com/ …`

use std::error::Error;
use std::io::Write;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rejoin_client::Manager;
use rejoin_client::hyper::Connector;
use rejoin_client::protocol::Connected;

type Direct = HttpsConnector<HttpConnector>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let direct = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1();
    let connector = Connector::new(Manager::find(), direct.build());
    let client = Client::builder(TokioExecutor::new()).build(connector);
    // It makes requests, and connects nowhere.
    let requests = reqwest::Client::new();
    for url in std::env::args().skip(1) {
        let response = send(&client, requests.get(url)).await?.error_for_status()?;
        let session = response.extensions().get::<Connected>();
        let resumed = session.map(|session| session.resumed);
        let text = response.text().await?;
        writeln!(std::io::stdout(), "resumed: {resumed:?}\n{text}")?;
    }
    Ok(())
}

async fn send(
    client: &Client<Connector<Direct>, reqwest::Body>,
    request: reqwest::RequestBuilder,
) -> Result<reqwest::Response, Box<dyn Error>> {
    let response = client.request(request.build()?.try_into()?).await?;
    Ok(response.map(reqwest::Body::wrap).into())
}
