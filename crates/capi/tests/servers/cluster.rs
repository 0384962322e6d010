//! Unmodified nginx and HAProxy on several machines, whose agents share sessions and ticket keys over Valkey.
//!
//! A machine is a folder for its cache, an agent and a server of its own, on loopback.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::{MailboxFacts, Store};

use crate::site::{Client, Site, Versions, free_port, library};

const NGINX: &str = "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets TICKETS;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; server_name localhost; return 200 \"$pid\\n\"; }
}
";

const HAPROXY: &str = "\
global
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 10s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem
  http-request return status 200 content-type text/plain string haproxy
";

/// What serves on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Nginx,
    /// Its session-id context is another than nginx's: only under a name are they one.
    Haproxy,
}

/// Valkey, a key, and the machines that have it.
pub(crate) struct Cluster {
    folder: PathBuf,
    valkey: Option<Child>,
    port: u16,
    pub(crate) machines: Vec<Machine>,
}

pub(crate) struct Machine {
    pub(crate) site: Site,
    program: Program,
    caches: PathBuf,
    agent: Option<Child>,
}

impl Cluster {
    /// `None`: there is no Valkey and no Redis, or no nginx.
    pub(crate) fn start(name: &str, machines: &[Program], tickets: &str) -> Option<Self> {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{name}"));
        let _ = fs::remove_dir_all(&folder);
        DirBuilder::new().mode(0o700).recursive(true).create(&folder).expect("a folder");
        let mut cluster = Self { folder, valkey: None, port: free_port(), machines: Vec::new() };
        cluster.start_valkey()?;
        let key = cluster.folder.join("key");
        let made = Command::new(library("rejoin")).args(["cluster", "key"]).arg(&key).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        for (number, program) in machines.iter().enumerate() {
            let name = format!("{name}-{number}");
            let machine = Machine::new(&name, *program, &cluster, tickets);
            cluster.machines.push(machine);
            let machine = cluster.machines.last_mut().expect("just made");
            machine.start_agent();
            machine.start_server()?;
        }
        Some(cluster)
    }

    pub(crate) fn start_valkey(&mut self) -> Option<()> {
        let port = self.port.to_string();
        let start = |program| {
            Command::new(program)
                .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
                .args(["--maxmemory-policy", "noeviction", "--port", &port, "--dir"])
                .arg(&self.folder)
                .stdout(Stdio::null())
                .spawn()
        };
        let Ok(valkey) = start("valkey-server").or_else(|_| start("redis-server")) else {
            eprintln!("redis-server is not installed: nothing is tested with it");
            return None;
        };
        self.valkey = Some(valkey);
        Some(())
    }

    pub(crate) fn stop_valkey(&mut self) {
        if let Some(mut valkey) = self.valkey.take() {
            let _ = valkey.kill();
            let _ = valkey.wait();
        }
    }

    pub(crate) fn signal_valkey(&self, signal: &str) {
        let valkey = self.valkey.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &valkey]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
    }

    pub(crate) fn ask_valkey(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let asked = Command::new("redis-cli").args(["-p", &port]).args(words).output();
        String::from_utf8_lossy(&asked.expect("redis-cli").stdout).into_owned()
    }

    /// A client that a balancer sends from one machine to the next.
    pub(crate) fn client(&self, versions: Versions) -> Client {
        self.machines[0].site.client(versions)
    }

    /// Which of so many connections, each to the next machine, were resumed.
    pub(crate) fn go_round(&self, client: &mut Client, connections: usize) -> Vec<bool> {
        let machines = self.machines.iter().cycle();
        let connect = |machine: &Machine| {
            client.address = machine.site.address();
            let resumed = client.connect();
            // What was made there has time to get here.
            thread::sleep(Duration::from_millis(30));
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

impl Machine {
    fn new(name: &str, program: Program, cluster: &Cluster, tickets: &str) -> Self {
        let mut site = Site::new(&format!("cluster-{name}"));
        // All machines have the same certificate, and so the same session-id contexts.
        for file in ["cert.pem", "key.pem", "both.pem"] {
            if let Some(first) = cluster.machines.first() {
                fs::copy(first.site.file(file), site.file(file)).expect("copied");
            }
        }
        let caches = Path::new(Store::FOLDER).join(&site.cache);
        let _ = fs::remove_dir_all(&caches);
        DirBuilder::new().mode(0o700).create(&caches).expect("a folder");
        let stateful = if tickets == "off" { "stateful = yes" } else { "" };
        site.configure(&format!("folder = {}\ncontext = shop\n{stateful}", caches.display()));
        site.write("haproxy.cfg", HAPROXY);
        site.write("nginx.conf", &NGINX.replace("TICKETS", tickets));
        let settings = format!(
            "name = \"web\"\nservers = [\"127.0.0.1:{}\"]\nkey_file = {:?}\ncache = {:?}\n\
             folder = {:?}\ncapacity = \"1MiB\"\ndeadline_ms = 50\n\
             [sessions]\nmost = 10000\nbytes = \"16MiB\"\nshards = 4\n",
            cluster.port,
            cluster.folder.join("key"),
            site.cache,
            caches,
        );
        fs::write(site.file("cluster.toml"), settings).expect("written");
        site.running.clear();
        Self { site, program, caches, agent: None }
    }

    pub(crate) fn rejoin(&self, words: &[&str]) -> Command {
        let mut command = Command::new(library("rejoin"));
        command.args(words).arg("--settings").arg(self.site.file("cluster.toml"));
        command
    }

    pub(crate) fn start_agent(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.site.file("agent"));
        let mut command = self.rejoin(&["cluster", "run"]);
        command.stdout(Stdio::null()).stderr(log.expect("a file"));
        self.agent = Some(command.spawn().expect("rejoin is built"));
        self.wait_until("the agent is linked", |facts| facts.is_linked);
    }

    pub(crate) fn stop_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    fn start_server(&mut self) -> Option<()> {
        let [nginx, haproxy] = ["nginx.conf", "haproxy.cfg"].map(|file| self.site.shown(file));
        match self.program {
            Program::Nginx => self.site.start("nginx", &["-c", &nginx]),
            Program::Haproxy => self.site.start("haproxy", &["-db", "-f", &haproxy]),
        }
    }

    pub(crate) fn store(&self) -> Option<Store> {
        Store::open(&self.caches, &self.site.cache(), None).ok()
    }

    pub(crate) fn facts(&self) -> Option<MailboxFacts> {
        Some(self.store()?.mailbox()?.facts())
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&MailboxFacts) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.facts().is_some_and(|facts| is_so(&facts)) {
            let told = fs::read_to_string(self.site.file("agent")).unwrap_or_default();
            assert!(Instant::now() < until, "{what}: {:?} {told}", self.facts());
            thread::sleep(Duration::from_millis(20));
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

const THREE: [Program; 3] = [Program::Nginx, Program::Nginx, Program::Haproxy];
const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

#[test]
fn sessions_of_one_machine_resume_on_the_others() {
    let Some(cluster) = Cluster::start("sessions", &THREE, "off") else { return };
    for versions in BOTH {
        let mut client = cluster.client(versions);
        let resumed = cluster.go_round(&mut client, 10);
        assert!(
            !resumed[0] && resumed[1..].iter().all(|resumed| *resumed),
            "{versions:?} {resumed:?}"
        );
    }
    let fetched: u64 =
        cluster.machines.iter().filter_map(Machine::facts).map(|facts| facts.fetched).sum();
    assert!(fetched >= 4, "{fetched}");
}

#[test]
fn tickets_of_one_machine_resume_on_the_others_until_their_key_is_revoked() {
    let Some(cluster) = Cluster::start("tickets", &THREE, "on") else { return };
    let mut clients = BOTH.map(|versions| cluster.client(versions));
    for client in &mut clients {
        let resumed = cluster.go_round(client, 7);
        assert!(!resumed[0] && resumed[1..].iter().all(|resumed| *resumed), "{resumed:?}");
    }
    let keys = |words: &[&str]| {
        let settings = cluster.machines[1].site.shown("cluster.toml");
        let mut rejoin = Command::new(library("rejoin"));
        let told = rejoin.arg("keys").args(words).arg(format!("--cluster={settings}")).output();
        let told = told.expect("it runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("text")
    };
    assert_eq!(keys(&["list", "--json"]).lines().count(), 1);
    keys(&["rotate"]);
    let listed = keys(&["list", "--json"]);
    let first = listed.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(listed.lines().count(), 2, "{listed}");
    keys(&["revoke", first.expect("an id")]);
    // Agents look once a second, and so do servers.
    thread::sleep(Duration::from_secs(4));
    for client in &mut clients {
        let resumed = cluster.go_round(client, 4);
        assert!(!resumed[0] && resumed[1..].iter().all(|resumed| *resumed), "{resumed:?}");
    }
}

/// Connects to every machine in turn; whether each was served is asserted by the client.
fn served(cluster: &Cluster) -> usize {
    let clients = BOTH.map(|versions| cluster.client(versions));
    clients
        .into_iter()
        .map(|mut client| {
            let resumed = cluster.go_round(&mut client, 6);
            resumed.iter().filter(|resumed| **resumed).count()
        })
        .sum()
}

#[test]
fn without_valkey_machines_go_on_by_themselves_and_come_back() {
    let Some(mut cluster) = Cluster::start("faults", &THREE[1..], "off") else { return };
    assert_eq!(served(&cluster), 10, "together");
    cluster.stop_valkey();
    for machine in &cluster.machines {
        machine.wait_until("it is noticed", |facts| !facts.is_linked);
    }
    served(&cluster);
    cluster.start_valkey().expect("installed");
    for machine in &cluster.machines {
        machine.wait_until("it is back", |facts| facts.is_linked);
    }
    assert_eq!(served(&cluster), 10, "empty, and together again");
    cluster.signal_valkey("-STOP");
    served(&cluster);
    cluster.signal_valkey("-CONT");
    for machine in &cluster.machines {
        machine.wait_until("it goes on", |facts| facts.is_linked);
    }
    cluster.ask_valkey(&["SCRIPT", "FLUSH"]);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(served(&cluster), 10, "scripts flushed");
    cluster.machines[1].stop_agent();
    served(&cluster);
    cluster.machines[1].start_agent();
    assert_eq!(served(&cluster), 10, "with a new agent");
    for machine in &cluster.machines {
        let store = machine.store().expect("there");
        assert!(store.check().iter().all(Result::is_ok));
    }
}
