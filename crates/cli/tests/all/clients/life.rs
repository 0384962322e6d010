//! A manager that reads its settings again, is told to end, or is replaced, while programs download.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rejoin_manager::protocol::{self, Answer, Connect, LENGTH_BYTES, Request};
use rejoin_testkit::clients::world::World;
use rejoin_testkit::manager::serving;
use rejoin_testkit::process::{Lines, Process, Signal, wait_until};

use crate::REJOIN;

/// Sends one half of a page, and the other when it is told to.
const SERVER: &str = "\
import os, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 0), backlog=512)
print(listener.getsockname()[1], flush=True)
go = threading.Event()
half = bytes(range(256)) * 600
def serve(connection):
    tls = context.wrap_socket(connection, server_side=True)
    path = tls.recv(4096).split()[1]
    tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n' + half)
    if path == b'/half':
        os.write(1, b'half\\n')
        go.wait()
    tls.sendall(half)
    try:
        tls.unwrap()
    except OSError:
        pass
    tls.close()
def wait():
    sys.stdin.readline()
    go.set()
threading.Thread(target=wait, daemon=True).start()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

fn page() -> Vec<u8> {
    (0..=255).collect::<Vec<u8>>().repeat(1_200)
}

struct Slow {
    process: Process,
    lines: Lines,
    port: u16,
}

impl Slow {
    fn start(world: &World) -> Self {
        let (certificate, key) = world.managed.certify(&["localhost"]);
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, &certificate, &key]).stdin(Stdio::piped());
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let lines = process.lines();
        let port = lines.find(|line| line.parse().ok());
        Self { process, lines, port }
    }

    /// Waits until this many clients have one half.
    fn has_sent_half(&self, clients: usize) {
        for _ in 0..clients {
            assert_eq!(self.lines.next_line().as_deref(), Some("half"));
        }
    }

    fn go_on(&mut self) {
        self.process.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
    }
}

/// A program that downloads into a file.
struct Download {
    process: Process,
    name: String,
}

impl Download {
    fn start(world: &World, mut command: Command, name: &str) -> Self {
        let name = world.managed.file(name);
        let file = |ending: &str| File::create(format!("{name}.{ending}")).expect("a file");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        Self { process: Process::start(&mut command), name }
    }

    /// Waits for its end, and checks that all bytes came. Returns what it said.
    fn finish(mut self) -> String {
        let status = self.process.wait();
        let told = fs::read_to_string(format!("{}.err", self.name)).expect("text");
        assert!(status.success(), "{}: {status}, {told}", self.name);
        let found = fs::read(format!("{}.out", self.name)).expect("a file");
        assert!(found.ends_with(&page()), "{}: {} bytes, {told}", self.name, found.len());
        told
    }
}

fn curl(world: &World, port: u16, path: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--http1.0", "--cacert", &world.managed.file("ca.pem")]);
    curl.arg(format!("https://localhost:{port}/{path}"));
    world.with_rejoin(&mut curl);
    curl
}

fn through(told: &str) -> bool {
    told.contains("through the manager")
}

/// Starts a manager whose words can be read.
fn manager(world: &World, more: &[&str], words: &str) -> Process {
    let mut command = Command::new(REJOIN);
    command.args(["manager", "--socket", &world.managed.socket()]);
    command.args(["--settings", &world.managed.file("manager.toml")]).args(more);
    let words = File::create(world.managed.file(words)).expect("a file");
    serving(command.stdout(Stdio::piped()).stderr(words))
}

fn waits_for(world: &World, words: &str, said: &str) {
    wait_until(said, || {
        fs::read_to_string(world.managed.file(words)).expect("text").contains(said)
    });
}

/// Has downloads half done, a few at a time.
fn half_done(world: &World, server: &Slow, downloads: usize) -> Vec<Download> {
    const AT_ONCE: usize = 20;
    let mut all = Vec::new();
    while all.len() < downloads {
        let next = all.len()..downloads.min(all.len() + AT_ONCE);
        let started = next.len();
        for number in next {
            let command = curl(world, server.port, "half");
            all.push(Download::start(world, command, &format!("half-{number}")));
        }
        server.has_sent_half(started);
    }
    all
}

#[test]
fn settings_and_the_end_of_a_manager_break_no_download() {
    const DOWNLOADS: usize = 200;
    let mut world = World::new("life");
    world.managed.kill();
    let mut managing = manager(&world, &[], "words");
    let mut server = Slow::start(&world);
    let port = server.port;
    let one = |name| Download::start(&world, curl(&world, port, ""), name).finish();
    assert!(through(&one("before")));
    let downloads = half_done(&world, &server, DOWNLOADS);

    let settings = world.managed.file("manager.toml");
    let good = fs::read_to_string(&settings).expect("text");
    fs::write(&settings, format!("{good}\ntickets = 0\n")).expect("a file");
    managing.signal(Signal::HUP);
    waits_for(&world, "words", "rejoin: the settings stay as they were: ");
    assert!(through(&one("with the old settings")));
    fs::write(&settings, format!("{good}\nunshared_hosts = [\"localhost\"]\n")).expect("a file");
    managing.signal(Signal::HUP);
    waits_for(&world, "words", "rejoin: new connections are served by the new settings\n");
    let told = one("with the new settings");
    assert!(told.contains("directly: the manager has no use for it"), "{told}");

    managing.signal(Signal::TERM);
    waits_for(&world, "words", &format!("rejoin: shutting down: {DOWNLOADS} connections go on"));
    let told = one("while it drains");
    assert!(told.contains("directly: "), "{told}");
    assert!(managing.ended().is_none());
    server.go_on();
    let seen: Vec<_> = downloads.into_iter().map(Download::finish).collect();
    assert!(seen.iter().all(|told| through(told)), "{seen:?}");
    assert!(managing.wait().success());
    assert!(one("after").contains("directly: "));
}

/// The limit of draining, and a second signal.
#[test]
fn a_manager_does_not_drain_for_ever() {
    let mut world = World::new("limit");
    let mut server = Slow::start(&world);
    for (drain_s, signals) in [(1, 1), (300, 2)] {
        world.managed.set(&format!("drain_s = {drain_s}"));
        world.managed.kill();
        let mut managing = manager(&world, &[], "words");
        let mut half = half_done(&world, &server, 1);
        for _ in 0..signals {
            managing.signal(Signal::INT);
            waits_for(&world, "words", "shutting down: 1 connection goes on");
        }
        let since = Instant::now();
        assert!(managing.wait().success());
        assert!(since.elapsed() < Duration::from_secs(60));
        let cut = half.remove(0).process.wait();
        assert!(!cut.success(), "curl took half for all");
    }
    server.go_on();
}

#[test]
fn a_new_manager_takes_over_without_a_gap() {
    let mut world = World::new("takeover");
    world.managed.kill();
    let mut old = manager(&world, &[], "old");
    let mut server = Slow::start(&world);
    let port = server.port;
    let mut half = half_done(&world, &server, 10);
    let (world, is_over) = (&world, AtomicBool::new(false));
    half.push(asking(world, &server));

    let mut managers = std::thread::scope(|scope| {
        let visits = scope.spawn(|| {
            let mut visits = 0;
            while !is_over.load(Ordering::Relaxed) {
                let command = curl(world, port, "");
                let told = Download::start(world, command, "visit").finish();
                assert!(through(&told), "visit {visits}: {told}");
                visits += 1;
            }
            visits
        });
        let mut managers = Vec::new();
        // The second one takes over from the first, which still has connections of its own then.
        for words in ["new", "newest"] {
            half.extend(half_done(world, &server, 5));
            managers.push(manager(world, &["--take-over"], words));
        }
        half.extend(half_done(world, &server, 5));
        is_over.store(true, Ordering::Relaxed);
        assert!(visits.join().expect("no visit failed") > 0);
        managers
    });
    waits_for(world, "old", "another manager has taken over");
    waits_for(world, "new", "another manager has taken over");
    assert!(old.ended().is_none());
    server.go_on();
    for download in half {
        download.finish();
    }
    assert!(old.wait().success());
    assert!(managers[0].wait().success());
    assert!(managers[1].terminate().success());
}

/// Accepted by the old manager, it asks when the new one accepts.
#[test]
fn a_program_that_was_accepted_before_a_takeover_is_served() {
    let mut world = World::new("takeover-late");
    world.managed.kill();
    let mut old = manager(&world, &[], "old");
    let server = Slow::start(&world);
    let reaches = || UnixStream::connect(world.managed.socket()).expect("it listens");
    let late = reaches();
    // It accepts one after the other.
    assert!(matches!(ask(&reaches(), &Request::Stats {}), Answer::Stats(_)));
    let mut new = manager(&world, &["--take-over"], "new");
    waits_for(&world, "old", "another manager has taken over");
    let port = server.port.try_into().expect("not 0");
    let wanted = Connect::new("localhost".parse().expect("a name"), port);
    let answer = ask(&late, &Request::Connect(Box::new(wanted)));
    assert!(matches!(answer, Answer::Connected(_)), "{answer:?}");
    drop(late);
    assert!(old.wait().success());
    assert!(new.terminate().success());
}

fn ask(mut manager: &UnixStream, request: &Request) -> Answer {
    manager.write_all(&protocol::write_request(request).expect("short")).expect("it reads");
    let mut prefix = [0; LENGTH_BYTES];
    manager.read_exact(&mut prefix).expect("an answer");
    let length = protocol::length(prefix, protocol::ANSWER_BYTES).expect("within bounds");
    let mut answer = vec![0; length];
    manager.read_exact(&mut answer).expect("all of it");
    protocol::read_answer(&answer).expect("an answer")
}

/// A program asks the newest manager, which asks the one before, which asks the oldest.
#[test]
fn a_manager_between_two_others_stays_until_the_first_is_done() {
    let mut world = World::new("takeover-twice");
    world.managed.kill();
    let mut old = manager(&world, &[], "old");
    let mut server = Slow::start(&world);
    let asking = asking(&world, &server);
    let mut new = manager(&world, &["--take-over"], "new");
    let mut newest = manager(&world, &["--take-over"], "newest");
    waits_for(&world, "new", "another manager has taken over");
    // Far longer than it takes to end.
    std::thread::sleep(Duration::from_millis(500));
    server.go_on();
    asking.finish();
    assert!(old.wait().success());
    assert!(new.wait().success());
    assert!(newest.terminate().success());
}

/// Has a program half done that asks a manager how its connection ended: the one that serves then.
fn asking(world: &World, server: &Slow) -> Download {
    let mut connect = Command::new(REJOIN);
    let service = format!("localhost:{}", server.port);
    connect.args(["connect", "--manager", &world.managed.socket(), &service]);
    let name = world.managed.file("connect");
    let file = |ending: &str| File::create(format!("{name}.{ending}")).expect("a file");
    connect.stdin(Stdio::piped()).stdout(file("out")).stderr(file("err"));
    let mut process = Process::start(&mut connect);
    let stdin = process.stdin.as_mut().expect("piped");
    stdin.write_all(b"GET /half HTTP/1.0\r\n\r\n").expect("it reads");
    server.has_sent_half(1);
    Download { process, name }
}

/// Starts the manager with a socket of its own, as systemd does, tells it to end for each line that it reads, and starts
/// another when it has ended, unless there are no more lines. SOCKET COMMAND...
const SERVICE: &str = "\
import os, signal, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(512)
os.dup2(listener.fileno(), 3)
start = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec setpriv --pdeathsig KILL \\\"$@\\\"'
line = True
while line:
    manager = subprocess.Popen(['sh', '-c', start, 'sh', *sys.argv[2:]], pass_fds=[3])
    line = sys.stdin.readline()
    manager.send_signal(signal.SIGTERM)
    print('ended', manager.wait(), flush=True)
";

/// The socket stays open meanwhile: who comes between two managers waits for the second.
#[test]
fn a_restart_under_a_service_manager_breaks_nothing() {
    const DOWNLOADS: usize = 20;
    let mut world = World::new("restart");
    world.managed.kill();
    let socket = world.managed.socket();
    let _ = fs::remove_file(&socket);
    let mut command = Command::new("python3");
    command.args(["-c", SERVICE, &socket, REJOIN, "manager"]);
    command.args(["--settings", &world.managed.file("manager.toml")]);
    let words = File::create(world.managed.file("words")).expect("a file");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(words);
    let mut service = Process::start(&mut command);
    let lines = service.lines();
    wait_until("the socket", || std::path::Path::new(&socket).exists());
    let mut server = Slow::start(&world);
    let half = half_done(&world, &server, DOWNLOADS);
    let (world, port, is_over) = (&world, server.port, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let visits = scope.spawn(|| {
            let mut ways = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                ways.push(through(
                    &Download::start(world, curl(world, port, ""), "visit").finish(),
                ));
            }
            ways
        });
        service.stdin.as_mut().expect("piped").write_all(b"restart\n").expect("it reads");
        waits_for(world, "words", &format!("shutting down: {DOWNLOADS} "));
        assert!(!through(&Download::start(world, curl(world, port, ""), "drains").finish()));
        server.go_on();
        for download in half {
            assert!(through(&download.finish()));
        }
        assert_eq!(lines.find(|line| line.strip_prefix("ended ").map(str::to_owned)), "0");
        wait_until("the second manager's first connection", || {
            through(&Download::start(world, curl(world, port, ""), "again").finish())
        });
        is_over.store(true, Ordering::Relaxed);
        let ways = visits.join().expect("no visit failed");
        assert!(ways.iter().any(|through| !through), "{ways:?}");
    });
    drop(service.stdin.take());
    assert!(service.wait().success());
}

#[test]
fn another_user_does_not_take_over() {
    let world = World::new("usurper");
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nothing is tested with another user");
        return;
    }
    let socket = world.managed.socket();
    let request = "import json, socket, struct, sys\n\
        manager = socket.socket(socket.AF_UNIX)\n\
        manager.connect(sys.argv[1])\n\
        message = json.dumps({'rejoin': 1, 'take_over': {}}).encode()\n\
        manager.sendall(struct.pack('>I', len(message)) + message)\n\
        print(socket.recv_fds(manager, 4096, 4)[:2])\n";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "4242", "--regid", "4242", "--clear-groups"]);
    command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]);
    command.args(["python3", "-c", request, &socket]).stdout(Stdio::piped());
    let mut usurper = Process::start(&mut command);
    let mut told = String::new();
    let stdout = usurper.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut told).expect("a line");
    assert!(told.contains("not_permitted") && told.trim_end().ends_with("[])"), "{told}");
}
