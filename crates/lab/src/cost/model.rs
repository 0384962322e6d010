//! Paper 001's model of a transaction's cost: a straight line over the size of the response, and
//! what it says of handshake, cipher and remainder (§3, Equations 3 to 5).
//!
//! Pure. A line's times may be of any unit, the same for all lines of a model; sizes are in KB of
//! 1,024 bytes, as in the paper.

use serde::Serialize;

/// Bytes of the paper's Kbyte.
pub const KB: f64 = 1_024.0;

/// Sizes that a line is fitted through at least.
pub const LEAST_SIZES: usize = 4;

/// Equation 3: `T = constant + per_kb · d`, with `d` in KB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// The part of a transaction that does not depend on the size of its response.
    pub constant: f64,
    /// The part that each KB of the response adds.
    pub per_kb: f64,
}

impl Line {
    /// The cost at a size in KB.
    pub fn at(self, kb: f64) -> f64 {
        self.constant + self.per_kb * kb
    }
}

/// A measured cost at a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// The size, in KB.
    pub kb: f64,
    /// The cost, above 0.
    pub cost: f64,
}

/// A line through points, and how far they are off it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// The line.
    pub line: Line,
    /// For each point, how far it lies above the line, in percent of the point.
    pub residuals: Vec<Residual>,
}

/// How far a point lies above its line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Residual {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// In percent of its cost; below 0 where the line is above the point.
    pub percent: f64,
}

impl Fit {
    /// By least squares of the residuals in percent. Costs of different sizes are a thousandfold
    /// apart, and noise is in proportion to them: in absolute terms the largest size alone would
    /// decide. `None` unless there are points of [`LEAST_SIZES`] sizes, all costs above 0.
    pub fn through(points: &[Point]) -> Option<Self> {
        let mut sizes: Vec<f64> = points.iter().map(|point| point.kb).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let usable = |point: &Point| point.cost > 0.0 && (point.cost + point.kb).is_finite();
        if sizes.len() < LEAST_SIZES || !points.iter().all(usable) {
            return None;
        }
        let weighted = |value: fn(&Point) -> f64| -> f64 {
            points.iter().map(|point| value(point) / (point.cost * point.cost)).sum()
        };
        let weight = weighted(|_| 1.0);
        let (kb, cost) = (weighted(|p| p.kb) / weight, weighted(|p| p.cost) / weight);
        // Around the means: the sums of squares themselves would cancel each other's digits out.
        let (mut along, mut across) = (0.0, 0.0);
        for point in points {
            let weight = 1.0 / (point.cost * point.cost);
            along += weight * (point.kb - kb) * (point.cost - cost);
            across += weight * (point.kb - kb) * (point.kb - kb);
        }
        let per_kb = along / across;
        let line = Line { constant: cost - per_kb * kb, per_kb };
        let residual = |point: &Point| {
            let percent = (point.cost - line.at(point.kb)) / point.cost * 100.0;
            Residual { point: *point, percent }
        };
        Some(Self { line, residuals: points.iter().map(residual).collect() })
    }

    /// The largest residual, in percent, whatever its sign.
    pub fn worst_percent(&self) -> f64 {
        self.residuals.iter().map(|residual| residual.percent.abs()).fold(0.0, f64::max)
    }
}

/// The lines of one kind of TLS, and of none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Model {
    /// `Ts`: a handshake for each transaction.
    pub tls: Line,
    /// `Tn`: no TLS.
    pub plain: Line,
}

/// The parts of a transaction's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    /// `Th`: the handshake.
    pub handshake: f64,
    /// `Te`: encryption, and what it does to caches and copies.
    pub cipher: f64,
    /// `Tn`: everything else.
    pub remainder: f64,
}

impl Model {
    /// Equation 5: the paper's measured model, in milliseconds, of two processors, 512-bit RSA and
    /// RC4.
    pub const PAPER: Self = Self {
        tls: Line { constant: 1.51, per_kb: 0.04 },
        plain: Line { constant: 0.24, per_kb: 0.01 },
    };

    /// Equation 4, at a size in KB.
    pub fn parts(self, kb: f64) -> Parts {
        Parts {
            handshake: self.tls.constant - self.plain.constant,
            cipher: (self.tls.per_kb - self.plain.per_kb) * kb,
            remainder: self.plain.at(kb),
        }
    }

    /// The same transactions with another handshake, of which `tls` is the line: its constant
    /// replaces ours, and what a KB costs stays, for the cipher is the same.
    pub fn with_handshake_of(self, tls: Line) -> Self {
        Self { tls: Line { constant: tls.constant, ..self.tls }, ..self }
    }
}

impl Parts {
    /// `Ts`: all of it.
    pub fn total(self) -> f64 {
        self.handshake + self.cipher + self.remainder
    }

    /// Each in percent of the total.
    pub fn percent(self) -> Self {
        let share = |part: f64| part / self.total() * 100.0;
        Self {
            handshake: share(self.handshake),
            cipher: share(self.cipher),
            remainder: share(self.remainder),
        }
    }
}

/// Percent to one decimal, cut off as the paper does: its 43.0 % is 1.27 / 2.95 = 43.05 %.
pub fn percent_cut(percent: f64) -> String {
    // Half a unit of what the sums above may be off.
    let tenths = (percent * 10.0 + percent.signum() * 1e-6).trunc();
    // Nothing has no sign.
    format!("{:.1} %", tenths / 10.0 + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_coefficients_give_the_papers_shares() {
        let Parts { handshake, cipher, remainder } = Model::PAPER.parts(36.0).percent();
        let printed = [handshake, cipher, remainder].map(percent_cut);
        assert_eq!(printed, ["43.0 %", "36.6 %", "20.3 %"]);
    }

    #[test]
    fn a_line_is_found_again() {
        for line in [Model::PAPER.tls, Model::PAPER.plain, Line { constant: 917.0, per_kb: 0.5 }] {
            let points = points(line, &[30.0 / KB, 36.0, 256.0, 1_024.0]);
            let fit = Fit::through(&points).expect("four sizes");
            assert!((fit.line.constant - line.constant).abs() < 1e-9 * line.constant, "{fit:?}");
            assert!((fit.line.per_kb - line.per_kb).abs() < 1e-9, "{fit:?}");
            assert!(fit.worst_percent() < 1e-6, "{fit:?}");
        }
    }

    #[test]
    fn residuals_are_as_small_as_they_can_be() {
        let mut points = points(Model::PAPER.tls, &[0.03, 4.0, 36.0, 256.0, 1_024.0]);
        for (point, disturbed) in points.iter_mut().zip([1.04, 0.97, 1.02, 0.95, 1.03]) {
            point.cost *= disturbed;
        }
        let squares = |line: Line| -> f64 {
            points.iter().map(|p| ((p.cost - line.at(p.kb)) / p.cost).powi(2)).sum()
        };
        let Fit { line, residuals } = Fit::through(&points).expect("five sizes");
        for (constant, per_kb) in [(1.001, 1.0), (0.999, 1.0), (1.0, 1.001), (1.0, 0.999)] {
            let beside = Line { constant: line.constant * constant, per_kb: line.per_kb * per_kb };
            assert!(squares(line) < squares(beside), "{line:?} {beside:?}");
        }
        assert!(residuals[0].percent > 0.0 && residuals[3].percent < 0.0, "{residuals:?}");
    }

    #[test]
    fn three_sizes_are_too_few() {
        let few = points(Model::PAPER.tls, &[1.0, 36.0, 1_024.0]);
        assert_eq!(Fit::through(&few), None);
        let again = points(Model::PAPER.tls, &[1.0, 36.0, 36.0, 1_024.0]);
        assert_eq!(Fit::through(&again), None);
        let mut free = points(Model::PAPER.tls, &[1.0, 2.0, 36.0, 1_024.0]);
        free[2].cost = 0.0;
        assert_eq!(Fit::through(&free), None);
    }

    #[test]
    fn another_handshake_leaves_the_rest() {
        let resumed = Model::PAPER.with_handshake_of(Line { constant: 0.5, per_kb: 0.07 });
        let (full, resumed) = (Model::PAPER.parts(36.0), resumed.parts(36.0));
        assert_eq!((full.cipher, full.remainder), (resumed.cipher, resumed.remainder));
        assert!((full.total() - resumed.total() - 1.01).abs() < 1e-12);
    }

    #[test]
    fn percent_are_cut_and_not_rounded() {
        let printed = [43.0508, 36.6101, 20.3389, 99.99, 43.0, -0.04].map(percent_cut);
        assert_eq!(printed, ["43.0 %", "36.6 %", "20.3 %", "99.9 %", "43.0 %", "0.0 %"]);
    }

    fn points(line: Line, sizes: &[f64]) -> Vec<Point> {
        sizes.iter().map(|kb| Point { kb: *kb, cost: line.at(*kb) }).collect()
    }
}
