//! The cost of handshakes to a client (latency and energy), from a model file.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Measured costs of full and resumed handshakes.
///
/// ```
/// use rejoin_capture::Model;
///
/// let model = Model::default();
/// // Table I of paper 004, the first column: 4,021 full handshakes and 974 resumptions.
/// let average = model.average(4_021.0, 974.0, None);
/// assert_eq!(format!("{:.2} ms", average.latency_ms.unwrap()), "840.44 ms");
/// assert_eq!(format!("{:.2} µAh", average.energy_uah.unwrap()), "51.29 µAh");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The source of the figures.
    pub name: String,
    /// The cost of a full handshake.
    pub full: Cost,
    /// The cost of a resumed handshake.
    pub resumed: Cost,
    /// The cost per 1,000 handshake bytes sent by both sides, as counted in the captures.
    #[serde(default)]
    pub per_kilobyte: Cost,
}

/// The cost of one handshake.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// Latency until data can flow, in milliseconds.
    pub latency_ms: f64,
    /// Charge drawn from the client's battery, in microampere hours.
    pub energy_uah: f64,
    /// CPU time of the server, in microseconds.
    pub server_cpu_us: f64,
    /// CPU time of the client, in microseconds.
    pub client_cpu_us: f64,
}

/// The average cost over many handshakes, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct AverageCost {
    /// Latency until data can flow, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Charge drawn from the client's battery, in microampere hours.
    pub energy_uah: Option<f64>,
    /// CPU time of the server, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// CPU time of the client, in microseconds.
    pub client_cpu_us: Option<f64>,
}

impl Default for Model {
    /// The costs on a smartphone behind Table I of paper 004, fitted by least squares to its six
    /// columns. They include the cost of the bytes.
    fn default() -> Self {
        let cost = |latency_ms, energy_uah| Cost { latency_ms, energy_uah, ..Cost::default() };
        Self {
            name: "paper 004".to_owned(),
            full: cost(906.53, 55.404),
            resumed: cost(567.60, 34.304),
            per_kilobyte: Cost::default(),
        }
    }
}

impl Model {
    /// Parses a model in TOML.
    ///
    /// # Errors
    /// [`Error::Model`] if the text is not a model, or a cost is negative or not a number.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let model: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::Model { line, what: error.message().replace('\n', "; ") }
        })?;
        let costs = [model.full, model.resumed, model.per_kilobyte].map(Cost::fields);
        if costs.iter().flatten().any(|cost| !cost.is_finite() || *cost < 0.0) {
            let what = "a cost is a number, 0 or above".to_owned();
            return Err(Error::Model { line: 1, what });
        }
        Ok(model)
    }

    /// The average cost of one handshake, for the given numbers of full and resumed handshakes and
    /// the average number of bytes both sides send, if that is known. Nothing is known of no handshakes, nor what bytes
    /// cost whose number is not known.
    pub fn average(&self, full: f64, resumed: f64, bytes: Option<f64>) -> AverageCost {
        let all = full + resumed;
        let (full_cost, resumed_cost) = (self.full.fields(), self.resumed.fields());
        let per_kilobyte = self.per_kilobyte.fields();
        let average = |at: usize| {
            let of_bytes = match per_kilobyte[at] {
                0.0 => 0.0,
                cost => cost * bytes? / 1_000.0,
            };
            let share = full / all;
            let average = full_cost[at] * share + resumed_cost[at] * (1.0 - share) + of_bytes;
            (all > 0.0).then_some(average)
        };
        AverageCost::of([0, 1, 2, 3].map(average))
    }

    /// Returns true if bytes cost something.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.per_kilobyte != Cost::default()
    }
}

impl Cost {
    const fn fields(self) -> [f64; 4] {
        [self.latency_ms, self.energy_uah, self.server_cpu_us, self.client_cpu_us]
    }
}

impl AverageCost {
    const fn of([latency_ms, energy_uah, server_cpu_us, client_cpu_us]: [Option<f64>; 4]) -> Self {
        Self { latency_ms, energy_uah, server_cpu_us, client_cpu_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table I of paper 004: full handshakes, resumptions, energy, latency.
    const TABLE_I: [(f64, f64, f64, f64); 6] = [
        (4_021.0, 974.0, 51.29, 840.44),
        (1_538.0, 3_457.0, 40.80, 671.96),
        (828.0, 4_167.0, 37.80, 623.79),
        (57_719.0, 12_935.0, 51.54, 844.48),
        (17_029.0, 53_625.0, 39.39, 649.29),
        (12_539.0, 58_115.0, 38.05, 627.75),
    ];

    /// No two costs with two decimals reproduce all six latencies to the last digit.
    #[test]
    fn table_i_of_the_paper_to_a_hundredth() {
        for (full, resumed, energy, latency) in TABLE_I {
            let average = Model::default().average(full, resumed, None);
            let (energy_uah, latency_ms) =
                (average.energy_uah.unwrap(), average.latency_ms.unwrap());
            let off = [energy_uah - energy, latency_ms - latency].map(f64::abs);
            assert!(off.iter().all(|off| *off <= 0.01), "{off:?}: {full} full, {resumed} resumed");
        }
    }

    #[test]
    fn bytes_cost_what_the_model_says() {
        let text =
            "name = 'x'\n[full]\nlatency_ms = 100\n[resumed]\n[per_kilobyte]\nlatency_ms = 2";
        let model = Model::parse(text).unwrap();
        let average = model.average(1.0, 3.0, Some(5_000.0));
        assert!((average.latency_ms.unwrap() - 35.0).abs() < 1e-9);
        // Without handshakes, or without the bytes that cost something, nothing is known.
        assert_eq!(model.average(0.0, 0.0, Some(5_000.0)), AverageCost::default());
        let average = model.average(1.0, 3.0, None);
        assert_eq!((average.latency_ms, average.energy_uah), (None, Some(0.0)));
    }

    #[test]
    fn what_is_no_model_is_said_with_its_line() {
        let refused = |text| Model::parse(text).unwrap_err().to_string();
        let text = refused("name = 'x'\n[full]\nlatency = 1\n[resumed]");
        assert!(text.contains("line 3") && text.contains("latency"), "{text}");
        let text = refused("name = 'x'\n[full]\nlatency_ms = -1\n[resumed]");
        assert!(text.contains("0 or above"), "{text}");
    }
}
