//! A live capture of the fleet against what the server counted, in both versions of TLS.

use super::{Effort, Found};
use rejoin_testkit::live_capture::{Watched, run};

const FLEET: [&str; 8] =
    ["--devices", "800", "--speedup", "100", "--warm-up-s", "60", "--duration-s", "240"];

pub(crate) fn agrees(_: Effort) -> Option<Found> {
    let mut figures = Vec::new();
    let mut holds = true;
    for tls in ["1.2", "1.3"] {
        let server = ["--tls", tls, "--capacity-sessions", "200"];
        let Watched { captured, counted } = run(&server, &FLEET)?;
        holds &= captured == counted && counted.iter().all(|count| *count > 0);
        let ([full, resumed], [counted_full, counted_resumed]) = (captured, counted);
        figures.push(format!(
            "TLS {tls}: {full} full of {counted_full}, {resumed} resumed of {counted_resumed}"
        ));
    }
    Some(Found { figure: figures.join("; "), holds })
}
