//! `docs/metrics.md`, the dashboard and the rules, against what the exporters serve.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::names::{self, Metric};
use super::{Exporters, deploy};

const HEAD: &str = "| metric | type | labels | exporter | |\n|---|---|---|---|---|\n";
const OLD_HEAD: &str = "| old name | use |\n|---|---|\n";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")
}

fn text() -> String {
    std::fs::read_to_string(page()).expect("docs/metrics.md")
}

#[test]
fn the_page_lists_what_the_exporters_serve() {
    let served = names::of_all(&Exporters::start("listed"));
    let (old, present): (Vec<_>, Vec<_>) =
        served.into_iter().partition(|metric| metric.replaced_by().is_some());
    let mut page_text = text();
    for (head, rows) in [
        (HEAD, present.iter().map(row).collect::<String>()),
        (OLD_HEAD, old.iter().map(old_row).collect()),
    ] {
        let table = format!("{head}{rows}");
        if std::env::var_os("REJOIN_BLESS").is_some() {
            page_text = replaced(&page_text, head, &table);
            std::fs::write(page(), &page_text).expect("a file");
        }
        assert!(
            page_text.contains(&format!("\n\n{table}\n")),
            "docs/metrics.md is not what the exporters serve; REJOIN_BLESS=1 writes it anew\n{table}"
        );
    }
}

/// Returns a page with another table below its head.
fn replaced(page: &str, head: &str, table: &str) -> String {
    let (before, rest) = page.split_once(head).expect("a table");
    let after = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
    let after = if rest.starts_with('\n') { rest } else { after };
    format!("{before}{table}{after}")
}

fn row(metric: &Metric) -> String {
    let Metric { name, kind, help, labels, of } = metric;
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{name}` | {kind} | {} | {} | {help} |\n", labels.join(", "), of.join(", "))
}

fn old_row(metric: &Metric) -> String {
    let mut row = format!("| `{}` | ", metric.name);
    let new = metric.replaced_by().expect("an old name");
    let (new, with) = new.split_once(" with ").unwrap_or((new, ""));
    let (label, value) = with.split_once('=').unwrap_or_default();
    let labels = if with.is_empty() { String::new() } else { format!("{{{label}=\"{value}\"}}") };
    writeln!(row, "`{new}{labels}` |").expect("a string");
    row
}

/// Returns the names in the page's table: not the old ones.
fn known() -> BTreeSet<String> {
    let text = text();
    let (_, table) = text.split_once(HEAD).expect("a table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

/// Returns the words that begin as a metric's name does.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("rejoin_"));
    words.map(str::to_owned).collect()
}

#[test]
fn dashboard_and_rules_name_metrics_that_exist() {
    let known = known();
    let files =
        ["grafana/rejoin.json", "prometheus/rejoin.rules.yml", "prometheus/rejoin.rules.test.yml"];
    for file in files {
        let text = std::fs::read_to_string(deploy().join(file)).expect("a file");
        let named = named(&text);
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(named.len() > 5 && unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// A reason that the panel lacks would be sessions that are gone, and that it does not show.
#[test]
fn the_dashboard_has_each_reason_for_which_a_session_is_not_kept() {
    let text = std::fs::read_to_string(deploy().join("grafana/rejoin.json")).expect("a file");
    let shown = named(&text);
    let reasons = ["rejoin_cache_evicted_", "rejoin_cache_refused_"];
    let is_reason = |name: &&String| reasons.iter().any(|reason| name.starts_with(reason));
    let known = known();
    let known: Vec<_> = known.iter().filter(is_reason).collect();
    let missing: Vec<_> = known.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(known.len() >= 8 && missing.is_empty(), "{missing:?}");
}

#[test]
fn the_page_lists_the_alerts() {
    let rules = std::fs::read_to_string(deploy().join("prometheus/rejoin.rules.yml"));
    let rules = rules.expect("a file");
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.split_once("- alert: ")).collect();
    let page = text();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `Rejoin")?.split_once('`'));
    let listed: Vec<_> = rows.map(|(name, _)| format!("Rejoin{name}")).collect();
    assert_eq!(alerts.iter().map(|(_, alert)| *alert).collect::<Vec<_>>(), listed);
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(deploy().join("grafana/rejoin.json")).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

fn targets(panel: &Value) -> &[Value] {
    panel["targets"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the queries of the dashboard as Grafana sends them, for all instances and the last 15 seconds.
pub(super) fn queries() -> Vec<String> {
    let dashboard = dashboard();
    let queries = dashboard["panels"].as_array().expect("panels").iter().flat_map(targets);
    let query = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
    let set = |query: String| query.replace("$instance", ".*").replace("$__rate_interval", "15s");
    queries.map(query).map(set).collect()
}

/// The dashboard has all that Grafana needs to import it, and no panel covers another.
#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    assert!(dashboard["title"] == "Rejoin" && dashboard["schemaVersion"].as_u64() >= Some(36));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    assert!(variables.iter().any(|of| of["name"] == "datasource" && of["type"] == "datasource"));
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> =
        panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), panels.len());
    let mut cells = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|of| panel["gridPos"][of].as_u64().expect("a number"));
        assert!(x + w <= 24, "{panel}");
        let free = (x..x + w).all(|x| (y..y + h).all(|y| cells.insert((x, y))));
        assert!(free, "{panel}");
        assert!(panel["type"] == "row" || !targets(panel).is_empty(), "{panel}");
        for target in targets(panel) {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            assert!(target["expr"].as_str().is_some_and(|query| query.contains("rejoin_")));
        }
    }
}
