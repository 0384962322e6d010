//! `docs/compat-clients.md`: a text with tables in it, which tests write.

use std::path::PathBuf;

/// A part of the document that is written by a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The table of programs.
    Tasks,
    /// The tables of faults.
    Faults,
}

impl Part {
    fn marks(self) -> [&'static str; 2] {
        match self {
            Self::Tasks => ["<!-- measured -->\n", "<!-- /measured -->\n"],
            Self::Faults => ["<!-- faults -->\n", "<!-- /faults -->\n"],
        }
    }

    /// The text before it, the part itself, and the text after it.
    fn split(self) -> [String; 3] {
        let text = std::fs::read_to_string(path()).expect("the document");
        let [begin, end] = self.marks();
        let (before, rest) = text.split_once(begin).expect("where the part begins");
        let (part, after) = rest.split_once(end).expect("where it ends");
        [before, part, after].map(str::to_owned)
    }

    /// Returns the text of the part.
    pub fn read(self) -> String {
        let [_, part, _] = self.split();
        part
    }

    /// Replaces the text of the part.
    pub fn write(self, text: &str) {
        let [before, _, after] = self.split();
        let [begin, end] = self.marks();
        std::fs::write(path(), format!("{before}{begin}{text}{end}{after}")).expect("the document");
    }
}

/// Returns true if the document is to be written anew.
pub fn is_blessed() -> bool {
    std::env::var_os("REJOIN_BLESS").is_some()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat-clients.md")
}
