//! A live capture of the fleet against what the server counted, in both versions of TLS, and its memory.

use super::{Effort, Found};
use rejoin_testkit::live_capture::{Watched, in_a_network_of_its_own, run};

const FLEET: [&str; 8] =
    ["--devices", "800", "--speedup", "100", "--warm-up-s", "60", "--duration-s", "240"];

pub(crate) fn agrees(_: Effort) -> Option<Found> {
    let mut figures = Vec::new();
    let mut holds = true;
    for tls in ["1.2", "1.3"] {
        let server = ["--tls", tls, "--capacity-sessions", "200"];
        let Watched { captured, counted, .. } = run(&server, &FLEET)?;
        holds &= captured == counted && counted.iter().all(|count| *count > 0);
        let ([full, resumed], [counted_full, counted_resumed]) = (captured, counted);
        figures.push(format!(
            "TLS {tls}: {full} full of {counted_full}, {resumed} resumed of {counted_resumed}"
        ));
    }
    Some(Found { figure: figures.join("; "), holds })
}

/// An hour of the paper's devices, sixty times as fast.
const HOUR: [&str; 8] =
    ["--devices", "2000", "--speedup", "60", "--warm-up-s", "60", "--duration-s", "3600"];
const MOST_MB: f64 = 64.0;

pub(crate) fn hour(_: Effort) -> Option<Found> {
    let server = ["--tls", "1.2", "--capacity-sessions", "2000"];
    let watched = in_a_network_of_its_own(|| run(&server, &HOUR))??;
    let Watched { captured, counted, peak_kib } = watched;
    let peak_mb = peak_kib as f64 * 1_024.0 / 1e6;
    let [full, resumed] = captured;
    let figure = format!("{peak_mb:.1} ({full} full, {resumed} resumed handshakes)");
    let holds = captured == counted && full > 0 && resumed > 0 && peak_mb <= MOST_MB;
    Some(Found { figure, holds })
}
