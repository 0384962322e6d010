//! The progress bars of measurements, and how Ctrl-C stops one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use indicatif::ProgressBar;
use rejoin_lab::fleet::Progress;
use rejoin_lab::{Ended, Error, Step};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use crate::instruments::Doubted;
use crate::terminal::{self, interrupted};

/// The beginning of what is said of a machine that did not keep up.
pub(crate) const KEPT_UP: &str =
    "the machine did not keep up, and the marked figures are not to be trusted";

/// Returns a bar over the population's time.
pub(crate) fn bar(end_ms: u64, label: String) -> ProgressBar {
    let style = "{prefix:22} {bar:30} {elapsed_precise} of about {duration_precise}  {msg}";
    terminal::bar(end_ms, style).with_prefix(label)
}

/// Returns what shows a bar over the population's time for each server.
pub(crate) fn of_servers(end_ms: u64) -> impl FnMut(&Step, watch::Receiver<Progress>) {
    move |Step { done, of, what }, progress| {
        let label = format!("{}/{of} {what}", done + 1);
        tokio::spawn(follow(bar(end_ms, label), progress));
    }
}

/// Returns what prints each row as JSON, if it is asked for.
pub(crate) fn rows<R: Serialize>(json: bool) -> impl FnMut(&R) {
    move |row| {
        if json {
            terminal::print(&json!(row).to_string());
        }
    }
}

/// Measures with a bar that moves, until Ctrl-C.
pub(crate) fn watched<T>(
    measure: impl FnOnce(&AtomicBool, &mut (dyn FnMut(&Step) + Send)) -> Result<T, Error>,
) -> anyhow::Result<T> {
    let runtime = crate::runtime(1)?;
    let stop = Arc::<AtomicBool>::default();
    let told = Arc::clone(&stop);
    // It is heard before anything is made that is to be tidied up.
    let interrupted = {
        let _entered = runtime.enter();
        interrupted()
    };
    runtime.spawn(async move {
        interrupted.await;
        told.store(true, Ordering::Relaxed);
    });
    let style = "{bar:30} {percent:>3} %  {elapsed_precise}, {eta_precise} left  {msg}";
    let bar = terminal::bar(0, style);
    let outcome = measure(&stop, &mut |Step { done, of, what }| {
        bar.set_length(*of as u64);
        bar.set_position(*done as u64);
        bar.set_message(what.clone());
    });
    bar.finish_and_clear();
    runtime.shutdown_background();
    Ok(outcome?)
}

/// Returns what a table says below of how the measurement ended, nothing if there is nothing to say.
pub(crate) fn notes(ended: &Ended) -> String {
    let cut = ended.cut("interrupted").map(|why| format!("incomplete: {why}"));
    cut.into_iter().chain(ended.notes()).map(|note| format!("\n{note}")).collect()
}

/// Returns an error that tells how far a measurement came, or with how much of it the machine did not keep up, unless it
/// is whole. `interrupted` and `unit` are its words.
pub(crate) fn whole(ended: &Ended, interrupted: &str, unit: &str) -> anyhow::Result<()> {
    let Ended { complete, failure, done, wanted, doubts, .. } = ended;
    match failure {
        _ if *complete && doubts.is_empty() => Ok(()),
        _ if *complete => {
            let first = doubts.first().map_or("", String::as_str);
            let others = match doubts.len() {
                0 | 1 => String::new(),
                all => format!(" (and {} more)", all - 1),
            };
            Err(Doubted(format!("{KEPT_UP}: {first}{others}")).into())
        }
        Some(failure) => Err(anyhow!("after {done} of {wanted} {unit}: {failure}")),
        None => Err(anyhow!("{interrupted} after {done} of {wanted} {unit}")),
    }
}

/// Returns the same error, or what failed so often that the figures are wrong, of a measurement that is complete.
pub(crate) fn judged(failure: Option<String>, ended: &Ended, unit: &str) -> anyhow::Result<()> {
    match failure {
        Some(failure) if ended.complete => Err(anyhow!(failure)),
        _ => whole(ended, "interrupted", unit),
    }
}

/// Moves the bar until the run that reports to it is over.
pub(crate) async fn follow(bar: ProgressBar, mut progress: watch::Receiver<Progress>) {
    while progress.changed().await.is_ok() {
        let Progress { played_ms, measuring, handshakes, resumed } = *progress.borrow();
        let phase = if measuring { "measuring" } else { "warming up" };
        bar.set_position(played_ms);
        bar.set_message(format!("{phase}: {handshakes} handshakes, {resumed} resumed"));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bar.finish_and_clear();
}
