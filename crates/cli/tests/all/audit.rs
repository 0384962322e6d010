//! The tests that docs/audit.md names, against the sources.

use std::fs;
use std::path::Path;

const AUDIT: &str = include_str!("../../../../docs/audit.md");

/// Returns the sections of the findings: the id, and the text.
fn findings() -> Vec<(&'static str, &'static str)> {
    let sections = AUDIT.split("\n### ").skip(1);
    sections.map(|section| section.split_once('\n').expect("a text")).collect()
}

/// Returns the crate and the paths of the tests that a section names: the words in backticks after `**Tests.**`.
fn tests(section: &str) -> Vec<(String, String)> {
    let (_, named) = section.split_once("\n**Tests.** ").expect("tests");
    let named = named.split("\n\n").next().expect("a paragraph");
    let mut of_crate = String::new();
    let mut tests = Vec::new();
    for word in named.split('`').skip(1).step_by(2) {
        match word.strip_prefix("rejoin-") {
            Some(name) => of_crate = name.to_owned(),
            None => tests.push((of_crate.clone(), word.to_owned())),
        }
    }
    tests
}

/// Returns true if a crate has this test: `module::test` in `tests/all/module.rs` or `src/module.rs`, where a module
/// `tests` is in the file of the module around it.
fn exists(of_crate: &str, path: &str) -> bool {
    let modules: Vec<_> = path.split("::").filter(|module| *module != "tests").collect();
    let Some((name, modules)) = modules.split_last() else { return false };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = modules.join("/");
    let lines = ["tests/all", "src"].into_iter().flat_map(|folder| {
        let place = crates.join(of_crate).join(folder);
        [format!("{file}.rs"), format!("{file}/mod.rs")].map(|file| place.join(file))
    });
    let sources = lines.filter_map(|path| fs::read_to_string(path).ok());
    let is_there = |source: String| {
        let head = format!("fn {name}()");
        let mut above = "";
        source.lines().any(|line| {
            let found = line.contains(&head) && above.contains("#[");
            above = line.trim();
            found
        })
    };
    sources.into_iter().any(is_there)
}

/// The findings that were mended: servers, cluster and commands, proof, clients.
const IDS: &str =
    "S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 T1 T2 T3 T4 T7 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 T8";

#[test]
fn every_test_that_the_audit_names_exists() {
    let findings = findings();
    let ids: Vec<_> = findings.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.join(" "), IDS);
    for (id, section) in findings {
        for part in ["\n**Was.** ", "\n**Mend.** "] {
            assert!(section.contains(part), "{id}: no {part:?}");
        }
        let tests = tests(section);
        assert!(!tests.is_empty(), "{id} names no test");
        for (of_crate, path) in tests {
            assert!(exists(&of_crate, &path), "{id}: rejoin-{of_crate} has no test {path}");
        }
    }
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    assert!(exists("cli", "audit::a_test_that_is_not_there_is_noticed"));
    assert!(exists("cli", "process::tests::an_unknown_user_is_an_error"));
    assert!(!exists("cli", "audit::no_such_test") && !exists("cli", "audit::findings"));
    assert!(!exists("cluster", "audit::a_test_that_is_not_there_is_noticed"));
}

#[test]
fn the_guide_says_what_a_stolen_memory_and_a_new_key_mean() {
    let guide = include_str!("../../../../docs/cluster.md");
    let rows: Vec<_> =
        guide.lines().filter(|line| line.starts_with("| one machine's memory")).collect();
    let [row] = rows[..] else { panic!("one row: {rows:?}") };
    assert!(row.contains("forge") && row.contains("client's identity"), "{row}");
    let (_, replacing) = guide.split_once("If the key file leaks").expect("a sentence");
    let (replacing, _) = replacing.split_once("\n## ").expect("a section");
    for part in [
        "Sessions and tickets from before are gone then",
        "What the attacker keeps: everything that was read from Valkey before",
        "The secret of session ids is not\nreplaced",
    ] {
        assert!(replacing.contains(part), "{part}");
    }
}

#[test]
fn the_guides_say_what_tickets_off_costs_and_what_may_be_swapped() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let says = |page: &str, part: &str| {
        let text = fs::read_to_string(docs.join(page)).expect("a page");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(part), "{page} does not say {part:?}");
    };
    for page in ["nginx.md", "haproxy.md", "apache.md", "systemd.md", "servers.md"] {
        says(page, "rograms in Go then resume over TLS 1.3 only");
    }
    says("servers.md", "may write sessions and ticket keys to the swap space");
    says("systemd.md", "can be written to the swap space");
    says("../SECURITY.md", "or the machine swaps and the memory is not locked");
}
