//! The frame of all checks: a table of them, run one after the other, a line for each, and a summary.

use std::process::{Command, ExitCode};

/// The finding of a check: its figure, and whether it is as promised.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figure: String,
    pub(crate) holds: bool,
}

/// The promise's number, its name, what it says, and the check: `None` if it cannot be made here. `E`
/// is how much is done.
pub(crate) type Check<E> = (&'static str, &'static str, &'static str, fn(E) -> Option<Found>);

/// The words of the command line after the group.
pub(crate) struct Words(Vec<String>);

impl Words {
    /// The group of checks, and the words after it.
    pub(crate) fn given() -> (String, Self) {
        let mut words = std::env::args().skip(1);
        (words.next().unwrap_or_default(), Self(words.collect()))
    }

    /// The first word that is neither an option nor an option's value.
    pub(crate) fn operand(&self) -> Option<&str> {
        let is_value = |at: usize| at > 0 && self.0[at - 1] == "--only";
        let mut words = self.0.iter().enumerate();
        words
            .find(|(at, word)| !word.starts_with('-') && !is_value(*at))
            .map(|(_, word)| word.as_str())
    }

    /// The first option that no group of checks takes, or that lacks its value.
    pub(crate) fn wrong(&self) -> Option<&str> {
        let known = ["--help", "--quick", "--only", "--kill-s"];
        let options = self.0.iter().map(String::as_str).filter(|word| word.starts_with('-'));
        let is_wrong = |word: &&str| {
            !known.contains(word) || known[2..].contains(word) && self.value(word).is_none()
        };
        options.into_iter().find(is_wrong)
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|word| word == flag)
    }

    pub(crate) fn value(&self, flag: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == flag)?;
        self.0.get(at + 1).map(String::as_str)
    }
}

/// The packages that most checks need.
pub(crate) const SHIPPED: &[&str] =
    &["rejoin-cli", "rejoin-capi", "rejoin-gnutls", "rejoin-preload"];

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
    let (mut kept, mut broken, mut skipped) = (0, 0, 0);
    for (line, name, promise, check) in chosen() {
        let found = check(effort);
        let (count, verdict, figure) = match &found {
            Some(Found { figure, holds: true }) => (&mut kept, "holds", figure.as_str()),
            Some(Found { figure, holds: false }) => (&mut broken, "FALLS SHORT", figure.as_str()),
            None => (&mut skipped, "skipped", "not possible here"),
        };
        *count += 1;
        println!("{line}  {verdict:11} {name:22} {promise}: {figure}");
    }
    println!("{kept} hold, {broken} fall short, {skipped} skipped");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds what servers load.
fn build(packages: &[&str]) {
    let mut build = cargo("build");
    packages.iter().for_each(|package| {
        build.args(["--package", package]);
    });
    assert!(build.status().is_ok_and(|built| built.success()), "{packages:?} cannot be built");
}

/// Cargo, for the release build, whose programs and libraries are measured.
pub(crate) fn cargo(what: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([what, "--locked", "--quiet"]);
    if what == "build" {
        cargo.arg("--release");
    }
    cargo
}
