//! `rejoin stats --serve`: what is counted, for Prometheus and on a live page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rejoin_bench::metrics::CONTENT_TYPE;
use rejoin_bench::{Answer, StatusPort};
use rejoin_store::{CacheName, Store};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::watched::Watched;
use crate::terminal;

/// Serves until Ctrl-C.
pub(super) fn serve(folder: PathBuf, store: Store, address: SocketAddr) -> anyhow::Result<()> {
    let name = store.name().clone();
    let watched = Arc::new(Watched::new(folder, store));
    let runtime = crate::runtime(1)?;
    let served = runtime.block_on(async {
        let port = StatusPort::listen(address).await?;
        let address = port.address()?;
        let (shown, sampled) = (Arc::clone(&watched), Arc::clone(&watched));
        tokio::select! {
            // In this order: who reads the address can end it.
            biased;
            () = terminal::interrupted() => {}
            () = every_second(sampled) => {}
            () = async {
                announce(&name, address);
                port.serve(move |path| page(path, &shown)).await;
            } => {}
        }
        Ok(())
    });
    // Waits for who is looking at the cache: ended in the middle, it would cost a shard's sessions.
    drop(runtime);
    served
}

fn announce(name: &CacheName, address: SocketAddr) {
    terminal::complain(&format!("{name} is shown at http://{address}/ until Ctrl-C"));
    if !address.ip().to_canonical().is_loopback() {
        terminal::complain(&format!("warning: {address} is open to all who can reach it"));
    }
}

async fn every_second(watched: Arc<Watched>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is now, when nothing has happened yet.
    second.tick().await;
    loop {
        second.tick().await;
        let watched = Arc::clone(&watched);
        // One that panicked is one sample less.
        let _ = spawn_blocking(move || watched.sample()).await;
    }
}

fn page(path: &str, watched: &Watched) -> Answer {
    match path {
        "/" => Answer::found("text/html; charset=utf-8", include_str!("page/index.html")),
        "/style.css" => Answer::found("text/css; charset=utf-8", include_str!("page/style.css")),
        "/script.js" => {
            Answer::found("text/javascript; charset=utf-8", include_str!("page/script.js"))
        }
        "/stats.json" => Answer::found("application/json", watched.json().to_string()),
        "/metrics" => Answer::found(CONTENT_TYPE, watched.metrics()),
        _ => Answer::not_found("try /, /metrics or /stats.json\n"),
    }
}
