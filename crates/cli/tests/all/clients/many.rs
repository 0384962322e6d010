//! Event loops with many connections at once, and with a manager that does not answer.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rejoin_testkit::clients::SCRIPTS;
use rejoin_testkit::clients::world::{Service, World, compiled};
use rejoin_testkit::process::{Process, Signal};

use crate::program::text;

/// A program that makes this many connections at once.
fn many(world: &World, service: &Service, count: usize) -> Command {
    let mut many = Command::new("/usr/bin/python3");
    many.args([&format!("{SCRIPTS}/many.py"), &service.port.to_string()]);
    many.args([&world.managed.file("ca.pem"), &count.to_string()]);
    many
}

fn put_into(world: &World, many: &mut Command) {
    world.with_rejoin(many);
    many.env_remove("REJOIN_DEBUG");
}

fn site(world: &World) -> Option<&Service> {
    let found = world.servers.iter().rfind(|service| service.site.is_some());
    if found.is_none() {
        eprintln!("skipped: there is no nginx");
    }
    found
}

#[test]
fn many_connections_at_once_all_succeed() {
    let world = World::new("many");
    let Some(service) = site(&world) else { return };
    for count in [250, 900] {
        let mut with = many(&world, service, count);
        put_into(&world, &mut with);
        for mut command in [many(&world, service, count), with] {
            let output = command.output().expect("it runs");
            let (said, told) = (text(&output.stdout), text(&output.stderr));
            assert!(said.starts_with(&format!("{count} ")), "{count}: {said}{told}");
        }
    }
    let stats = rejoin_manager::client::Manager::at(world.managed.socket()).stats();
    let through = stats.expect("it counts").handshakes;
    assert!(through.full + through.resumed >= 900, "{through:?}");
}

/// The work for a connection does not depend on what else a program has open.
#[test]
fn nothing_of_proc_is_read() {
    let world = World::new("proc");
    let Some(service) = site(&world) else { return };
    let calls = |is_with: bool| -> Option<BTreeSet<String>> {
        let mut strace = Command::new("strace");
        let log = world.managed.file("strace");
        strace.args(["-f", "-o", &log, "-e", "trace=readlink,readlinkat,open,openat"]);
        let plain = many(&world, service, 20);
        strace.arg(plain.get_program()).args(plain.get_args());
        if is_with {
            put_into(&world, &mut strace);
        }
        let output = strace.output().ok()?;
        assert!(text(&output.stdout).starts_with("20 "), "{}", text(&output.stderr));
        let log = std::fs::read_to_string(log).expect("a log");
        let paths = log.lines().filter_map(|line| line.split('"').nth(1));
        Some(paths.filter(|path| path.starts_with("/proc")).map(str::to_owned).collect())
    };
    let (Some(without), Some(with)) = (calls(false), calls(true)) else {
        return eprintln!("skipped: there is no strace");
    };
    let more: BTreeSet<String> = &with - &without;
    assert!(more.is_empty(), "{more:?}");
}

/// Connects, and goes on with something else meanwhile.
const TICKS: &str = "\
import asyncio, ssl, sys
async def main():
    context = ssl.create_default_context(cafile=sys.argv[2])
    task = asyncio.create_task(
        asyncio.open_connection('localhost', int(sys.argv[1]), ssl=context))
    for _ in range(20):
        await asyncio.sleep(0.05)
    print('ticked', task.done(), flush=True)
    sys.stdin.readline()
    reader, writer = await task
    writer.write(b'GET /page HTTP/1.0\\r\\n\\r\\n')
    print((await reader.read()).endswith(b'a page\\n'))
asyncio.run(main())
";

#[test]
fn an_event_loop_goes_on_while_the_manager_does_not_answer() {
    let mut world = World::new("ticks");
    // It takes the connection back only if the manager never goes on.
    for (patience_ms, way) in [(60_000, ": through the manager: "), (3_000, "no manager answers")] {
        world.patience_ms = patience_ms;
        let Some(service) = site(&world) else { return };
        let manager = world.managed.child.as_ref().expect("it runs");
        manager.signal(Signal::STOP);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", TICKS, &service.port.to_string(), &world.managed.file("ca.pem")]);
        world.with_rejoin(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Process::start(&mut command);
        let lines = program.lines();
        assert_eq!(lines.next_line().as_deref(), Some("ticked False"));
        if patience_ms > 3_000 {
            manager.signal(Signal::CONT);
        }
        let stdin = program.stdin.as_mut().expect("piped");
        stdin.write_all(b"\n").expect("it reads");
        assert_eq!(lines.next_line().as_deref(), Some("True"));
        let stderr = BufReader::new(program.stderr.take().expect("piped"));
        let told: Vec<_> = stderr.lines().map_while(Result::ok).collect();
        assert!(told.iter().any(|line| line.contains(way)), "{told:?}");
        assert!(program.wait().success());
        manager.signal(Signal::CONT);
    }
}

#[test]
fn a_program_that_waits_by_epoll_pwait2_goes_on_without_the_manager() {
    let mut world = World::new("pwait2");
    world.patience_ms = 500;
    let Some(program) = compiled(&world.managed, "waits") else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    world.managed.child.as_ref().expect("it runs").signal(Signal::STOP);
    for is_with in [false, true] {
        let mut waits = Command::new(&program);
        let service = &world.servers[0];
        waits.args([&service.port.to_string(), &world.managed.file("ca.pem")]);
        if is_with {
            world.with_rejoin(&mut waits);
        }
        let output = waits.output().expect("it runs");
        let told = text(&output.stderr);
        assert_eq!(text(&output.stdout), "connected\n", "{told}");
        assert_eq!(told.contains("no manager answers"), is_with, "{told}");
    }
    world.managed.child.as_ref().expect("it runs").signal(Signal::CONT);
}

#[test]
fn a_program_that_waits_for_signals_of_its_socket_connects_directly() {
    let world = World::new("signals");
    let Some(program) = compiled(&world.managed, "signals") else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    for service in &world.servers {
        let mut signals = Command::new(&program);
        signals.args([&service.port.to_string(), &world.managed.file("ca.pem")]);
        world.with_rejoin(&mut signals);
        let output = signals.output().expect("it runs");
        let told = text(&output.stderr);
        assert_eq!(text(&output.stdout), "connected\n", "{told}");
        assert!(told.contains("directly: the program waits for the socket"), "{told}");
    }
}

/// Stops in the middle of its handshake for longer than any deadline of the manager's.
const PAUSES: &str = "\
import socket, ssl, sys, time
plain = socket.create_connection(('localhost', int(sys.argv[1])))
context = ssl.create_default_context(cafile=sys.argv[2])
read, write = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(read, write, server_hostname='localhost')
def step(what, *arguments):
    while True:
        try:
            done = what(*arguments)
            plain.sendall(write.read())
            return done
        except ssl.SSLWantReadError:
            plain.sendall(write.read())
            read.write(plain.recv(65536))
            time.sleep(float(sys.argv[3]) if what == tls.do_handshake else 0)
step(tls.do_handshake)
step(tls.write, b'GET /page HTTP/1.0\\r\\n\\r\\n')
print(step(tls.read, 65536)[:15])
";

#[test]
#[ignore = "it waits for fifteen seconds"]
fn a_program_may_pause_in_its_handshake() {
    let world = World::new("pauses");
    let Some(service) = site(&world) else { return };
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", PAUSES, &service.port.to_string(), &world.managed.file("ca.pem"), "15"]);
    world.with_rejoin(&mut command);
    let output = command.output().expect("it runs");
    let told = text(&output.stderr);
    assert_eq!(text(&output.stdout), "b'HTTP/1.1 200 OK'\n", "{told}");
    assert!(told.contains(": through the manager: "), "{told}");
}
