//! The frame of all checks: a table of them, run one after the other, a line for each, and a summary.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The finding of a check: its figure, and whether it is as promised.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figure: String,
    pub(crate) holds: bool,
}

/// A check: the promise's number, its name, the promise itself, and its measurement, which is `None` if it cannot be
/// made here.
pub(crate) type Check = (u8, &'static str, &'static str, fn(Effort) -> Option<Found>);

/// The checks of one `make check-NAME`.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// The arguments of make.
    pub(crate) arguments: &'static str,
    /// A part of a check's name, as an example.
    pub(crate) example: &'static str,
    /// The packages that are built for release before the first check.
    pub(crate) packages: &'static [&'static str],
    pub(crate) checks: &'static [Check],
}

/// The size of each check, and the means that it is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// True if everything is smaller, and figures coarser.
    pub(crate) quick: bool,
    /// The time for which workers are killed, or servers soaked.
    pub(crate) soak_s: u64,
    /// The folder of captures with answers.
    pub(crate) captures: &'static Path,
    /// Parts of the names of the programs that are tried.
    pub(crate) programs: Option<&'static str>,
}

impl Effort {
    fn of(words: &Words) -> Self {
        let quick = words.has("--quick");
        let soak_s =
            words.value("--soak-s").map(|text| text.parse().expect("--soak-s takes seconds"));
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
        let captures = words.operand().map_or_else(beside, PathBuf::from);
        // Checks need it to the end of the program.
        let captures = Box::leak(captures.into_boxed_path());
        let programs = words.value("--programs").map(|names| &*names.to_owned().leak());
        Self { quick, soak_s: soak_s.unwrap_or(if quick { 10 } else { 60 }), captures, programs }
    }
}

/// The options that have a value.
const VALUED: [&str; 3] = ["--only", "--soak-s", "--programs"];

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
        let is_value = |at: usize| at > 0 && VALUED.contains(&self.0[at - 1].as_str());
        let mut words = self.0.iter().enumerate();
        words
            .find(|(at, word)| !word.starts_with('-') && !is_value(*at))
            .map(|(_, word)| word.as_str())
    }

    /// The first option that no group of checks takes, or that lacks its value.
    pub(crate) fn wrong(&self) -> Option<&str> {
        let is_known = |word: &str| {
            ["--help", "--quick"].contains(&word)
                || VALUED.contains(&word) && self.value(word).is_some()
        };
        let options = self.0.iter().map(String::as_str).filter(|word| word.starts_with('-'));
        let is_wrong = |word: &&str| !is_known(word);
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

/// The arguments that most groups take.
pub(crate) const ARGUMENTS: &str = "CHECKS='[--quick] [--only PART_OF_A_NAME]'";
/// The packages that most checks need.
pub(crate) const SHIPPED: &[&str] =
    &["rejoin-cli", "rejoin-capi", "rejoin-gnutls", "rejoin-preload"];

impl Group {
    /// Runs the checks whose names contain the value of `--only`, after building the packages they need.
    pub(crate) fn run(&self, words: &Words) -> ExitCode {
        let only = words.value("--only").unwrap_or_default();
        let chosen = || self.checks.iter().filter(|(_, name, ..)| name.contains(only));
        if words.has("--help") || chosen().next().is_none() {
            self.print_help();
            return if words.has("--help") { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        build(self.packages);
        let effort = Effort::of(words);
        let (mut kept, mut broken, mut skipped) = (0, 0, 0);
        for (line, name, promise, check) in chosen() {
            let found = check(effort);
            let (count, verdict, figure) = match &found {
                Some(Found { figure, holds: true }) => (&mut kept, "holds", figure.as_str()),
                Some(Found { figure, holds: false }) => {
                    (&mut broken, "FALLS SHORT", figure.as_str())
                }
                None => (&mut skipped, "skipped", "not possible here"),
            };
            *count += 1;
            println!("{line}  {verdict:11} {name:22} {promise}: {figure}");
        }
        println!("{kept} hold, {broken} fall short, {skipped} skipped");
        if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn print_help(&self) {
        let Self { name, arguments, example, .. } = self;
        println!("make check-{name} {arguments}\n  such as CHECKS='--only {example}'\n");
        for (line, name, promise, _) in self.checks {
            println!("{line}  {name:22} {promise}");
        }
    }
}

/// Builds what servers load. Without packages cargo would build all.
fn build(packages: &[&str]) {
    if packages.is_empty() {
        return;
    }
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

/// Runs the tests of a package whose names contain `name`. Returns the summary of their results, and true if they passed.
pub(crate) fn test(package: &str, name: &str) -> Option<(String, bool)> {
    let mut tests = cargo("test");
    tests.args(["--package", package, "--test", "*", name, "--", "--include-ignored"]);
    let told = String::from_utf8(tests.output().ok()?.stdout).ok()?;
    let results = told.lines().filter_map(|line| line.strip_prefix("test result: "));
    // A test program without such a test has a result of its own.
    let results: Vec<_> = results.filter(|result| !result.starts_with("ok. 0 passed")).collect();
    let short = |result: &&str| {
        let words: Vec<_> = result.split("; ").collect();
        let end = words.last().copied().unwrap_or_default();
        words.iter().take(2).copied().chain([end]).collect::<Vec<_>>().join(", ")
    };
    let all: Vec<_> = results.iter().map(short).collect();
    let passed = !results.is_empty() && results.iter().all(|result| result.starts_with("ok."));
    Some((all.join("; "), passed))
}
