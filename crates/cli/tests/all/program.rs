//! The program, run with words as on a command line, and what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::REJOIN;

/// Runs the program to its end.
pub(crate) fn rejoin(arguments: &[&str]) -> Output {
    Command::new(REJOIN).args(arguments).output().expect("the program runs")
}

/// Starts a program whose output and complaints are read later.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
}

/// Interrupts a program like Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("our own child");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the one line on standard error, and the exit code.
pub(crate) fn complaint(output: &Output) -> (String, i32) {
    let line = text(&output.stderr);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(!line.contains("panicked"), "{line}");
    (line, output.status.code().expect("an exit code"))
}

/// Returns what the program says that succeeds without a complaint.
pub(crate) fn done(arguments: &[&str]) -> String {
    let output = rejoin(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

/// Returns the one line and the exit code of a program that fails without a result.
pub(crate) fn refusal(arguments: &[&str]) -> (String, i32) {
    let output = rejoin(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    complaint(&output)
}

/// Returns true if a program has measured, whether the machine kept up or not: tests run beside each other.
pub(crate) fn has_measured(output: &Output) -> bool {
    matches!(output.status.code(), Some(0 | 3))
}

/// Returns the JSON object on each line of a program that has measured.
pub(crate) fn objects(output: &Output) -> Vec<Value> {
    assert!(has_measured(output), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("an object per line")).collect()
}

/// Returns a folder of one test's own, empty.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes a file, and returns its path.
pub(crate) fn file(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> String {
    fs::write(folder.join(name), contents).expect("a file");
    path(folder, name)
}

pub(crate) fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}
