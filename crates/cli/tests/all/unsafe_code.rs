//! The table of unsafe code in SECURITY.md, against the sources. `REJOIN_BLESS=1` writes it.

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const SECURITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
const HEAD: &str = "| crate | blocks | functions | implementations |\n|---|---|---|---|\n";

/// Returns all Rust sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let sources = entries.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    sources.filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}

/// Returns true if the compiler refuses unsafe code in a crate.
fn forbids(of_crate: &str) -> bool {
    let root =
        ["lib.rs", "main.rs"].map(|root| Path::new(CRATES).join(of_crate).join("src").join(root));
    root.iter()
        .filter_map(|root| fs::read_to_string(root).ok())
        .all(|text| text.contains("#![forbid(unsafe_code)]"))
}

/// Returns a crate's row, or `None` if it has no unsafe code.
fn row(of_crate: &str) -> Option<String> {
    let (mut blocks, mut functions, mut implementations) = (0, 0, 0);
    for path in sources(&Path::new(CRATES).join(of_crate).join("src")) {
        let text = fs::read_to_string(path).expect("a source");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            blocks += line.matches("unsafe {").count();
            implementations += line.matches("unsafe impl").count();
            let is_type = line.contains("type ") || line.contains("Option<unsafe");
            let is_function =
                line.contains("unsafe fn ") || line.contains("unsafe extern \"C\" fn ");
            functions += usize::from(is_function && !is_type);
        }
    }
    let is_any = blocks + functions + implementations > 0;
    is_any.then(|| format!("| `{of_crate}` | {blocks} | {functions} | {implementations} |\n"))
}

#[test]
fn the_table_of_unsafe_code_is_true() {
    let crates = fs::read_dir(CRATES).expect("the crates");
    let mut crates: Vec<_> = crates.map(|entry| entry.expect("an entry").file_name()).collect();
    crates.sort();
    let rows: String = crates
        .iter()
        .map(|name| name.to_string_lossy())
        .filter_map(|name| {
            let row = row(&name);
            assert!(row.is_some() || forbids(&name), "{name} has no unsafe code, and may have");
            row
        })
        .collect();
    let table = format!("{HEAD}{rows}");
    let text = fs::read_to_string(SECURITY).expect("it is there");
    let (before, rest) = text.split_once(HEAD).expect("a table of unsafe code");
    let after = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
    if std::env::var_os("REJOIN_BLESS").is_some() {
        fs::write(SECURITY, format!("{before}{table}{after}")).expect("a file");
    } else {
        assert!(
            text.contains(&table),
            "SECURITY.md has another table than\n{table}\n(REJOIN_BLESS=1)"
        );
    }
}
