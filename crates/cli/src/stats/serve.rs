//! `rejoin stats --serve`: counters for Prometheus and on a live page.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rejoin_serve::metrics::Meters;
use rejoin_serve::{Answer, StatusPort};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::terminal;

/// A source of counters. Any number of threads read it; one of them takes samples.
pub(super) trait Source: Send + Sync + 'static {
    /// The page's sections about it.
    const SECTIONS: &str;
    /// The script that fills them.
    const SCRIPT: &str;

    /// Returns its name.
    fn name(&self) -> String;

    /// Samples the counters. Must be called every second.
    fn sample(&self);

    /// Returns the counters and the history of the last seconds as a JSON object.
    fn json(&self) -> Value;

    /// Returns the counters as metrics.
    fn metrics(&self) -> Meters;
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
            // Signals come first, so that a reader of the address can already end the server.
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
    // Waits for readers of the cache: to stop one midway would cost the sessions of a shard.
    drop(runtime);
    served
}

fn announce(name: &str, address: SocketAddr) {
    terminal::complain(&format!("{name} is shown at http://{address}/ until Ctrl-C"));
    terminal::warn_of_others(address);
}

async fn every_second(source: Arc<impl Source>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick completes at once, before there is anything to sample.
    second.tick().await;
    loop {
        second.tick().await;
        let source = Arc::clone(&source);
        // A panic costs one sample.
        let _ = spawn_blocking(move || source.sample()).await;
    }
}

fn page<S: Source>(path: &str, source: &S) -> Answer {
    match path {
        "/" => Answer::found("text/html; charset=utf-8", index(S::SECTIONS)),
        "/style.css" => Answer::found("text/css; charset=utf-8", STYLE.concat()),
        "/script.js" => Answer::found(SCRIPT, include_str!("page/script.js")),
        "/sections.js" => Answer::found(SCRIPT, S::SCRIPT),
        "/stats.json" => Answer::found("application/json", source.json().to_string()),
        "/metrics" => Answer::metrics(source.metrics()),
        _ => Answer::not_found("try /, /metrics or /stats.json\n"),
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: [&str; 2] = [rejoin_report::PAGE_STYLE, include_str!("page/style.css")];

fn index(sections: &str) -> String {
    include_str!("page/index.html").replacen("<!-- sections -->\n", sections, 1)
}
