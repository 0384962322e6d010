//! The formats of metrics, and which of them a client gets.

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own, 0.0.4.
    Prometheus,
}

const OPENMETRICS: &str = "application/openmetrics-text";

impl Format {
    /// Returns the content type of a text in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the format for a client with this `Accept` field (RFC 9110, section 12.5.1). A client gets OpenMetrics
    /// only if it names OpenMetrics, without a version or with ours, and does not prefer plain text. Everybody else
    /// gets Prometheus' format, which all clients can read.
    pub fn accepted(accept: Option<&str>) -> Self {
        let ranges = || accept.unwrap_or_default().split(',').filter_map(Range::parse);
        let best = |is_meant: fn(&Range<'_>) -> bool| {
            ranges().filter(is_meant).map(|range| range.quality).fold(0.0, f32::max)
        };
        let open = best(|range| {
            let version = range.version.unwrap_or("1.0.0");
            range.is(OPENMETRICS) && version == "1.0.0"
        });
        let plain = best(|range| range.is("text/plain") || range.is("text/*"));
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// One range of media types in an `Accept` field.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> Range<'a> {
    /// Returns `None` for a quality that is not between 0 and 1.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { name: parts.next()?, version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim(), value.trim().trim_matches('"')) {
                ("q" | "Q", value) => range.quality = value.parse().ok()?,
                ("version", value) => range.version = Some(value),
                _ => {}
            }
        }
        (0.0..=1.0).contains(&range.quality).then_some(range)
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

#[cfg(test)]
mod tests {
    use super::Format::{self, OpenMetrics, Prometheus};

    /// The first two are sent by Prometheus 2.42 and 3.5.
    #[test]
    fn who_asks_for_openmetrics_gets_it_and_nobody_else() {
        for (accept, expected) in [
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;\
                 escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text ; Version=x, application/openmetrics-text", OpenMetrics),
            ("text/plain;q=0.5, application/openmetrics-text; version=\"1.0.0\"", OpenMetrics),
            ("application/openmetrics-text;q=0.5, text/plain", Prometheus),
            ("application/openmetrics-text;version=0.0.1", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=7", Prometheus),
            ("application/openmetrics-text;q=NaN", Prometheus),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Prometheus),
            ("text/plain;version=0.0.4", Prometheus),
            ("*/*", Prometheus),
            (";;=,,q=", Prometheus),
            ("", Prometheus),
        ] {
            assert_eq!(Format::accepted(Some(accept)), expected, "{accept}");
        }
        assert_eq!(Format::accepted(None), Prometheus);
    }
}
