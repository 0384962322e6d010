//! `bindings/python` in Python, against a real manager and real servers.

use rejoin_testkit::serve::{Server, scratch};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rejoin_testkit::manager::Managed;

const BINDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/python");

#[test]
fn python_programs_share_sessions() {
    run_tests("python", &["requests", "httpx[http2]"]);
}

/// The packages of Debian 12.
#[test]
fn python_programs_of_debian_share_sessions() {
    run_tests("python-debian", &["requests", "httpx[http2]==0.23.3", "httpcore==0.16.3"]);
}

fn run_tests(name: &str, packages: &[&str]) {
    let managed = Managed::start(name);
    let pair = managed.certify(&["localhost", "127.0.0.1"]);
    let server = Server::with(pair.clone(), &[]);
    let other = Server::with(managed.certify(&["other.test"]), &[]);
    let nginx = Nginx::start(&pair);
    let mut tests = Command::new(python(name, packages).unwrap_or_else(|| "python3".into()));
    tests
        .arg(Path::new(BINDINGS).join("tests/test_rejoin.py"))
        .arg("--verbose")
        .env("PYTHONPATH", Path::new(BINDINGS).join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // These say whom Python's clients believe.
        .env_remove("REQUESTS_CA_BUNDLE")
        .env_remove("CURL_CA_BUNDLE")
        .env_remove("SSL_CERT_FILE")
        .env("REJOIN_TEST_MANAGER", managed.socket())
        .env("REJOIN_TEST_AUTHORITY", managed.file("ca.pem"))
        .env("REJOIN_TEST_PORT", port(&server))
        .env("REJOIN_TEST_OTHER_PORT", port(&other))
        .env("REJOIN_TEST_CERTIFICATE", &pair.0)
        .env("REJOIN_TEST_KEY", &pair.1);
    if let Some(nginx) = &nginx {
        tests.env("REJOIN_TEST_HTTP2_PORT", nginx.port.to_string());
    }
    let output = tests.output().expect("python3 is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    for skipped in told.lines().filter(|line| line.contains("... skipped")) {
        eprintln!("{skipped}");
    }
    assert!(output.status.success(), "{told}");
}

fn port(server: &Server) -> &str {
    server.listening.rsplit(':').next().expect("a port")
}

/// With these packages, in an environment of its own below the target folder. `None` where there is no way to them.
fn python(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let environment = scratch(name).join("environment");
    let done = environment.join("installed");
    if !done.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--retries", "1"]).args(packages))?;
        std::fs::write(&done, "").ok()?;
    }
    Some(environment.join("bin/python"))
}

fn run(command: &mut Command) -> Option<()> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        eprintln!("requests and httpx cannot be installed, nothing is tested with them: {why}");
    }
    output.status.success().then_some(())
}

/// A server that speaks HTTP/2; killed when dropped.
struct Nginx {
    port: u16,
    child: Child,
}

const NGINX: &str = "\
daemon off; worker_processes 1; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  ssl_certificate CERTIFICATE; ssl_certificate_key KEY;
  server { listen 127.0.0.1:PORT ssl http2; return 200 \"nginx\\n\"; }
}
";

impl Nginx {
    fn start((certificate, key): &(String, String)) -> Option<Self> {
        let folder = scratch("python-nginx");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        let text = NGINX.replace("FOLDER", &folder.display().to_string());
        let text = text.replace("CERTIFICATE", certificate).replace("KEY", key);
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, text.replace("PORT", &port.to_string())).expect("a file");
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(configuration).stderr(Stdio::null());
        let mut child = nginx.spawn().ok()?;
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().expect("our own child").is_none(), "nginx ended");
            assert!(Instant::now() < until, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { port, child })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker goes with it, which a kill would leave.
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a pid");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}
