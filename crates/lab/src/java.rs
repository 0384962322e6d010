//! Java runtimes, and the benchmarks that JMH runs on them: `bindings/java/bench`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns a command that runs the class `main` of the benchmarks built to the folder `target`.
pub(crate) fn benchmark(java: &Path, target: &Path, main: &str) -> Command {
    let target = target.display();
    let mut command = Command::new(java);
    command.args(["-cp", &format!("{target}/classes:{target}/lib/*"), main]).stdin(Stdio::null());
    command
}

/// Checks that a runtime starts and knows these options.
pub(crate) fn starts(java: &Path, options: &[&str]) -> io::Result<()> {
    let output = Command::new(java).args(options).arg("-version").stdin(Stdio::null()).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    // The first line names the cause; the next say that the runtime could not be started.
    let why = complaint.lines().next().unwrap_or("it says nothing").to_owned();
    output.status.success().then_some(()).ok_or_else(|| io::Error::other(why))
}

/// Returns why a program failed, by its output: the innermost cause, else the exception that ended it, else the last
/// line.
pub(crate) fn cause(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let cause = lines.clone().rev().find_map(|line| line.strip_prefix("Caused by: "));
    let thrown = lines.clone().rev().find_map(|line| line.strip_prefix("Exception in thread "));
    let why = cause.or(thrown).or_else(|| lines.next_back());
    why.unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told() {
        let text = "Exception: one\n\tat a.b(c)\nCaused by: other\n\tat d.e(f)\n\t... 14 more\n\n";
        assert_eq!((cause(text), cause("a\n b \n\n")), ("other".to_owned(), "b".to_owned()));
        let uncaught =
            "# JMH\nException in thread \"main\" a.B: no lock\n\tat a.b(c)\n\tat d.e(f)\n";
        assert_eq!(cause(uncaught), "\"main\" a.B: no lock");
        assert_eq!(cause(""), "it says nothing");
    }
}
