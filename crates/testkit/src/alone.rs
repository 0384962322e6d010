//! A test in a process of its own, and copies of a test program that play a part.
//!
//! Tests of one program share a process. A test that changes something of the whole process runs
//! [`alone`]: OpenSSL's indices and memory functions, the current folder, umask, limits, signal
//! handlers, environment variables, or a global allocator's total.

use std::any::type_name;
use std::env;
use std::process::{Command, Stdio};

use crate::process::{DEADLINE, Process, output};

/// The name of the test that runs in a process of its own, in that process's environment.
const ALONE: &str = "REJOIN_TESTKIT_ALONE";
/// The part that a copy of this program plays.
const PART: &str = "REJOIN_TESTKIT_PART";

/// Runs the calling test's body in a new process, which runs that test and no other.
///
/// The body must be a closure written in the test function itself: the test's name is read from
/// the closure's type. Output of the other process is shown if it fails.
///
/// # Panics
///
/// If the body fails in the other process, or takes longer than five minutes.
pub fn alone<F: FnOnce()>(body: F) {
    let name = test_of::<F>();
    if env::var(ALONE).is_ok_and(|other| other == name) {
        return body();
    }
    let output = output(again(name).env(ALONE, name), DEADLINE * 5);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "alone, {name}: {}\n{stdout}\n{stderr}", output.status);
}

/// A command that runs `test` of this program again, where [`part`] then returns `part`.
///
/// `test` is the full name, as `cargo test` prints it. That test returns at once where there is no
/// part to play.
pub fn playing(test: &str, part: &str) -> Command {
    let mut command = again(test);
    command.env(PART, part).stdout(Stdio::null());
    command
}

/// Starts [`playing`].
pub fn play(test: &str, part: &str) -> Process {
    Process::start(&mut playing(test, part))
}

/// The part that this process plays, if another process of the same program started it for one.
pub fn part() -> Option<String> {
    env::var(PART).ok()
}

fn again(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// The test that a closure of this type was written in: `program::module::test::{{closure}}`.
fn test_of<F>() -> &'static str {
    let (_, path) = type_name::<F>().split_once("::").expect("a path");
    path.split("::{{closure}}").next().expect("a first part")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_alone_has_a_process_of_its_own() {
        let variable = "REJOIN_TESTKIT_OUTER";
        assert!(env::var(variable).is_err());
        alone(|| {
            // Only the process that runs alone comes here.
            assert_eq!(env::var(ALONE).as_deref(), Ok(test_name()));
        });
    }

    fn test_name() -> &'static str {
        "alone::tests::a_test_alone_has_a_process_of_its_own"
    }

    #[test]
    fn a_failure_alone_is_a_failure() {
        let run = || alone(|| assert_eq!(2 + 2, 5));
        match env::var(ALONE) {
            Ok(_) => run(),
            Err(_) => assert!(std::panic::catch_unwind(run).is_err()),
        }
    }

    #[test]
    fn a_copy_plays_its_part() {
        const NAME: &str = "alone::tests::a_copy_plays_its_part";
        match part().as_deref() {
            Some("quiet") => {}
            Some(other) => panic!("no part {other:?}"),
            None => {
                assert!(play(NAME, "quiet").wait().success());
                let stderr = Stdio::null();
                let mut loud = Process::start(playing(NAME, "loud").stderr(stderr));
                assert!(!loud.wait().success());
            }
        }
    }
}
