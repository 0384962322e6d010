//! A region in the middle of other memory that must stay as it is.

use rejoin_cache::{Layout, Line, Memory};

/// Lines before the region and after it.
const FENCE_LINES: usize = 3;

/// Fails the test when it is dropped with a fence damaged.
#[derive(Debug)]
pub struct Fenced {
    lines: Vec<Line>,
}

impl Fenced {
    pub fn new(layout: &Layout) -> Self {
        let region = vec![Line::ZERO; layout.region_lines()];
        Self { lines: [vec![fence(); FENCE_LINES], region, vec![fence(); FENCE_LINES]].concat() }
    }
}

impl Memory for Fenced {
    fn lines(&mut self) -> &mut [Line] {
        let end = self.lines.len() - FENCE_LINES;
        &mut self.lines[FENCE_LINES..end]
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        let (before, rest) = self.lines.split_at(FENCE_LINES);
        let (_, after) = rest.split_at(rest.len() - FENCE_LINES);
        let whole =
            [before, after].concat().iter().all(|line| bytes_of(line) == bytes_of(&fence()));
        assert!(whole || std::thread::panicking(), "the engine wrote outside its region");
    }
}

fn fence() -> Line {
    bytemuck::cast([0xfe_u8; size_of::<Line>()])
}

fn bytes_of(line: &Line) -> &[u8] {
    bytemuck::bytes_of(line)
}
