//! Another user who listens where the manager should, and has only the server's certificate.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use rejoin_testkit::clients::cases::CASES;
use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::Process;

use crate::REJOIN;
use crate::program::text;

/// Reports how many bytes each program says.
const IMPOSTOR: &str = "\
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print('ready', flush=True)
while True:
    program = listener.accept()[0]
    program.settimeout(2)
    try:
        print(len(program.recv(4096)), flush=True)
    except OSError:
        print('silence', flush=True)
";

/// A user who has no name.
const OTHER: u32 = 4_242;

#[test]
fn a_manager_of_another_user_is_told_nothing() {
    let world = World::new("impostor");
    let folder = world.managed.file("theirs");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("ours");
    if chown(&folder, Some(OTHER), Some(OTHER)).is_err() {
        eprintln!("not root: nothing is tested with another user");
        return;
    }
    let socket = format!("{folder}/rejoin.sock");
    let mut command = Command::new("setpriv");
    let other = OTHER.to_string();
    command.args(["--reuid", &other, "--regid", &other, "--clear-groups"]);
    command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]);
    command.args(["python3", "-c", IMPOSTOR, &socket]).stdout(Stdio::piped());
    let mut impostor = Process::start(&mut command);
    let lines = impostor.lines();
    assert_eq!(lines.next_line().as_deref(), Some("ready"));

    let service = &world.servers[0];
    for program in ["curl", "Python", "C"] {
        let page = CASES.iter().find(|case| case.program == program).expect("a case");
        let commands = || world.command(page, service, "impostor");
        let (Some(mut plain), Some(mut command)) = (commands(), commands()) else { continue };
        world.with_rejoin(&mut command);
        command.env("REJOIN_MANAGER", &socket);
        let [plain, with] = [&mut plain, &mut command].map(|of| of.output().expect("it runs"));
        assert_eq!((plain.status, plain.stdout), (with.status, with.stdout), "{program}");
        assert!(plain.status.success(), "{program}");
    }
    let target = format!("localhost:{}", service.port);
    let connect = ["connect", "--manager", &socket, &target];
    let output = Command::new(REJOIN).args(connect).stdin(Stdio::null()).output().expect("it runs");
    let told = text(&output.stderr);
    assert!(told.contains("is not believed: user 4242 listens there"), "{told}");
    let python = "import sys, rejoin\ntry: rejoin.connect('localhost', 1, manager=sys.argv[1])\n\
        except rejoin.Untrusted as error: print(error)\n";
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/python/src");
    let mut command = Command::new("python3");
    command.args(["-c", python, &socket]).env("PYTHONPATH", source);
    let told = text(&command.output().expect("it runs").stdout);
    assert!(told.contains("is not believed: user 4242 listens there"), "{told}");
    impostor.kill();
    let said = lines.rest();
    assert!(said.len() >= 5 && said.iter().all(|bytes| bytes == "0"), "{said:?}");
}
