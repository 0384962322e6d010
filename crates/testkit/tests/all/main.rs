//! Signals to a program under watch. It is a program of its own without the harness of tests, because that has threads,
//! which would take the signals.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, thread};

use rejoin_testkit::alone::{part, playing};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Process, Signal, wait_for, wait_until};
use rejoin_testkit::watched::{is_watched, parent_of, run};

const FOLDER: &str = "REJOIN_TEST_FOLDER";

fn main() -> ExitCode {
    let folder = || PathBuf::from(env::var_os(FOLDER).expect("a folder"));
    match part().as_deref() {
        None => {
            let signals = [Signal::INT, Signal::TERM, Signal::HUP];
            let threads = signals.map(|signal| thread::spawn(move || is_left_of(signal)));
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
        Some(_) if is_watched() => serve(&folder()),
        Some(_) => return run(&mut playing("", "serve")),
    }
    ExitCode::SUCCESS
}

/// Starts what a server with workers is: a group of its own, a child that shuns the signal, and a daemon.
fn serve(folder: &Path) {
    let own = Folder::new();
    fs::write(folder.join("own"), own.path().to_str().expect("UTF-8")).expect("written");
    let script = "sh -c 'trap \"\" TERM; echo $$ > stubborn; exec sleep 1000' &
        setsid sh -c '(sh -c \"echo \\$\\$ > daemon; exec sleep 1000\") & exit' &
        echo $$ > group; exec sleep 1000";
    let mut server = Command::new("setsid");
    let mut server = server.args(["sh", "-c", script]).current_dir(folder).spawn().expect("sh");
    server.wait().expect("a child");
}

/// Returns the command with no signal ignored, as `nohup` and shells ignore some of what they run in the background.
fn hearing(command: &Command) -> Command {
    let mut hearing = Command::new("env");
    hearing.arg("--default-signal").arg(command.get_program()).args(command.get_args());
    hearing.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    hearing
}

fn is_left_of(signal: Signal) {
    let folder = Folder::new();
    let mut watcher = Process::start(hearing(&playing("", "watch")).env(FOLDER, folder.path()));
    let pid = |name: &str| -> Option<i32> {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    let pids = ["stubborn", "daemon", "group"].map(|name| wait_for(name, || pid(name)));
    let own = wait_for("its folder", || {
        fs::read_to_string(folder.join("own")).ok().filter(|path| !path.is_empty())
    });
    wait_until("the daemon's parent to end", || parent_of(pids[1]) != Some(pids[2]));
    let is_there = |pid: &&i32| parent_of(**pid).is_some();
    assert!(pids.iter().all(|pid| is_there(&pid)) && Path::new(&own).exists());
    watcher.signal(signal);
    let code = watcher.wait().code();
    let left: Vec<_> = pids.iter().filter(is_there).collect();
    assert!(left.is_empty(), "{signal:?} leaves {left:?} of {pids:?}");
    assert!(!Path::new(&own).exists(), "{own} is left");
    assert_eq!(code, Some(128 + signal.as_raw()));
}
