//! Many connections through one manager: to servers of three stacks, over sockets of the program's own
//! and the manager's, of programs that end well, hang up, or are killed.

use rejoin_testkit::shipped::rejoin;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_manager::client::{Manager, Stream};
use rejoin_manager::protocol::Connect;

use super::process::{Taken, raise_descriptor_limit};
use super::{Effort, Found};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::stacks::{Running, Stack, Tls};

const CONNECTIONS: u64 = 100_000;
const QUICK_CONNECTIONS: u64 = 5_000;
/// Percent of the connections after which everything that is allocated once is there.
const WARM_PERCENT: u64 = 10;
const THREADS: usize = 8;
/// Partitions that programs share sessions in.
const LABELS: u64 = 8;
/// Growth is more than this per connection, and more than the allocator's own fluctuation.
const GROWTH_BYTES: u64 = 16;
const UNREST_KIB: u64 = 1_024;
/// One of so many connections, each: a program that is killed, one that hangs up, one that does
/// not share, and one that brings a socket.
const KILLED: u64 = 499;
const HANGS_UP: u64 = 11;
const ALONE: u64 = 13;
const BROUGHT: u64 = 7;

/// Failures that are printed.
const EXAMPLES: usize = 5;
const PROGRESS: Duration = Duration::from_secs(10);

pub(crate) fn steady(effort: Effort) -> Option<Found> {
    raise_descriptor_limit();
    let all = if effort.quick { QUICK_CONNECTIONS } else { CONNECTIONS };
    let managed = Managed::start("check-soak");
    let soak = Soak::new(&managed)?;
    let began = Instant::now();
    let warm = all * WARM_PERCENT / 100;
    soak.run(0, warm);
    let before = Taken::by(&managed, 0);
    soak.run(warm, all);
    let after = Taken::by(&managed, 0);
    let failed = soak.failed.into_inner().expect("no panic");
    failed.iter().take(EXAMPLES).for_each(|why| println!("     {why}"));
    let grown = after.kib.saturating_sub(before.kib);
    let figure = format!(
        "{all} in {:.0} s, {} resumed, {} failed; {} programs killed; memory {} to {} KiB, \
         descriptors {} to {}",
        began.elapsed().as_secs_f64(),
        soak.resumed.into_inner(),
        failed.len(),
        soak.killed.into_inner(),
        before.kib,
        after.kib,
        before.descriptors,
        after.descriptors
    );
    let most_kib = UNREST_KIB.max(GROWTH_BYTES * (all - warm) / 1_024);
    let is_steady = grown <= most_kib && after.descriptors <= before.descriptors;
    Some(Found { figure, holds: failed.is_empty() && is_steady })
}

struct Soak {
    manager: Manager,
    socket: String,
    servers: Vec<Running>,
    next: AtomicU64,
    resumed: AtomicU64,
    killed: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl Soak {
    fn new(managed: &Managed) -> Option<Self> {
        let stacks = [Stack::Nginx, Stack::OpenSsl, Stack::Rustls];
        let servers = stacks.into_iter().flat_map(|stack| Tls::ALL.map(|tls| (stack, tls)));
        let servers: Option<_> = servers.map(|(stack, tls)| stack.start(managed, tls)).collect();
        Some(Self {
            manager: Manager::at(managed.socket()),
            socket: managed.socket(),
            servers: servers?,
            next: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            killed: AtomicU64::new(0),
            failed: Mutex::default(),
        })
    }

    /// Makes the connections of these numbers.
    fn run(&self, from: u64, to: u64) {
        self.next.store(from, Ordering::Relaxed);
        let next = || Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < to);
        thread::scope(|scope| {
            let work = || {
                while let Some(number) = next() {
                    if let Err(why) = self.visit(number) {
                        self.failed.lock().expect("no panic").push(format!("{number}: {why}"));
                    }
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            let mut told = Instant::now();
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::sleep(Duration::from_millis(20));
                if told.elapsed() > PROGRESS {
                    told = Instant::now();
                    eprintln!("soak: {} of {to}", self.next.load(Ordering::Relaxed));
                }
            }
        });
    }

    fn visit(&self, number: u64) -> Result<(), Box<dyn std::error::Error>> {
        let port = self.servers[number as usize % self.servers.len()].port;
        if number.is_multiple_of(KILLED) {
            return Ok(self.kill(port)?);
        }
        let mut wanted = Connect::new("localhost".parse()?, port.try_into()?);
        wanted.label = (number / self.servers.len() as u64 % LABELS).to_string().parse()?;
        wanted.share = !number.is_multiple_of(ALONE);
        let mut stream = if number.is_multiple_of(BROUGHT) {
            self.manager.connect_over(TcpStream::connect(("127.0.0.1", port))?, &wanted)?
        } else {
            self.manager.connect(&wanted)?
        };
        self.resumed.fetch_add(u64::from(stream.session().resumed), Ordering::Relaxed);
        if number.is_multiple_of(HANGS_UP) { Ok(()) } else { Ok(fetch(&mut stream)?) }
    }

    /// Kills a program that has just got its connection.
    fn kill(&self, port: u16) -> std::io::Result<()> {
        let mut connect = Command::new(rejoin());
        connect.args(["connect", "--socket", &self.socket, &format!("localhost:{port}")]);
        connect.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = Process::try_start(&mut connect)?;
        let mut line = String::new();
        BufReader::new(program.stderr.take().expect("piped")).read_line(&mut line)?;
        if !line.contains("TLSv1.") {
            return Err(std::io::Error::other(line));
        }
        drop(program);
        self.killed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads a page up to the announced end.
fn fetch(stream: &mut Stream) -> std::io::Result<()> {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    if page.is_empty() { Err(std::io::Error::other("an empty page")) } else { Ok(()) }
}
