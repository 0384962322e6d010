//! The links of all documents lead to files and headings that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the documents. Those in `tests` are templates of others.
fn documents() -> Vec<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root");
    let is_ours = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name.starts_with('.') || ["target", "tests"].contains(&&*name))
    };
    let files = walkdir::WalkDir::new(root).into_iter().filter_entry(is_ours).flatten();
    let files = files.map(walkdir::DirEntry::into_path);
    files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect()
}

/// Returns the text without blocks of code and without code in backticks.
fn prose(text: &str) -> String {
    let outside = text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    outside.split('`').step_by(2).collect()
}

/// Returns the targets of a document's links.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Returns the names of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    let headings = outside.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept =
            text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(name).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    assert!(documents.len() > 25, "{documents:?}");
    let mut checked = 0;
    let mut broken = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(document).expect("UTF-8");
        for link in
            links(&text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = document.parent().expect("a folder");
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            let is_there = match anchor {
                "" => target.exists(),
                anchor => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
                }
            };
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn anchors_are_named_as_on_github() {
    let text = "# What `rejoin` is\n```\n# no heading\n```\n## Who can, and who can't\n";
    let names = ["what-rejoin-is", "who-can-and-who-cant"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(names));
}
