//! The size and shape of a cache.

/// The size of a cache, its ways and its lines: possible ones only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Geometry {
    pub(super) size_bytes: u32,
    /// Lines that a line of memory can be in.
    pub(super) ways: u32,
    pub(super) line_bytes: u32,
}

/// Lines are not smaller than this, so that numbers of lines leave room.
const LEAST_LINE_BYTES: u32 = 16;

impl Geometry {
    /// `None` unless lines and sets are powers of two in number and size, as caches are built.
    pub(super) fn new(size_bytes: u32, ways: u32, line_bytes: u32) -> Option<Self> {
        let geometry = Self { size_bytes, ways, line_bytes };
        let line = Some(line_bytes).filter(|bytes| *bytes >= LEAST_LINE_BYTES)?;
        let way = ways.checked_mul(line).filter(|bytes| *bytes > 0)?;
        let whole = size_bytes.is_multiple_of(way) && line_bytes.is_power_of_two();
        (whole && geometry.sets().is_power_of_two()).then_some(geometry)
    }

    pub(super) fn sets(self) -> u32 {
        self.size_bytes / (self.ways * self.line_bytes)
    }

    /// Returns the option for valgrind's tools.
    pub(super) fn option(self, name: &str) -> String {
        format!("--{name}={},{},{}", self.size_bytes, self.ways, self.line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_built_is_a_cache() {
        let geometry = Geometry::new(16 << 10, 4, 32).expect("the paper's first level");
        assert_eq!((geometry.sets(), geometry.option("D1")), (128, "--D1=16384,4,32".to_owned()));
        assert!(Geometry::new(576 << 10, 18, 32).is_some(), "as many sets, and more ways");
        for (size, ways, line) in [
            (0, 4, 32),
            (100, 4, 32),
            (48 << 10, 4, 32),
            (128, 8, 32),
            (96, 1, 48),
            (64, 0, 32),
            (64, 4, 0),
            (64, 4, 8),
            (64, u32::MAX, 2),
        ] {
            assert_eq!(Geometry::new(size, ways, line), None, "{size} {ways} {line}");
        }
    }
}
