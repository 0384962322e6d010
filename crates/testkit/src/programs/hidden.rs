//! The manager's process hides its memory from other processes of its user, and from core dumps.
//! Another program shows that both would work without that.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::manager::serving;
use crate::process::{Process, Signal, copy_program};
use crate::shipped::rejoin;

/// The access to a process that others of its user have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposed {
    pub is_readable: bool,
    pub leaves_core: bool,
}

/// The manager, and a program that hides nothing.
#[derive(Debug)]
pub struct Hidden {
    pub manager: Exposed,
    pub other: Exposed,
}

/// Looks at both. Root may read everything: as root, they run as `nobody`.
pub fn look() -> Hidden {
    let house = House::new();
    let program = house.0.join("rejoin");
    copy_program(rejoin(), &program);
    let mut manager = house.command(&program);
    manager.arg("manager").arg("--socket").arg(house.0.join("m.sock"));
    let manager = serving(&mut manager);
    let mut other = Process::start(house.command(Path::new("cat")).stdin(Stdio::piped()));
    // It has read its input, and so has replaced the shell.
    let stdin = other.stdin.as_mut().expect("piped");
    std::io::Write::write_all(stdin, b"\n").expect("it reads");
    std::io::Read::read_exact(&mut other.stdout.as_mut().expect("piped"), &mut [0])
        .expect("it writes");
    Hidden { manager: exposed(manager), other: exposed(other) }
}

/// A folder in which every user may write; removed when dropped.
struct House(PathBuf);

impl House {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("rejoin-hidden-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, all).expect("ours");
        Self(folder)
    }

    /// A command that may leave a core of any size in the folder.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]);
        command.args(unprivileged()).arg(program).current_dir(&self.0);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first words of a command that must not run as root.
fn unprivileged() -> &'static [&'static str] {
    if geteuid().is_root() {
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    } else {
        &["env"]
    }
}

fn exposed(mut process: Process) -> Exposed {
    let memory = format!("/proc/{}/mem", process.id());
    let opened = Command::new(unprivileged()[0])
        .args(&unprivileged()[1..])
        .args(["sh", "-c", ": <\"$0\"", &memory])
        .stderr(Stdio::null())
        .status();
    let is_readable = opened.expect("util-linux is installed").success();
    process.signal(Signal::ABORT);
    let leaves_core = process.wait().core_dumped();
    Exposed { is_readable, leaves_core }
}
