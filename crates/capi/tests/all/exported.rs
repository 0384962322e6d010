//! nginx and HAProxy without Rejoin, with ticket keys that `rejoin keys export` writes.

use rejoin_testkit::shipped::rejoin;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::SslSession;

use rejoin_testkit::machines::{Cluster, Plan, end};
use rejoin_testkit::process::{Signal, signal};
use rejoin_testkit::site::{Client, Site, Versions};

use crate::compat::matrix::children;

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

const NGINX: &str = "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf; include FOLDER/tickets/keys.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_timeout 1d;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; server_name localhost; return 200 \"$pid\\n\"; }
}
";

const HAPROXY: &str = "\
global
  tune.ssl.cachesize 0
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem tls-ticket-keys FOLDER/tickets
  http-request return status 200 content-type text/plain string haproxy
";

/// Starts Valkey, with a cluster's key and settings.
fn cluster(name: &'static str) -> Option<Cluster> {
    let (servers, capacity, deadline_ms) = (&[], "1MiB", Some(50));
    let plan =
        Plan { name, servers, machines: 0, tickets: true, agents: false, capacity, deadline_ms };
    let cluster = Cluster::without_machines(plan)?;
    let settings = format!(
        "name = \"web\"\nservers = [\"127.0.0.1:{}\"]\nkey_file = {:?}\ncapacity = \"1MiB\"\n",
        cluster.port,
        cluster.key_file()
    );
    fs::write(cluster.folder.join("cluster.toml"), settings).expect("written");
    Some(cluster)
}

fn keys(cluster: &Cluster, words: &[&str]) -> Command {
    let settings = cluster.folder.join("cluster.toml");
    let mut command = Command::new(rejoin());
    command.arg("keys").args(words).arg(format!("--cluster={}", settings.display()));
    command
}

/// Returns the output of a command that must succeed.
fn told(cluster: &Cluster, words: &[&str]) -> String {
    let told = keys(cluster, words).output().expect("it runs");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).expect("text")
}

/// Retires the oldest key.
fn retire_first(cluster: &Cluster) {
    let listed = told(cluster, &["list", "--json"]);
    let first = listed.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    told(cluster, &["revoke", first.expect("an id")]);
}

/// A server without Rejoin, and the process that writes its keys.
struct Exported {
    site: Site,
    exporter: Option<Child>,
}

impl Exported {
    /// Makes a server. `then` is the command after each export, with `FOLDER` in it.
    fn new(cluster: &Cluster, name: &str, format: &str, then: &str) -> Self {
        let mut site = Site::new(name);
        site.environment.clear();
        let log = fs::File::create(site.file("exporter")).expect("a file");
        let into = site.shown("tickets");
        let words = ["export", "--follow", "--format", format, "--into", &into];
        let mut exporter = keys(cluster, &words);
        exporter.args(["--context", "shop", "--then", &site.filled(then)]);
        exporter.stdout(log.try_clone().expect("a file")).stderr(log);
        let exporter = Some(exporter.spawn().expect("rejoin is built"));
        let exported = Self { site, exporter };
        exported.wait_until("there are keys", |at| !at.names().is_empty());
        exported
    }

    /// Copies the certificate of another server, because nginx derives its session-id context from it.
    fn identify_as(&self, other: &Self) {
        for file in ["cert.pem", "key.pem", "both.pem"] {
            fs::copy(other.site.file(file), self.site.file(file)).expect("copied");
        }
    }

    fn start_nginx(&mut self) -> Option<()> {
        self.site.write("server.conf", NGINX);
        let configuration = self.site.shown("server.conf");
        self.site.start("nginx", &["-c", &configuration])
    }

    /// Returns the ids of nginx's workers.
    fn workers(&self) -> HashSet<String> {
        let master = fs::read_to_string(self.site.file("nginx.pid")).expect("it runs");
        children(master.trim())
    }

    fn start_haproxy(&mut self) -> Option<()> {
        self.site.write("server.conf", HAPROXY);
        let configuration = self.site.shown("server.conf");
        self.site.start("haproxy", &["-db", "-f", &configuration])
    }

    /// Returns the names of its keys, from the files.
    fn names(&self) -> Vec<Vec<u8>> {
        let tickets = self.site.file("tickets");
        if tickets.is_file() {
            let lines = fs::read_to_string(&tickets).expect("a file");
            let key = |line: &str| openssl::base64::decode_block(line).expect("base64");
            return lines.lines().map(|line| key(line)[..16].to_vec()).collect();
        }
        let list = fs::read_to_string(tickets.join("keys.conf")).unwrap_or_default();
        let path = |line: &str| Some(line.split('"').nth(1)?.to_owned());
        let files = list.lines().filter_map(path);
        files.map(|file| fs::read(file).expect("it is listed")[..16].to_vec()).collect()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: {}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.site.file("exporter")).unwrap_or_default()
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.exporter.take().into_iter().for_each(end);
    }
}

/// Connects to one and the other in turn.
fn go_round(client: &mut Client, servers: [&Exported; 2], times: usize) -> Vec<bool> {
    let connect = |server: &Exported| {
        client.address = server.site.address();
        client.connect()
    };
    servers.into_iter().cycle().take(times).map(connect).collect()
}

fn holds(session: &SslSession, name: &[u8]) -> bool {
    let session = session.to_der().expect("a session");
    session.windows(name.len()).any(|window| window == name)
}

/// Returns true if a client's ticket is encrypted with the key of this name.
fn is_sealed_by(client: &Client, name: &[u8]) -> bool {
    client.session.lock().expect("no panic").as_ref().is_some_and(|session| holds(session, name))
}

/// Asserts that both servers resume each other's tickets, and that all are encrypted with the current key and not the
/// next one. `renews`: a client that has used its ticket gets another in TLS 1.3, too.
fn resume_each_others(servers: [&Exported; 2], [encrypting, next]: [usize; 2], renews: bool) {
    let names = servers[0].names();
    assert_eq!(names, servers[1].names());
    let [one, other] = servers;
    for (versions, servers) in
        BOTH.into_iter().flat_map(|of| [(of, [one, other]), (of, [other, one])])
    {
        let mut client = one.site.client(versions);
        let resumed = go_round(&mut client, servers, 4);
        let again = renews || versions == Versions::Tls12;
        assert_eq!(resumed, [false, true, again, true], "{versions:?}");
        assert!(is_sealed_by(&client, &names[encrypting]), "{versions:?}");
        assert!(!is_sealed_by(&client, &names[next]), "{versions:?}");
    }
}

/// Returns the ticket of a full handshake.
fn ticket(server: &Exported, versions: Versions) -> Vec<u8> {
    let mut client = server.site.client(versions);
    assert!(!client.connect());
    let session = client.session.lock().expect("no panic");
    session.as_ref().and_then(|session| session.to_der().ok()).expect("a session")
}

/// Returns true if a server resumes a ticket. OpenSSL offers a TLS 1.3 ticket once, so each call uses a new copy.
fn is_resumed(server: &Exported, versions: Versions, ticket: &[u8]) -> bool {
    let mut client = server.site.client(versions);
    *client.session.lock().expect("no panic") = SslSession::from_der(ticket).ok();
    client.connect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn nginx_resumes_anothers_tickets_and_reloads_what_changed() {
    let Some(cluster) = cluster("exported-nginx") else { return };
    let then = "kill -HUP $(cat FOLDER/nginx.pid)";
    let mut servers = ["one", "other"]
        .map(|name| Exported::new(&cluster, &format!("exported-{name}"), "nginx", then));
    told(&cluster, &["rotate"]);
    for server in &servers {
        server.wait_until("there is a next key", |at| at.names().len() == 2);
    }
    servers[1].identify_as(&servers[0]);
    for server in &mut servers {
        if server.start_nginx().is_none() {
            return;
        }
    }
    let [one, other] = &servers;
    resume_each_others([one, other], [0, 1], true);

    let tickets = one.site.file("tickets");
    let files: Vec<_> = fs::read_dir(&tickets)
        .expect("a folder")
        .map(|file| file.expect("a file").path())
        .collect();
    assert!(files.iter().all(|file| mode(file) == 0o600) && mode(&tickets) == 0o700, "{files:?}");
    assert_eq!(files.len(), 3, "{files:?}");
    let old = BOTH.map(|versions| (versions, ticket(one, versions)));
    for (versions, ticket) in &old {
        assert!(is_resumed(one, *versions, ticket) && is_resumed(other, *versions, ticket));
    }
    let before = [one, other].map(Exported::workers);
    retire_first(&cluster);
    for (server, before) in [one, other].into_iter().zip(&before) {
        server.wait_until("the key is gone", |at| at.names().len() == 1);
        server.wait_until("its file is", |at| {
            fs::read_dir(at.site.file("tickets")).expect("a folder").count() == 2
        });
        // nginx keeps serving during a reload, and its old workers renew tickets with the old key.
        server.wait_until("its workers are new", |at| at.workers().is_disjoint(before));
        for (versions, ticket) in &old {
            assert!(!is_resumed(server, *versions, ticket), "{versions:?}");
        }
    }
    for versions in BOTH {
        let resumed = go_round(&mut one.site.client(versions), [one, other], 4);
        assert_eq!(resumed, [false, true, true, true], "{versions:?}");
    }
}

#[test]
fn haproxy_resumes_anothers_tickets_and_a_command_that_fails_stops_nothing() {
    let Some(cluster) = cluster("exported-haproxy") else { return };
    let mut servers = ["haproxy", "another"]
        .map(|name| Exported::new(&cluster, &format!("exported-{name}"), "haproxy", "exit 3"));
    assert!(servers.iter().all(|server| server.names().len() == 3));
    told(&cluster, &["rotate"]);
    for server in &servers {
        server.wait_until("there is a next key", |at| at.names()[1] != at.names()[2]);
        assert_eq!(mode(&server.site.file("tickets")), 0o600);
    }
    servers[1].identify_as(&servers[0]);
    for server in &mut servers {
        if server.start_haproxy().is_none() {
            return;
        }
    }
    let [one, other] = &servers;
    // The server issues no new TLS 1.3 ticket for one that is encrypted with the current key.
    resume_each_others([one, other], [1, 2], false);

    let old = BOTH.map(|versions| (versions, ticket(one, versions)));
    for (versions, ticket) in &old {
        assert!(is_resumed(one, *versions, ticket) && is_resumed(other, *versions, ticket));
    }
    let first = one.names()[1].clone();
    retire_first(&cluster);
    for server in &mut servers {
        server.wait_until("the key is gone", |at| !at.names().contains(&first));
        assert!(server.log().contains("exit 3: exit status: 3"), "{}", server.log());
        server.site.stop();
        server.start_haproxy().expect("installed");
    }
    let [one, other] = &servers;
    for (versions, ticket) in &old {
        for server in [one, other] {
            assert!(!is_resumed(server, *versions, ticket), "{versions:?}");
        }
        let resumed = go_round(&mut one.site.client(*versions), [one, other], 2);
        assert_eq!(resumed, [false, true], "{versions:?}");
    }
    let mut exporter = servers[0].exporter.take().expect("it runs");
    signal(&exporter, Signal::TERM);
    assert!(exporter.wait().is_ok_and(|status| status.success()));
}

/// The session-id contexts of both differ, whatever their keys are.
#[test]
fn nginx_and_haproxy_do_not_resume_each_others() {
    let Some(cluster) = cluster("exported-both") else { return };
    let mut nginx = Exported::new(&cluster, "exported-to-nginx", "nginx", "true");
    let mut haproxy = Exported::new(&cluster, "exported-to-haproxy", "haproxy", "true");
    haproxy.identify_as(&nginx);
    if nginx.start_nginx().is_none() || haproxy.start_haproxy().is_none() {
        return;
    }
    assert_eq!(nginx.names()[0], haproxy.names()[1]);
    for versions in BOTH {
        let mut client = nginx.site.client(versions);
        assert_eq!(go_round(&mut client, [&nginx, &haproxy], 4), [false; 4], "{versions:?}");
    }
}

#[test]
fn keys_are_written_once_and_only_where_nobody_else_writes() {
    let Some(cluster) = cluster("exported-once") else { return };
    let into = cluster.folder.join("tickets");
    let once = |context: &str, into: &Path| {
        let words = ["export", "--format", "haproxy", "--json", "--context", context];
        keys(&cluster, &words).arg("--into").arg(into).args(["--then", "printf done >&2"]).output()
    };
    let without = once("shop", &into).expect("it runs");
    assert!(String::from_utf8_lossy(&without.stderr).contains("start an agent"), "{without:?}");
    let exporter = Exported::new(&cluster, "exported-by-another", "haproxy", "true");
    for changed in [true, false] {
        let done = once("shop", &into).expect("it runs");
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(told.trim(), format!("{{\"changed\":{changed}}}"));
        assert_eq!(!done.stderr.is_empty(), changed, "{done:?}");
    }
    let text = fs::read(&into).expect("a file");
    assert_eq!(text, fs::read(exporter.site.file("tickets")).expect("a file"));
    assert!(once("other", &into).is_ok_and(|done| done.status.success()));
    assert_ne!(text, fs::read(&into).expect("a file"), "another context has other keys");

    let open = cluster.folder.join("open");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("ours");
    let refused = once("shop", &open.join("tickets")).expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    assert!(!open.join("tickets").exists());
    let terminal = once("shop", Path::new("/dev/null")).expect("it runs");
    let told = String::from_utf8_lossy(&terminal.stderr).into_owned();
    assert!(told.contains("no regular file"), "{told}");
    let nameless = once("", &into).expect("it runs");
    assert_eq!(nameless.status.code(), Some(2), "{nameless:?}");
}
