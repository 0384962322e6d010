//! `rejoin stats --serve`: what is counted, for Prometheus and on a live page.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rejoin_serve::metrics::CONTENT_TYPE;
use rejoin_serve::{Answer, StatusPort};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::terminal;

/// What is looked at for as long as anybody likes. Any number of threads ask; one of them takes samples.
pub(super) trait Source: Send + Sync + 'static {
    /// The page's sections about it.
    const SECTIONS: &str;
    /// The script that fills them.
    const SCRIPT: &str;

    /// What it is called.
    fn name(&self) -> String;

    /// Looks at what the last second brought. To be called every second.
    fn sample(&self);

    /// As one object, with the history of the last seconds.
    fn json(&self) -> Value;

    /// As Prometheus reads it.
    fn metrics(&self) -> String;
}

/// Serves until Ctrl-C.
pub(super) fn serve<S: Source>(source: S, address: SocketAddr) -> anyhow::Result<()> {
    let source = Arc::new(source);
    let runtime = crate::runtime(1)?;
    let served = runtime.block_on(async {
        let port = StatusPort::listen(address).await?;
        let address = port.address()?;
        let (shown, sampled) = (Arc::clone(&source), Arc::clone(&source));
        tokio::select! {
            // In this order: who reads the address can end it.
            biased;
            () = terminal::interrupted() => {}
            () = every_second(sampled) => {}
            () = async {
                announce(&shown.name(), address);
                port.serve(move |path| page(path, &*shown)).await;
            } => {}
        }
        Ok(())
    });
    // Waits for who is looking at a cache: ended in the middle, it would cost a shard's sessions.
    drop(runtime);
    served
}

fn announce(name: &str, address: SocketAddr) {
    terminal::complain(&format!("{name} is shown at http://{address}/ until Ctrl-C"));
    if !address.ip().to_canonical().is_loopback() {
        terminal::complain(&format!("warning: {address} is open to all who can reach it"));
    }
}

async fn every_second(source: Arc<impl Source>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is now, when nothing has happened yet.
    second.tick().await;
    loop {
        second.tick().await;
        let source = Arc::clone(&source);
        // One that panicked is one sample less.
        let _ = spawn_blocking(move || source.sample()).await;
    }
}

fn page<S: Source>(path: &str, source: &S) -> Answer {
    match path {
        "/" => Answer::found("text/html; charset=utf-8", index(S::SECTIONS)),
        "/style.css" => Answer::found("text/css; charset=utf-8", include_str!("page/style.css")),
        "/script.js" => Answer::found(SCRIPT, include_str!("page/script.js")),
        "/sections.js" => Answer::found(SCRIPT, S::SCRIPT),
        "/stats.json" => Answer::found("application/json", source.json().to_string()),
        "/metrics" => Answer::found(CONTENT_TYPE, source.metrics()),
        _ => Answer::not_found("try /, /metrics or /stats.json\n"),
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

fn index(sections: &str) -> String {
    include_str!("page/index.html").replacen("<!-- sections -->\n", sections, 1)
}
