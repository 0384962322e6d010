//! `bindings/python` in Python, against a real manager and real servers.

use rejoin_testkit::serve::{Server, scratch};
use rejoin_testkit::shipped::target;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rejoin_testkit::manager::Managed;

use crate::published::done;

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

/// The wheel, in new environments of the oldest and the newest Python that it says it is for.
#[test]
#[ignore = "slow: needs two more Pythons; make test-all"]
fn the_wheel_serves_python_3_9_and_3_13() {
    let tools = Tools::once();
    for version in ["3.9", "3.13"] {
        let name = format!("python{version}");
        let python = target().join(&name).join("root/usr/bin").join(&name);
        assert!(python.exists(), "there is no Python {version}: run make target/{name}");
        let environment = fresh(&name);
        done(Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&environment));
        let python = environment.join("bin/python");
        let wheel = format!("rejoin-tls[requests,httpx] @ file://{}", tools.wheel.display());
        let mut pip = tools.command("pip");
        pip.arg("--python").arg(&python).args(["install", "--quiet", &wheel, "httpx[http2]"]);
        done(&mut pip);
        succeeds(&name, &mut Command::new(python));
    }
}

/// A program's types are checked against the wheel's.
#[test]
#[ignore = "slow: needs mypy; make test-all"]
fn the_wheel_is_typed() {
    let tools = Tools::once();
    let mypy = || {
        let mut mypy = tools.command("mypy");
        mypy.args(["--strict", "--no-incremental"]);
        mypy
    };
    done(mypy().args(["--package", "rejoin"]));
    let program = fresh("typed.py");
    for (line, is_right) in [
        ("resumed: bool = rejoin.connect('example.com').session.resumed", true),
        ("resumed: str = rejoin.connect('example.com').session.resumed", false),
        ("rejoin.connect('example.com', alpn=1)", false),
    ] {
        std::fs::write(&program, format!("import rejoin\n{line}\n")).expect("a file");
        let output = mypy().arg(&program).output().expect("mypy");
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), is_right, "{line}: {told}");
    }
}

/// The tools that make and check packages, in an environment of its own with the wheel that it made.
struct Tools {
    folder: PathBuf,
    wheel: PathBuf,
}

impl Tools {
    fn once() -> &'static Self {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| {
            let packages = ["build==1.6.1", "twine==7.0.0", "mypy==2.4.1", "pip==25.3"];
            let typed = ["requests==2.34.2", "httpx[http2]==0.28.1"];
            let python = python("python-tools", &[&packages[..], &typed].concat());
            let python = python.expect("PyPI has tools");
            let mut tools = Self { folder: python.with_file_name(""), wheel: PathBuf::new() };
            tools.wheel = tools.build();
            let mut pip = tools.command("pip");
            pip.args(["install", "--quiet", "--force-reinstall", "--no-deps"]);
            done(pip.arg(&tools.wheel));
            tools
        })
    }

    fn command(&self, tool: &str) -> Command {
        Command::new(self.folder.join(tool))
    }

    /// Builds the package of the sources, and of that the wheel, whose path it returns. Both satisfy PyPI.
    fn build(&self) -> PathBuf {
        // Building leaves files beside the sources.
        let (sources, built) = (fresh("sources"), fresh("built"));
        done(Command::new("cp").args(["--recursive", "--dereference", BINDINGS]).arg(&sources));
        done(self.command("python").args(["-m", "build", "--outdir"]).args([&built, &sources]));
        let packages = std::fs::read_dir(&built).expect("packages");
        let packages: Vec<_> = packages.map(|entry| entry.expect("a file").path()).collect();
        assert_eq!(packages.len(), 2, "{packages:?}");
        done(self.command("twine").args(["check", "--strict"]).args(&packages));
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "whl");
        packages.into_iter().find(is_wheel).expect("a wheel")
    }
}

/// A path at which nothing is.
fn fresh(name: &str) -> PathBuf {
    let path = scratch("python-packages").join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn run_tests(name: &str, packages: &[&str]) {
    let mut python = Command::new(python(name, packages).unwrap_or_else(|| "python3".into()));
    succeeds(name, python.env("PYTHONPATH", Path::new(BINDINGS).join("src")));
}

/// The tests in `bindings/python` succeed with this Python.
fn succeeds(name: &str, tests: &mut Command) {
    let managed = Managed::start(name);
    let pair = managed.certify(&["localhost", "127.0.0.1"]);
    let server = Server::with(pair.clone(), &[]);
    let other = Server::with(managed.certify(&["other.test"]), &[]);
    let nginx = Nginx::start(&pair);
    tests
        .arg(Path::new(BINDINGS).join("tests/test_rejoin.py"))
        .arg("--verbose")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // These say whom Python's clients believe.
        .env_remove("REQUESTS_CA_BUNDLE")
        .env_remove("CURL_CA_BUNDLE")
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR")
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
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        // Tests that run at the same time have one each.
        let folder = scratch(&format!("python-nginx-{port}"));
        let text = NGINX.replace("FOLDER", &folder.display().to_string());
        let text = text.replace("CERTIFICATE", certificate).replace("KEY", key);
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, text.replace("PORT", &port.to_string())).expect("a file");
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(configuration).stderr(Stdio::null());
        let mut server = Self { port, child: nginx.spawn().ok()? };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.child.try_wait().expect("our own child").is_none(), "nginx ended");
            assert!(Instant::now() < until, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
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
