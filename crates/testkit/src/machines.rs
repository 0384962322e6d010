//! Machines of a cluster, and Valkey, all on loopback: a machine is a folder for its cache, an agent and a
//! server of its own.

use crate::port::reserve;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::{MailboxFacts, Store};

use crate::process::{self, Process, Signal};
use crate::sentinels::Watched;
use crate::shipped::{rejoin, target};
use crate::site::{Client, Site, Versions};
use crate::valkey::server;

/// A cluster to be.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub name: &'static str,
    /// The servers that machines run, in turn.
    pub servers: &'static [Server],
    pub machines: usize,
    /// Stateless tickets, and not sessions.
    pub tickets: bool,
    /// True if machines have agents. Without them each is alone.
    pub agents: bool,
    /// The capacity of each machine's cache.
    pub capacity: &'static str,
    /// The agents' `deadline_ms`, if they have one.
    pub deadline_ms: Option<u64>,
}

impl Plan {
    /// Two machines with nginx that share sessions, and have room for a few thousand.
    pub const fn of_sessions(name: &'static str) -> Self {
        Self {
            name,
            servers: &[NGINX],
            machines: 2,
            tickets: false,
            agents: true,
            capacity: "1MiB",
            deadline_ms: Some(50),
        }
    }
}

/// A server program and its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Server {
    pub program: &'static str,
    /// The arguments before the name of the file.
    pub arguments: &'static [&'static str],
    pub configuration: &'static str,
    /// The replacement of `TICKETS`: without tickets, and with them.
    pub tickets: [&'static str; 2],
}

pub const NGINX: Server = Server {
    program: "nginx",
    arguments: &["-c"],
    configuration: "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 4096; }
http {
  include FOLDER/nginx-http.conf; keepalive_timeout 0;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets TICKETS; ssl_session_timeout 1d;
  server {
    listen 127.0.0.1:@PORT@ ssl reuseport backlog=4096; server_name localhost; return 200 \"$pid\\n\";
  }
}
",
    tickets: ["off", "on"],
};

/// HAProxy, whose session-id context differs from nginx's: they share sessions only under a named context.
pub const HAPROXY: Server = Server {
    program: "haproxy",
    arguments: &["-db", "-f"],
    configuration: "\
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ backlog 4096 ssl crt FOLDER/both.pem TICKETS
  http-request return status 200 content-type text/plain string haproxy
",
    tickets: ["no-tls-tickets", ""],
};

/// Valkey, a key, and the machines that have it.
pub struct Cluster {
    pub folder: PathBuf,
    plan: Plan,
    valkey: Option<Process>,
    pub port: u16,
    /// Ports on which agents look for Valkey.
    pub agents_ask: Vec<u16>,
    /// True if a Valkey cluster is behind them.
    pub clustered: bool,
    /// Ports of sentinels, whom agents ask instead.
    pub sentinels: Vec<u16>,
    /// More lines of the settings, before all sections.
    pub more_settings: String,
    /// More lines of the settings of `librejoin.so`.
    pub server_settings: String,
    /// The user that agents become.
    pub agents_become: Option<&'static str>,
    /// The folder of the certificate that all machines have, if it is another cluster's.
    certificate: Option<PathBuf>,
    pub machines: Vec<Machine>,
}

pub struct Machine {
    pub site: Site,
    server: Server,
    pub caches: PathBuf,
    agent_becomes: Option<&'static str>,
    pub agent: Option<Child>,
}

impl Cluster {
    /// Starts it. `None` if neither Valkey nor Redis is installed, or no such server.
    pub fn start(plan: Plan) -> Option<Self> {
        let mut cluster = Self::without_machines(plan)?;
        cluster.add_machines()?;
        Some(cluster)
    }

    /// Starts Valkey alone.
    pub fn without_machines(plan: Plan) -> Option<Self> {
        let parent = target().join("tmp");
        let folder = parent.join(format!("cluster-{}", plan.name));
        let _ = fs::remove_dir_all(&folder);
        // Others have folders there, too, in which servers of other users work.
        fs::create_dir_all(parent).expect("a folder");
        DirBuilder::new().mode(0o700).create(&folder).expect("a folder");
        let port = reserve();
        let mut cluster = Self {
            folder,
            plan,
            valkey: None,
            port,
            agents_ask: vec![port],
            clustered: false,
            sentinels: Vec::new(),
            more_settings: String::new(),
            server_settings: String::new(),
            agents_become: None,
            certificate: None,
            machines: Vec::new(),
        };
        cluster.start_valkey()?;
        let made = Command::new(rejoin()).args(["cluster", "key"]).arg(cluster.key_file()).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        Some(cluster)
    }

    pub fn add_machines(&mut self) -> Option<()> {
        (0..self.plan.machines).try_for_each(|_| self.add_machine())
    }

    pub fn add_machine(&mut self) -> Option<()> {
        let number = self.machines.len();
        let server = self.plan.servers[number % self.plan.servers.len()];
        self.machines.push(Machine::new(number, server, self));
        let machine = self.machines.last_mut().expect("just made");
        if self.plan.agents {
            machine.start_agent();
        }
        machine.start_server()
    }

    /// Takes over the key of another cluster, and the certificate of its machines, before this one has any: they are sites
    /// of one cluster.
    ///
    /// # Panics
    ///
    /// If the other has no machine.
    pub fn join(&mut self, other: &Self) {
        fs::copy(other.key_file(), self.key_file()).expect("copied");
        self.certificate = Some(other.machines[0].site.folder.clone());
    }

    /// The lines of the settings that say where Valkey is.
    fn place(&self) -> String {
        let listed = |ports: &[u16]| {
            let addresses = ports.iter().map(|port| format!("127.0.0.1:{port}"));
            format!("{:?}", addresses.collect::<Vec<_>>())
        };
        if self.sentinels.is_empty() {
            return format!(
                "servers = {}\nclustered = {}",
                listed(&self.agents_ask),
                self.clustered
            );
        }
        let (sentinels, name) = (listed(&self.sentinels), Watched::NAME);
        format!("sentinel = {{ servers = {sentinels}, master = {name:?} }}")
    }

    pub fn key_file(&self) -> PathBuf {
        self.folder.join("key")
    }

    pub fn start_valkey(&mut self) -> Option<()> {
        self.valkey = Some(valkey(self.port, &self.folder, &[])?);
        Some(())
    }

    pub fn stop_valkey(&mut self) {
        self.valkey = None;
    }

    pub fn signal_valkey(&self, signal: Signal) {
        self.valkey.as_ref().expect("it runs").signal(signal);
    }

    pub fn ask_valkey(&self, words: &[&str]) -> String {
        ask(self.port, words)
    }

    /// A client that a balancer sends from one machine to the next.
    pub fn client(&self, versions: Versions) -> Client {
        self.machines[0].site.client(versions)
    }

    /// Makes so many connections, each to the next machine. Returns which were resumed.
    pub fn go_round(&self, client: &mut Client, connections: usize) -> Vec<bool> {
        let machines = self.machines.iter().cycle();
        let connect = |machine: &Machine| {
            client.address = machine.site.address();
            let resumed = client.connect();
            // The session has time to reach the next machine.
            thread::sleep(Duration::from_millis(60));
            resumed
        };
        machines.take(connections).map(connect).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.machines.clear();
        self.stop_valkey();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts Valkey and waits until it listens. `None` if neither it nor Redis is installed.
pub fn valkey(port: u16, folder: &Path, more: &[&str]) -> Option<Process> {
    let never_evicts = ["--maxmemory-policy", "noeviction"];
    let started = server(port, folder, &[&never_evicts, more].concat());
    if started.is_none() {
        eprintln!("redis-server is not installed: nothing is tested with it");
    }
    started
}

/// Sends a command to Valkey. Returns its answer.
pub fn ask(port: u16, words: &[&str]) -> String {
    let asked = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output();
    String::from_utf8_lossy(&asked.expect("redis-cli").stdout).into_owned()
}

pub fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Machine {
    fn new(number: usize, server: Server, cluster: &Cluster) -> Self {
        let Plan { name, tickets, capacity, deadline_ms, .. } = cluster.plan;
        let mut site = Site::new(&format!("cluster-{name}-{number}"));
        // All machines have the same certificate, and so the same session-id contexts.
        let first = cluster.machines.first().map(|first| &first.site.folder);
        if let Some(folder) = first.or(cluster.certificate.as_ref()) {
            for file in ["cert.pem", "key.pem", "both.pem"] {
                fs::copy(folder.join(file), site.file(file)).expect("copied");
            }
        }
        let caches = Path::new(Store::FOLDER).join(&site.cache);
        let _ = fs::remove_dir_all(&caches);
        DirBuilder::new().mode(0o700).create(&caches).expect("a folder");
        let stateful = if tickets { "" } else { "stateful = yes" };
        let folder = caches.display();
        let more = &cluster.server_settings;
        let one =
            format!("folder = {folder}\ncapacity = {capacity}\ncontext = shop\n{stateful}\n{more}");
        site.configure(&one);
        let configuration =
            server.configuration.replace("TICKETS", server.tickets[tickets as usize]);
        site.write("server.conf", &configuration);
        // A machine records beside its key file what it has seen.
        let key_file = site.file("cluster.key");
        fs::copy(cluster.key_file(), &key_file).expect("copied");
        let deadline = deadline_ms.map(|ms| format!("deadline_ms = {ms}\n")).unwrap_or_default();
        let settings = format!(
            "name = \"web\"\n{}\nkey_file = {key_file:?}\ncache = {:?}\n\
             folder = {caches:?}\ncapacity = {capacity:?}\n{deadline}{}\n\
             [sessions]\nmost = 200000\nbytes = \"256MiB\"\nshards = {SHARDS}\n",
            cluster.place(),
            site.cache,
            cluster.more_settings,
        );
        fs::write(site.file("cluster.toml"), settings).expect("written");
        site.running.clear();
        Self { site, server, caches, agent_becomes: cluster.agents_become, agent: None }
    }

    pub fn rejoin(&self, words: &[&str]) -> Command {
        let mut command = Command::new(rejoin());
        command.args(words).arg("--settings").arg(self.site.file("cluster.toml"));
        command
    }

    pub fn start_agent(&mut self) {
        self.begin_agent();
        self.wait_until("the agent is linked", |facts| facts.is_linked);
    }

    /// Starts the agent, and does not wait for Valkey.
    pub fn begin_agent(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.site.file("agent"));
        let log = log.expect("a file");
        let mut command = self.rejoin(&["cluster", "run"]);
        command.args(self.agent_becomes.map(|name| ["--user", name]).iter().flatten());
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.agent = Some(command.spawn().expect("rejoin is built"));
    }

    pub fn stop_agent(&mut self) {
        self.agent.take().into_iter().for_each(end);
    }

    /// Ends the agent, and starts another when servers have noticed.
    pub fn restart_agent(&mut self) {
        self.stop_agent();
        self.wait_until("it is forgotten", |facts| !facts.is_linked);
        self.start_agent();
    }

    fn start_server(&mut self) -> Option<()> {
        let configuration = self.site.shown("server.conf");
        let Server { program, arguments, .. } = self.server;
        self.site.start(program, &[arguments, &[&configuration]].concat())
    }

    pub fn store(&self) -> Option<Store> {
        Store::open(&self.caches, &self.site.cache(), None).ok()
    }

    pub fn facts(&self) -> Option<MailboxFacts> {
        Some(self.store()?.mailbox()?.facts())
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn(&MailboxFacts) -> bool) {
        let until = Instant::now() + process::DEADLINE;
        while !self.facts().is_some_and(|facts| is_so(&facts)) {
            let told = fs::read_to_string(self.site.file("agent")).unwrap_or_default();
            assert!(Instant::now() < until, "{what}: {:?} {told}", self.facts());
            thread::sleep(process::STEP);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.site.stop();
        self.stop_agent();
        let _ = Store::remove(&self.caches, &self.site.cache());
        let _ = fs::remove_dir_all(&self.caches);
    }
}

/// The shards of Valkey's sessions.
pub const SHARDS: u16 = 4;
