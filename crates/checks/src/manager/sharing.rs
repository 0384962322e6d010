//! One full handshake for twenty programs, and for a service; the programs are in the test kit.

use rejoin_testkit::manager::Managed;
use rejoin_testkit::shipped::rejoin;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Effort, Found};
use rejoin_testkit::programs::twenty::Twenty;
use rejoin_testkit::serve::scratch;
use rejoin_testkit::stacks::{Counted, Stack, Tls};

/// The least percentage of full handshakes without sharing.
const UNSHARED_PERCENT: f64 = 75.0;

pub(crate) fn twenty(stack: Stack) -> Option<Found> {
    let (mut figures, mut holds) = (Vec::new(), true);
    for tls in Tls::ALL {
        let managed = Managed::start(&format!("check-{stack:?}-{}", tls.number()));
        let seen = Twenty::visit(&managed, stack, tls)?;
        let Twenty { in_turn, at_once, server, .. } = &seen;
        let Counted { full, resumed } = in_turn;
        figures.push(format!(
            "TLS {} {full} and {resumed}, at once after one {} of {} resumed, the server counts {} \
             and {} in all",
            tls.number(),
            at_once.resumed,
            at_once.full + at_once.resumed,
            server.full,
            server.resumed
        ));
        holds &= seen.holds(tls);
    }
    Some(Found { figure: figures.join("; "), holds })
}

pub(crate) fn table_i(effort: Effort) -> Option<Found> {
    let mut demo = Command::new(rejoin());
    demo.args(["demo", "--client", "--json", "--directory"]).arg(scratch("check-table-i"));
    if effort.quick {
        demo.args(["--apps", "30", "--services", "40"]);
    }
    let output = demo.stderr(Stdio::inherit()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let rows: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [unmodified, client, both] = &rows[..] else { return None };
    let percent = |row: &Value| row["full_percent"].as_f64().unwrap_or(f64::NAN);
    let figure = format!(
        "{:.1}, client only {:.1}, client and server {:.1}: {} full of {}, for {} services",
        percent(unmodified),
        percent(client),
        percent(both),
        both["full"],
        both["full"].as_u64()? + both["resumed"].as_u64()?,
        both["services"]
    );
    let holds = percent(unmodified) >= UNSHARED_PERCENT && both["full"] == both["services"];
    Some(Found { figure, holds })
}
