//! Fig. 2 of paper 000, by `rejoin bench throughput`.

use rejoin_testkit::serve::scratch;
use rejoin_testkit::shipped::rejoin;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Effort, Found, median};

/// Times tickets', up to saturation.
const OF_TICKETS: f64 = 0.97;
/// Times OpenSSL's own cache's, up to saturation and past it.
const OF_OPENSSL: [f64; 2] = [1.0, 1.3];

/// Transactions and CPU time are summed over all numbers of devices on one side of saturation, round by round.
/// Servers keep up with their devices: the rate of an overloaded server depends on the devices that wait. Where the
/// machine did not keep up with one of the servers, that number of devices is left out of that round for all of them.
pub(crate) fn fig_2(effort: Effort) -> Option<Found> {
    let mut bench = Command::new(rejoin());
    bench.args(["bench", "throughput", "--json", "--resumption", "predictive,openssl,tickets"]);
    bench.args(["--keep-up", "--quick", "--rounds", if effort.quick { "1" } else { "5" }]);
    let directory = scratch("check-cost");
    bench.arg("--directory").arg(&directory).arg("--html").arg(directory.join("fig-2.html"));
    let output = bench.stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let failed = |why: &str| Some(Found { figure: why.to_owned(), holds: false });
    if !matches!(output.status.code(), Some(0 | 3)) {
        return failed("it could not be measured");
    }
    // The rows and the chart stay there for a reader; the figure does not depend on them.
    let _ = std::fs::write(directory.join("fig-2.jsonl"), &output.stdout);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Value> =
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let place = |row: &Value| (row["round"].clone(), row["devices"].clone());
    let is_bad = |row: &&Value| row["kept_up"] == Value::Bool(false);
    let bad: Vec<_> = rows.iter().filter(is_bad).map(place).collect();
    let kept: Vec<_> = rows.iter().filter(|row| !bad.contains(&place(row))).collect();
    if 2 * kept.len() < rows.len() {
        return failed("the machine did not keep up: end other programs");
    }
    let rounds = 0..=rows.iter().filter_map(|row| row["round"].as_u64()).max()?;
    let times = |name, past| {
        let rate = |name, round| per_cpu_s(&kept, name, past, round);
        let each = rounds.clone();
        let each = each.filter_map(|round| Some(rate("predictive", round)? / rate(name, round)?));
        let each: Vec<f64> = each.collect();
        (!each.is_empty()).then(|| median(each))
    };
    let (tickets, openssl) = (times("tickets", false)?, times("openssl", false)?);
    let (past, tickets_past) = (times("openssl", true)?, times("tickets", true)?);
    let devices = rows.first()?["saturation_devices"].as_u64()?;
    let figure = format!(
        "{tickets:.2} and {openssl:.2}; past {devices} devices {past:.2} (tickets' {tickets_past:.2}); {} of {} rows",
        kept.len(),
        rows.len()
    );
    let holds = tickets >= OF_TICKETS && openssl >= OF_OPENSSL[0] && past >= OF_OPENSSL[1];
    Some(Found { figure, holds })
}

fn per_cpu_s(rows: &[&Value], name: &str, past: bool, round: u64) -> Option<f64> {
    let mut sums = (0.0, 0.0);
    for row in rows.iter().filter(|row| row["resumption"] == name && row["round"] == round) {
        let is_past = row["devices"].as_u64()? > row["saturation_devices"].as_u64()?;
        let transactions = row["transactions"].as_f64()?;
        if is_past == past {
            sums.0 += transactions;
            sums.1 += transactions * row["server_cpu_us"].as_f64()? / 1e6;
        }
    }
    (sums.1 > 0.0).then(|| sums.0 / sums.1)
}
