//! Nothing that is wrong with the manager, or between it and a server, costs a program its connection.

use std::process::{Command, Stdio};

use rcgen::{KeyPair, PKCS_RSA_SHA256};
use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{Directly, Went};
use rustix::process::{Pid, Signal, kill_process};

use rejoin_testkit::clients::cases::{CASES, Case};
use rejoin_testkit::clients::world::{Seen, World};
use rejoin_testkit::process::Process;
use rejoin_testkit::stacks::started;

fn page(program: &str) -> &'static Case {
    let is = |case: &&Case| case.program == program && ["a page", "asyncio"].contains(&case.what);
    CASES.iter().find(is).expect("a case")
}

fn assert_direct(seen: &Seen, why: &str) {
    assert!(seen.is_same() && seen.with.code == Some(0), "{seen:?}");
    assert!(seen.told.iter().any(|line| line.contains(why)), "{seen:?}");
}

#[test]
fn a_manager_that_is_gone_or_does_not_answer() {
    let mut world = World::new("gone");
    world.patience_ms = 500;
    let pid = world.managed.child.as_ref().expect("it runs").id();
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    let send = |signal| kill_process(pid, signal).expect("our own child");
    send(Signal::STOP);
    for program in ["curl", "Python"] {
        for service in &world.servers {
            let seen = world.see(page(program), service).expect("it is installed");
            assert_direct(&seen, "no manager answers");
        }
    }
    send(Signal::CONT);
    world.patience_ms = 20_000;
    // What it finds then was given up: nobody's socket is touched any more, and all is well again.
    let seen = world.see(page("curl"), &world.servers[0]).expect("it is installed");
    assert!(seen.is_same() && seen.told[0].contains("through the manager"), "{seen:?}");
    world.managed.kill();
    for program in ["curl", "Python"] {
        let seen = world.see(page(program), &world.servers[0]).expect("it is installed");
        assert_direct(&seen, "no manager answers");
    }
}

/// Servers with which the manager has no TLS in common, but the programs have.
#[test]
fn a_server_that_the_manager_cannot_speak_with() {
    let world = World::new("foreign");
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let (certificate, key) = world.managed.issue(&rsa, (&["localhost"], "rsa"), |_| {});
    let old = ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"];
    let plain = ["-tls1_2", "-cipher", "AES128-SHA256"];
    for (words, options) in
        [(&old, &["--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0"][..]), (&plain, &[])]
    {
        let mut server = Command::new("openssl");
        server.args(["s_server", "-www", "-accept", "127.0.0.1:0"]).args(words);
        server.args(["-cert", &certificate, "-key", &key]);
        let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse::<u16>().ok();
        let (_server, port) = started(&mut server, port).expect("openssl is installed");
        // The first time it is tried, and then it is known.
        for why in ["does not get on with the server", "has no use for it"] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-o", "/dev/null", "--cacert", &world.managed.file("ca.pem")]);
            curl.args(options).arg(format!("https://localhost:{port}/"));
            world.with_rejoin(&mut curl);
            let output = curl.output().expect("curl is installed");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && told.contains(why), "{words:?}: {told}");
        }
    }
    let stats = Manager::at(world.managed.socket()).stats().expect("it counts");
    let went = |why| Went { why, times: 2 };
    assert_eq!(stats.directly, [Directly::ManagerFailed, Directly::ManagerRefused].map(went));
}

/// A manager that is killed takes the connections along that it relays, and no others.
#[test]
fn a_manager_that_is_killed() {
    let mut world = World::new("killed");
    // Other servers end what says nothing after seconds.
    let patient = world.servers.iter().filter(|service| service.site.is_some());
    let mut holders: Vec<_> = patient.map(|service| hold(&world, service.port)).collect();
    world.managed.kill();
    for holder in &mut holders {
        // It reads an end that nobody announced, and says so.
        assert_eq!(holder.wait().code(), Some(3));
    }
    world.managed.run();
    let seen = world.see(page("curl"), &world.servers[0]).expect("it is installed");
    assert!(seen.is_same() && seen.told[0].contains("through the manager"), "{seen:?}");
}

const HOLD: &str = "\
import socket, ssl, sys
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
context = ssl.create_default_context(cafile=sys.argv[2])
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
connection = context.wrap_socket(
    plain, server_hostname='localhost', suppress_ragged_eofs=False)
print('connected', flush=True)
try:
    connection.recv(1)
except (ssl.SSLError, ConnectionError):
    sys.exit(3)
";

/// A program that waits for what its server says.
fn hold(world: &World, port: u16) -> Process {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", HOLD, &port.to_string(), &world.managed.file("ca.pem")]);
    world.with_rejoin(&mut command);
    command.stderr(Stdio::null()).stdout(Stdio::piped());
    let mut program = Process::start(&mut command);
    let mut line = String::new();
    let stdout = program.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    assert_eq!(line, "connected\n");
    program
}
