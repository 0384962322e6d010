//! The servers, the authorities and the programs, and the behaviour of each program with Rejoin and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::certificates::Authority;
use crate::clients::cases::{Case, Needs, Way};
use crate::clients::pages::Pages;
use crate::clients::{SCRIPTS, python, quiet};
use crate::manager::Managed;
use crate::process::Process;
use crate::proxy::connect;
use crate::serve::Server;
use crate::stacks::{Tls, rustls, s_server};

/// The servers, the authorities and the programs.
pub struct World {
    pub managed: Managed,
    pub servers: Vec<Service>,
    proxy: u16,
    /// The time that Rejoin waits for the manager, which is slow on a busy machine.
    pub patience_ms: u64,
    /// Python, and true if it has packages.
    python: (PathBuf, bool),
    /// The C program, if there is a compiler.
    verify: Option<PathBuf>,
}

/// A server for `localhost`.
pub struct Service {
    pub name: &'static str,
    pub tls: Tls,
    pub port: u16,
    pub site: Option<Pages>,
    _runs: Runs,
}

enum Runs {
    Here,
    Rejoin { _server: Server },
    Other { _process: Process },
}

/// The output and the exit code of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub stdout: String,
    /// Without Rejoin's lines.
    pub stderr: String,
    pub code: Option<i32>,
}

/// A program's run with Rejoin and its run without.
#[derive(Debug)]
pub struct Seen {
    pub without: Done,
    pub with: Done,
    /// Rejoin's lines.
    pub told: Vec<String>,
}

impl World {
    pub fn new(name: &str) -> Self {
        let managed = Managed::start(name);
        std::fs::write(managed.file("other.pem"), Authority::new().pem()).expect("a file");
        let mut servers = Vec::new();
        for tls in Tls::ALL {
            let site = Pages::start(&managed, tls);
            servers.extend(site.map(|site| Service::nginx(site, tls)));
            servers.extend(Service::openssl(&managed, tls));
            servers.push(Service::rustls(&managed, tls));
        }
        let verify = compiled(&managed, "verify");
        let (proxy, python) = (connect::start(), python());
        Self { managed, servers, proxy, patience_ms: 20_000, python, verify }
    }

    /// Runs a case without Rejoin and with it. `None` if the program is not installed, or the server is not for it.
    pub fn see(&self, case: &Case, service: &Service) -> Option<Seen> {
        let is_served = match case.needs {
            Needs::Page => true,
            Needs::Pages => service.site.is_some(),
            Needs::Tls13 => service.tls == Tls::V13,
        };
        if !is_served {
            return None;
        }
        let without = done(self.command(case, service, "without")?.output().ok()?);
        let mut command = self.command(case, service, "with")?;
        self.with_rejoin(&mut command);
        let with = done(command.output().ok()?);
        let told = |line: &&str| line.starts_with("rejoin: ");
        let lines: Vec<_> = with.stderr.lines().collect();
        let told_lines = lines.iter().copied().filter(told).map(str::to_owned).collect();
        let rest: Vec<_> = lines.iter().copied().filter(|line| !told(line)).collect();
        let stderr = rest.iter().map(|line| format!("{line}\n")).collect();
        Some(Seen { without, with: Done { stderr, ..with }, told: told_lines })
    }

    /// Puts Rejoin into a command's program.
    pub fn with_rejoin(&self, command: &mut Command) {
        super::with_rejoin(command, &self.managed.socket(), self.patience_ms);
    }

    /// The C program.
    pub fn verify(&self) -> Option<Command> {
        self.verify.as_ref().map(Command::new)
    }

    /// The name of the uploaded file.
    pub fn file(case: &Case, run: &str) -> String {
        format!("{run}-{}", case.what.replace([' ', '/'], "-"))
    }

    /// The program, without Rejoin. `run` names what it makes.
    pub fn command(&self, case: &Case, service: &Service, run: &str) -> Option<Command> {
        let needs_packages = ["requests", "httpx", "httpx_asyncio", "aiohttp"];
        if !self.python.1 && case.words.iter().any(|word| needs_packages.contains(word)) {
            return None;
        }
        let program = match case.program {
            "curl" | "git" | "wget" => case.program.into(),
            "Python" => self.python.0.clone(),
            "C" => self.verify.clone()?,
            other => panic!("{other}: no such program"),
        };
        // A program that hangs counts as different.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "60"]).arg(program);
        let folder =
            self.managed.file(&format!("{run}-{}-{}", service.port, case.what.replace(' ', "-")));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let site = service.site.as_ref();
        let values = [
            ("SCRIPTS", SCRIPTS.to_owned()),
            ("URL", format!("https://localhost:{}", service.port)),
            ("PORT", service.port.to_string()),
            ("EXPIRED", site.map(|site| site.expired.to_string()).unwrap_or_default()),
            ("OTHER", self.managed.file("other.pem")),
            ("PROXY", self.proxy.to_string()),
            ("BIG", site.map(Pages::big).unwrap_or_default()),
            ("FILE", Self::file(case, run)),
            ("FOLDER", folder.clone()),
            ("CA", self.managed.file("ca.pem")),
        ];
        for word in case.command_line() {
            let mut word = word.to_owned();
            // `CA` is a part of other words, such as `--cacert`.
            for (name, value) in &values {
                if *name != "CA" || word == "CA" || word.ends_with("=CA") {
                    word = word.replace(name, value);
                }
            }
            command.arg(word);
        }
        command.current_dir(&folder);
        quiet(&mut command);
        Some(command)
    }
}

impl Seen {
    /// Returns true if output and exit code are the same.
    pub fn is_same(&self) -> bool {
        self.without == self.with
    }

    /// Returns true if its connections went this way.
    pub fn went(&self, way: Way) -> bool {
        match way {
            Way::Manager => self.through() > 0 && self.direct().is_empty(),
            Way::Directly(why) => {
                let direct = self.direct();
                self.through() == 0
                    && !direct.is_empty()
                    && direct.iter().all(|line| line.contains(why))
            }
        }
    }

    fn through(&self) -> usize {
        self.told.iter().filter(|line| line.contains(": through the manager: ")).count()
    }

    fn direct(&self) -> Vec<&String> {
        self.told.iter().filter(|line| line.contains("directly: ")).collect()
    }
}

fn done(output: Output) -> Done {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
}

impl Service {
    fn nginx(site: Pages, tls: Tls) -> Self {
        Self { name: "nginx", tls, port: site.port, site: Some(site), _runs: Runs::Here }
    }

    /// OpenSSL's own server of files.
    pub fn openssl(managed: &Managed, tls: Tls) -> Option<Self> {
        Self::s_server(managed, tls, "-WWW")
    }

    /// OpenSSL's own, whose page tells of the connection.
    pub fn openssl_that_tells(managed: &Managed, tls: Tls) -> Option<Self> {
        Self::s_server(managed, tls, "-www")
    }

    fn s_server(managed: &Managed, tls: Tls, how: &str) -> Option<Self> {
        std::fs::write(managed.file("page"), "a page\n").expect("a file");
        let (_process, port) = s_server(managed, tls, how)?;
        Some(Self { name: "OpenSSL", tls, port, site: None, _runs: Runs::Other { _process } })
    }

    fn rustls(managed: &Managed, tls: Tls) -> Self {
        let (_server, port) = rustls(managed, tls);
        Self { name: "rustls", tls, port, site: None, _runs: Runs::Rejoin { _server } }
    }
}

/// Compiles one of the C programs for libssl. `None` where there is no compiler.
pub fn compiled(managed: &Managed, name: &str) -> Option<PathBuf> {
    compiled_with(managed, name, &["-lssl", "-lcrypto", "-lpthread"])
}

/// Compiles one of the C programs with these libraries. `None` where there is no compiler, or no library.
pub fn compiled_with(managed: &Managed, name: &str, libraries: &[&str]) -> Option<PathBuf> {
    let program = PathBuf::from(managed.file(name));
    let mut cc = Command::new("cc");
    cc.arg("-Wall").arg("-o").arg(&program).arg(Path::new(SCRIPTS).join(format!("{name}.c")));
    let made = cc.args(libraries).status();
    made.is_ok_and(|made| made.success()).then_some(program)
}
