//! The names that metrics had before they followed one scheme. They are served for one release beside the present ones;
//! the next release drops this file and the call of [`families`].

use super::{Family, Labels};

/// An old name, and the samples of the present metric that it has.
struct Old {
    name: &'static str,
    new: &'static str,
    /// Only those with this label, without it.
    only: Option<(&'static str, &'static str)>,
    /// The present name of a label, and the old one.
    label: Option<(&'static str, &'static str)>,
}

const fn renamed(name: &'static str, new: &'static str) -> Old {
    Old { name, new, only: None, label: None }
}

const fn of_kind(name: &'static str, new: &'static str, kind: &'static str) -> Old {
    Old { only: Some(("kind", kind)), ..renamed(name, new) }
}

const OLD: [Old; 14] = [
    of_kind("handshakes_full", "server_handshakes", "full"),
    of_kind("handshakes_resumed", "server_handshakes", "resumed"),
    of_kind("handshakes_failed", "server_handshakes", "failed"),
    renamed("requests", "server_requests"),
    renamed("connections", "server_connections"),
    renamed("cpu_seconds", "server_cpu_seconds"),
    renamed("up_seconds", "server_up_seconds"),
    of_kind("cache_full_handshakes", "cache_handshakes", "full"),
    of_kind("cache_resumed_handshakes", "cache_handshakes", "resumed"),
    renamed("manager_across_names", "manager_cross_name_resumptions"),
    renamed("manager_refused", "manager_refused_sessions"),
    renamed("manager_early_data", "manager_early_data_accepted"),
    renamed("manager_open", "manager_connections"),
    Old { label: Some(("reason", "why")), ..renamed("manager_directly", "manager_bypasses") },
];

/// Returns the families of old names.
pub(super) fn families(of: &[Family]) -> Vec<Family> {
    let find = |name: &str| of.iter().find(|family| family.name == name);
    OLD.iter().filter_map(|old| find(old.new).map(|new| old.family(new))).collect()
}

impl Old {
    fn family(&self, new: &Family) -> Family {
        let with =
            self.only.map_or_else(String::new, |(name, value)| format!(" with {name}={value}"));
        let present = format!("rejoin_{}{}", new.name, new.kind.suffix());
        let samples = new.samples.iter().filter(|(labels, _)| self.has(labels));
        Family {
            name: self.name.to_owned(),
            help: format!("Deprecated: use {present}{with}").into(),
            kind: new.kind,
            samples: samples.map(|(labels, number)| (self.labels(labels), *number)).collect(),
        }
    }

    fn has(&self, labels: &Labels) -> bool {
        self.only.is_none_or(|only| labels.iter().any(|(name, value)| (*name, &**value) == only))
    }

    fn labels(&self, labels: &Labels) -> Labels {
        let kept =
            labels.iter().filter(|(name, _)| self.only.is_none_or(|(only, _)| *name != only));
        let renamed =
            |name| self.label.filter(|(new, _)| *new == name).map_or(name, |(_, old)| old);
        kept.map(|(name, value)| (renamed(name), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Format, Meters, by};

    #[test]
    fn an_old_name_has_the_samples_that_it_had() {
        let mut meters = Meters::new(vec![("cache", "web".into())]);
        meters.counters(
            "cache_handshakes",
            "Handshakes",
            by("kind", [("full", 3), ("resumed", 5)]),
        );
        meters.counters("manager_bypasses", "Bypasses", by("reason", [("datagrams", 7)]));
        for (format, suffix) in [(Format::OpenMetrics, ""), (Format::Prometheus, "_total")] {
            let text = meters.text(format);
            for line in [
                "rejoin_cache_handshakes_total{cache=\"web\",kind=\"full\"} 3",
                "rejoin_cache_full_handshakes_total{cache=\"web\"} 3",
                "rejoin_cache_resumed_handshakes_total{cache=\"web\"} 5",
                "rejoin_manager_directly_total{cache=\"web\",why=\"datagrams\"} 7",
                &format!(
                    "# HELP rejoin_cache_full_handshakes{suffix} Deprecated: use \
                     rejoin_cache_handshakes_total with kind=full"
                ),
            ] {
                assert!(text.lines().any(|told| told == line), "{line}: {text}");
            }
            assert!(!text.contains("rejoin_requests"), "{text}");
        }
    }
}
