//! A test of all options against `docs/glossary.md`.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};

use crate::Arguments;

const DOCUMENT: &str = include_str!("../../../docs/glossary.md");

/// Calls `each` with every visible command, and with its name.
fn walk(command: &Command, name: &str, each: &mut dyn FnMut(&str, &Command)) {
    each(name, command);
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("{name} {}", command.get_name());
        walk(command, name.trim_start(), each);
    }
}

/// Returns the cells of the table below a heading of the document, without its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the words in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// Returns the name of an option's value. A list has the name of its items; a flag has none.
fn value(option: &Arg) -> String {
    let names = option.get_value_names().unwrap_or_default();
    let name = names.first().filter(|_| takes_value(option));
    name.map_or("–", |name| name.trim_end_matches(",…")).to_owned()
}

fn is_old(option: &Arg) -> bool {
    option.get_help().is_some_and(|help| help.to_string().starts_with("The old name of --"))
}

#[test]
fn a_name_has_one_meaning_and_the_glossary_lists_it() {
    let mut found = BTreeMap::<String, Vec<(String, String)>>::new();
    walk(&Arguments::command(), "", &mut |command, of| {
        for option in of.get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(long) = option.get_long() else { continue };
            found.entry(format!("--{long}")).or_default().push((command.to_owned(), value(option)));
        }
    });
    let listed = table("Options in several commands");
    let row = |option: &str| listed.iter().find(|row| quoted(row[1]) == [option]);
    for (option, uses) in &mut found {
        assert!(uses.iter().all(|(_, value)| *value == uses[0].1), "{option}: {uses:?}");
        if uses.len() < 2 {
            assert!(row(option).is_none(), "{option} is in one command only");
            continue;
        }
        let row = row(option).unwrap_or_else(|| panic!("{option}: {uses:?}"));
        uses.sort();
        let commands: Vec<&String> = uses.iter().map(|(command, _)| command).collect();
        assert_eq!(quoted(row[3]).iter().collect::<Vec<_>>(), commands, "{option}");
        assert_eq!(row[2].trim_matches('`'), uses[0].1, "{option}");
    }
    for row in &listed {
        assert!(found.contains_key(&quoted(row[1])[0]), "{row:?}");
    }
}

#[test]
fn every_old_name_works_and_the_glossary_lists_it() {
    let mut found = Vec::new();
    walk(&Arguments::command(), "", &mut |command, of| {
        for option in of.get_arguments() {
            let long = option.get_long().unwrap_or_default();
            if is_old(option) {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let new = help.split_whitespace().find(|word| word.starts_with("--"));
                let new = new.unwrap_or_default().trim_end_matches(',').to_owned();
                found.push((format!("--{long}"), new, command.to_owned(), value(option)));
            } else if !option.is_hide_set() {
                for alias in option.get_all_aliases().unwrap_or_default() {
                    let names = (format!("--{alias}"), format!("--{long}"));
                    found.push((names.0, names.1, command.to_owned(), value(option)));
                }
            }
        }
    });
    for (old, _, command, value) in &found {
        let sample = match &**value {
            "KEY_TYPE" => "p-256",
            "FILE" | "FOLDER" | "PATH" => "x",
            _ => "30",
        };
        let words = ["rejoin"].into_iter().chain(command.split(' ')).chain([&**old, sample]);
        let refused = Arguments::command().try_get_matches_from(words).err();
        let kind = refused.map(|error| error.kind());
        let works = [None, Some(ErrorKind::MissingRequiredArgument)].contains(&kind);
        assert!(works, "{command} {old} {sample}: {kind:?}");
    }
    let mut listed = Vec::new();
    for row in table("Old names") {
        let (old, new) = (&quoted(row[0])[0], &quoted(row[1])[0]);
        listed
            .extend(quoted(row[2]).into_iter().map(|command| (old.clone(), new.clone(), command)));
    }
    listed.sort();
    let mut found: Vec<_> =
        found.into_iter().map(|(old, new, command, _)| (old, new, command)).collect();
    found.sort();
    assert_eq!(found, listed);
}
