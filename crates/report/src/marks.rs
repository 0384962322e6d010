//! Marks that tell lines apart, with or without colour vision.

use std::fmt;

/// Colours on white, of different lightness, after Okabe and Ito's; [`CHART_STYLE`](crate::CHART_STYLE) has
/// those for a dark page.
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#c8501e", "#12805c", "#a8488a", "#9a6a00", "#3d9bd6", "#6b2f24", "#4a4a4a"];
/// Shapes around their centre.
const SHAPES: [&str; 8] = [
    "M4 0A4 4 0 1 1-4 0 4 4 0 1 1 4 0Z",
    "M-3.6-3.6H3.6V3.6H-3.6Z",
    "M0-4.8L4.6 3.4H-4.6Z",
    "M0-5L5 0 0 5-5 0Z",
    "M0 4.8L4.6-3.4H-4.6Z",
    "M-1.9-5H1.9V-1.9H5V1.9H1.9V5H-1.9V1.9H-5V-1.9H-1.9Z",
    "M0-6L1.6-2 5.8-1.8 2.5.8 3.6 4.9 0 2.6-3.6 4.9-2.5.8-5.8-1.8-1.6-2Z",
    "M-4.8-4.8H4.8L1.2 0 4.8 4.8H-4.8L-1.2 0Z",
];

/// Colour, marker and dashes of one line: 48 different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    at: usize,
}

impl Mark {
    /// Returns the mark of the line at this place among all.
    pub const fn of(at: usize) -> Self {
        Self { at }
    }

    /// Returns the place of the colour among the style sheet's.
    pub const fn hue(self) -> usize {
        self.at % COLOURS.len()
    }

    /// Returns the colour on white.
    pub const fn colour(self) -> &'static str {
        COLOURS[self.hue()]
    }

    /// Returns the attribute of a stroke; `None` for a solid line.
    pub const fn dashes(self) -> Option<&'static str> {
        match (self.at / COLOURS.len()) % 3 {
            0 => None,
            1 => Some("7 4"),
            _ => Some("2 4"),
        }
    }

    const fn is_hollow(self) -> bool {
        !(self.at / COLOURS.len()).is_multiple_of(2)
    }
}

/// The marker, around the origin, in the current colour.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Lines of one colour have different shapes.
        let shape = SHAPES[(self.at + self.at / COLOURS.len() * 3) % SHAPES.len()];
        // An edge in the paper's colour keeps crossing lines apart.
        if self.is_hollow() {
            write!(
                f,
                r##"<path class="hollow" fill="#fff" stroke="currentColor" stroke-width="1.6" d="{shape}"/>"##
            )
        } else {
            write!(
                f,
                r##"<path class="solid" fill="currentColor" stroke="#fff" stroke-width="1" d="{shape}"/>"##
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_look_alike() {
        let look = |at| {
            let mark = Mark::of(at);
            (mark.colour(), mark.dashes(), mark.to_string())
        };
        for a in 0..48 {
            assert!((0..a).all(|b| look(a) != look(b)), "{a}");
        }
    }
}
