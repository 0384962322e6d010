//! Two machines of a cluster, all on loopback: a machine is a folder with a cache, an agent, a share, exporters, and
//! servers without Rejoin.

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rejoin_store::Store;
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::clock::Clock;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::machines::valkey;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::{Process, Signal, wait_until};
use rejoin_testkit::shipped::rejoin;

/// The context of all servers.
pub(super) const CONTEXT: &str = "shop";
/// The shortest turn of a cluster's key, and a ticket's lifetime, in seconds of its clock.
pub(super) const TURN_S: u32 = 300;
pub(super) const LIFETIME_S: u32 = 900;
/// `stot` in HAProxy's statistics.
const CONNECTIONS_COLUMN: usize = 7;

pub(super) struct Ground {
    pub(super) machines: Vec<Machine>,
    balancers: Vec<Served>,
    _valkey: Process,
    clock: Clock,
    folder: Folder,
}

pub(super) struct Machine {
    /// Where its next server listens. Servers of one kind have the same port on both machines, because Apache resumes no
    /// session of another one.
    address: SocketAddr,
    pub(super) folder: PathBuf,
    servers: Vec<Served>,
    processes: Vec<Process>,
}

/// A server, and its workers with it, end when it is dropped.
struct Served(Process);

impl Ground {
    /// `None` if neither Valkey nor Redis is installed.
    pub(super) fn new(clock: Clock) -> Option<Self> {
        let folder = Folder::new();
        let port = reserve();
        let valkey = valkey(port, &folder, &[])?;
        let key = folder.join("key");
        let made = Command::new(rejoin()).args(["cluster", "key"]).arg(&key).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        let pair = Pair::of_localhost();
        let settings = settings(port, &key);
        let machine = |number: u8| Machine::new(&folder, number, &settings, &pair, &clock);
        let machines = [1, 2].map(machine).into();
        Some(Self { machines, balancers: vec![], _valkey: valkey, clock, folder })
    }

    /// Starts a server on both machines. `None` if it is not installed.
    pub(super) fn start(
        &mut self,
        start: fn(&mut Machine, &Clock) -> Option<()>,
    ) -> Option<[SocketAddr; 2]> {
        let port = reserve();
        for machine in &mut self.machines {
            machine.address.set_port(port);
            start(machine, &self.clock)?;
        }
        Some([self.machines[0].address, self.machines[1].address])
    }

    /// Starts HAProxy, which passes connections on to one machine after the other. `None` if it is not installed.
    pub(super) fn balance(&mut self, [one, other]: [SocketAddr; 2]) -> Option<Balancer> {
        let balancer = Balancer {
            address: SocketAddr::from(([127, 0, 0, 1], reserve())),
            statistics: self.folder.join(format!("balancer-{}", self.balancers.len())),
        };
        let Balancer { address, statistics } = &balancer;
        let text = format!(
            "global\n  stats socket {}\ndefaults\n  mode tcp\n  timeout client 20s\n  timeout connect 10s\n  \
             timeout server 20s\nlisten machines\n  bind {address}\n  balance roundrobin\n  \
             server one {one}\n  server other {other}\n",
            statistics.display()
        );
        let file = statistics.with_extension("cfg");
        fs::write(&file, text).expect("a file");
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        self.balancers.push(Served(Process::try_start(&mut command).ok()?));
        wait_until("the balancer", || balancer.passed_on().is_some());
        Some(balancer)
    }
}

/// The place of clients before the machines.
pub(super) struct Balancer {
    pub(super) address: SocketAddr,
    statistics: PathBuf,
}

impl Balancer {
    /// Returns true if both machines had the same number of connections. (It tries one that is refused elsewhere.)
    pub(super) fn is_even(&self) -> bool {
        self.passed_on().is_some_and(|[one, other]| one > 0 && one.abs_diff(other) <= 1 + one / 100)
    }

    /// The connections of each machine. `None` if it does not answer.
    fn passed_on(&self) -> Option<[u64; 2]> {
        let mut stream = UnixStream::connect(&self.statistics).ok()?;
        stream.write_all(b"show stat\n").ok()?;
        let mut table = String::new();
        stream.read_to_string(&mut table).ok()?;
        let of = |server: &str| {
            let row = table.lines().find(|row| row.split(',').nth(1) == Some(server))?;
            row.split(',').nth(CONNECTIONS_COLUMN)?.parse().ok()
        };
        Some([of("one")?, of("other")?])
    }
}

/// The settings of an agent, in whose folder its cache is.
fn settings(port: u16, key: &Path) -> String {
    format!(
        "name = \"web\"\nservers = [\"127.0.0.1:{port}\"]\nkey_file = {key:?}\ncache = \"web\"\n\
         capacity = \"8MiB\"\nrotate_every = \"{TURN_S}s\"\nticket_lifetime = \"{LIFETIME_S}s\"\n"
    )
}

impl Machine {
    fn new(parent: &Path, number: u8, settings: &str, pair: &Pair, clock: &Clock) -> Self {
        let folder = parent.join(number.to_string());
        DirBuilder::new().mode(0o700).create(&folder).expect("a folder");
        let address = SocketAddr::from(([127, 0, 0, number], 0));
        let mut machine = Self { address, folder, servers: vec![], processes: vec![] };
        let folder = machine.folder.clone();
        let both = format!("{}{}", pair.certificate, pair.key);
        let settings = format!("{settings}folder = {folder:?}\n");
        let files = [
            ("cert.pem", &pair.certificate),
            ("key.pem", &pair.key),
            ("both.pem", &both),
            ("cluster.toml", &settings),
        ];
        files.iter().for_each(|(name, text)| machine.write(name, text));
        machine.rejoin(clock, "agent", &["cluster", "run", "--settings", "FOLDER/cluster.toml"]);
        let store = || Store::open(&folder, &"web".parse().expect("a name"), None).ok();
        wait_until("the agent's ring", || {
            store().is_some_and(|store| matches!(store.ring(), Ok(Some(_))))
        });
        let share = ["share", "web", "--folder", "FOLDER", "--socket", "FOLDER/share", "--sds"];
        machine.rejoin(clock, "share", &[&share[..], &["FOLDER/sds"]].concat());
        wait_until("the share", || machine.folder.join("sds").exists());
        machine
    }

    /// Exports keys of this machine's ring to a place in its folder, and waits for the first.
    pub(super) fn export(&mut self, clock: &Clock, format: &str, into: &str, more: &[&str]) {
        let output = format!("FOLDER/{into}");
        let words = ["keys", "export", "web", "--folder", "FOLDER", "--follow"];
        let target = ["--format", format, "--context", CONTEXT, "--output", &output];
        self.rejoin(clock, &format!("export-{format}"), &[&words[..], &target, more].concat());
        let first = if format == "nginx" { format!("{into}/keys.conf") } else { into.to_owned() };
        wait_until("the keys", || self.folder.join(&first).exists());
    }

    /// Starts a server, and waits until it listens. `None` if it is not installed.
    pub(super) fn serve(&mut self, program: &Path, arguments: &[&str]) -> Option<()> {
        let name = program.file_name().expect("a program").to_string_lossy().into_owned();
        let mut command = Command::new(program);
        let log = self.log(&name);
        command.args(self.filled_all(arguments)).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file")).stderr(log);
        // Apache ends by a signal to its whole group.
        command.env_remove("OPENSSL_CONF").process_group(0);
        let Ok(process) = Process::try_start(&mut command) else {
            eprintln!("{} is not installed: nothing is tested with it", program.display());
            return None;
        };
        self.servers.push(Served(process));
        wait_until("the server", || TcpStream::connect(self.address).is_ok());
        Some(())
    }

    /// Fills in a configuration, and writes it.
    pub(super) fn configure(&self, name: &str, text: &str) {
        self.write(name, &self.filled(text));
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a file");
    }

    fn rejoin(&mut self, clock: &Clock, name: &str, words: &[&str]) {
        let mut command = clock.command(rejoin());
        command.args(self.filled_all(words)).stdin(Stdio::null()).stdout(Stdio::null());
        self.processes.push(Process::start(command.stderr(self.log(name))));
    }

    fn filled(&self, text: &str) -> String {
        let text = text.replace("FOLDER", &self.folder.display().to_string());
        let text = text.replace("@ADDRESS@", &self.address.ip().to_string());
        text.replace("@PORT@", &self.address.port().to_string())
    }

    fn filled_all(&self, words: &[&str]) -> Vec<String> {
        words.iter().map(|word| self.filled(word)).collect()
    }

    fn log(&self, name: &str) -> File {
        let path = self.folder.join(format!("{name}.log"));
        File::options().create(true).append(true).open(path).expect("a file")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // They signal servers.
        self.processes.clear();
        self.servers.clear();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        if self.0.ended().is_none() {
            self.0.signal(Signal::TERM);
            self.0.wait_for(PATIENCE);
        }
    }
}
