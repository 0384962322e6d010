//! The names in the text of metrics.

use std::collections::BTreeSet;

use super::{Exporters, metrics, samples};

/// A metric as an exporter serves it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) help: String,
    pub(super) labels: BTreeSet<String>,
    /// The exporters that serve it.
    pub(super) of: Vec<&'static str>,
}

impl Metric {
    /// The metric that replaces it, if it has an old name.
    pub(super) fn replaced_by(&self) -> Option<&str> {
        self.help.strip_prefix("Deprecated: use ")
    }
}

/// Returns the metrics of all exporters, each once.
pub(super) fn of_all(exporters: &Exporters) -> Vec<Metric> {
    let mut all = Vec::<Metric>::new();
    for (exporter, address) in exporters.all() {
        for metric in of(&metrics(address, "text/plain").1) {
            match all.iter_mut().find(|known| known.name == metric.name) {
                Some(known) => {
                    assert_eq!((&known.kind, &known.help), (&metric.kind, &metric.help));
                    known.labels.extend(metric.labels);
                    known.of.push(exporter);
                }
                None => all.push(Metric { of: vec![exporter], ..metric }),
            }
        }
    }
    all
}

/// Returns the metrics of a text in Prometheus' format.
fn of(text: &str) -> Vec<Metric> {
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let metric = |(name, help): (&str, &str)| {
        let kind = format!("# TYPE {name} ");
        let kind = text.lines().find_map(|line| line.strip_prefix(&kind)).expect("a type");
        let labels = samples(text).into_iter().filter_map(|line| {
            let (labels, _) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once('}')?;
            Some(labels)
        });
        let names = labels.flat_map(|labels| labels.split("\",").filter_map(label)).collect();
        let (name, kind, help) = (name.to_owned(), kind.to_owned(), help.to_owned());
        Metric { name, kind, help, labels: names, of: Vec::new() }
    };
    helps.map(metric).collect()
}

fn label(text: &str) -> Option<String> {
    text.split_once("=\"").map(|(name, _)| name.to_owned())
}

/// Naming rules of Prometheus and OpenMetrics, and our own: one name for handshakes, base units, few labels.
#[test]
fn names_follow_one_scheme() {
    let exporters = Exporters::start("scheme");
    for Metric { name, kind, help, labels, of } in of_all(&exporters) {
        if help.starts_with("Deprecated: use ") {
            continue;
        }
        let what = format!("{name} of {of:?}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{what}");
        let part = name.strip_prefix("rejoin_").and_then(|rest| rest.split('_').next());
        let parts = ["build", "server", "cache", "manager", "agent", "ticket", "capture"];
        assert!(part.is_some_and(|part| parts.contains(&part)), "{what}");
        let unit = name.trim_end_matches("_total").rsplit('_').next().expect("a word");
        let others = ["ms", "us", "milliseconds", "kib", "mib", "percent", "minutes", "hours"];
        assert!(!others.contains(&unit), "{what}");
        assert!(!name.contains("handshakes") || labels.contains("kind"), "{what}");
        assert!(labels.len() <= 3, "{what}: {labels:?}");
        assert!(!help.is_empty() && help.len() < 120 && !help.ends_with('.'), "{what}: {help}");
    }
}
