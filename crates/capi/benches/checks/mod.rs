//! Checks in a table, run one after the other: a line for each, and exit code 1 if one falls short.

use std::process::{Command, ExitCode};

/// What a check found: the figure, and whether it is as promised.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figure: String,
    pub(crate) holds: bool,
}

/// The promise's number, its name, what it says, and the check: `None` if it cannot be made here. `E`
/// is how much is done.
pub(crate) type Check<E> = (&'static str, &'static str, &'static str, fn(E) -> Option<Found>);

/// What was asked for.
pub(crate) struct Words(Vec<String>);

impl Words {
    pub(crate) fn given() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|word| word == flag)
    }

    pub(crate) fn value(&self, flag: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == flag)?;
        self.0.get(at + 1).map(String::as_str)
    }
}

/// Runs those whose names hold what `--only` says, after building the packages they need.
pub(crate) fn run<E: Copy>(
    checks: &[Check<E>],
    words: &Words,
    effort: E,
    (usage, packages): (&str, &[&str]),
) -> ExitCode {
    let only = words.value("--only").unwrap_or_default();
    let chosen = || checks.iter().filter(|(_, name, ..)| name.contains(only));
    if words.has("--help") || chosen().next().is_none() {
        println!("{usage}");
        checks.iter().for_each(|(line, name, promise, _)| println!("{line}  {name:22} {promise}"));
        return if words.has("--help") { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    build(packages);
    let mut all_hold = true;
    for (line, name, promise, check) in chosen() {
        let found = check(effort);
        let (verdict, figure) = match &found {
            Some(Found { figure, holds: true }) => ("holds", figure.as_str()),
            Some(Found { figure, holds: false }) => ("FALLS SHORT", figure.as_str()),
            None => ("skipped", "not possible here"),
        };
        println!("{line}  {verdict:11} {name:22} {promise}: {figure}");
        all_hold &= found.is_none_or(|found| found.holds);
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds what servers load.
fn build(packages: &[&str]) {
    let mut build = cargo("build");
    packages.iter().for_each(|package| {
        build.args(["--package", package]);
    });
    assert!(build.status().is_ok_and(|built| built.success()), "{packages:?} cannot be built");
}

/// Which builds as this was built.
pub(crate) fn cargo(what: &str) -> Command {
    let profile: &[_] = match (what, cfg!(debug_assertions)) {
        ("build", false) => &["--release"],
        ("bench", true) => &["--profile", "dev"],
        _ => &[],
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([what, "--locked", "--quiet"]).args(profile);
    cargo
}
