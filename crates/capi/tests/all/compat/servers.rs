//! The servers, and how each is told what is wanted of it.

use std::path::Path;
use std::process::Command;

/// A server from a package, unmodified.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// As it stands in the tables.
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    /// What makes it from its configuration, if a package does not bring it.
    build: &'static [&'static str],
    /// What it is called where versions are told, and the command that tells its own.
    pub(crate) software: &'static str,
    pub(crate) version: &'static [&'static str],
    pub(crate) arguments: &'static [&'static str],
    /// A file of its own, and what it says.
    pub(crate) configuration: (&'static str, &'static str),
    /// What stands for `@VARIANT@`.
    variant: &'static str,
    /// What stands for `@TICKETS@` where stateless tickets are off, and where they are on.
    tickets: [&'static str; 2],
    /// The signal that has it read its configuration anew.
    pub(crate) reload: Option<&'static str>,
    /// Whether several processes answer at one port. Where it is one, sessions are to be shared with a
    /// second server at another port.
    pub(crate) has_workers: bool,
}

impl Server {
    /// What no two of them have in common, and files may be called.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.software, self.variant)
    }

    /// Makes its program in a folder. `None` if what that takes is not installed.
    pub(crate) fn build(&self, folder: &Path) -> Option<()> {
        let [program, arguments @ ..] = self.build else { return Some(()) };
        std::fs::write(folder.join(self.configuration.0), self.configuration.1).expect("a file");
        let built = Command::new(program).args(arguments).current_dir(folder).status();
        match built {
            Ok(status) if status.success() => Some(()),
            _ => {
                eprintln!("{}: cannot be made here, nothing is tested with it", self.name);
                None
            }
        }
    }

    /// Fills in what is not the site's.
    pub(crate) fn filled(&self, text: &str, tickets: bool) -> String {
        let tickets = self.tickets[usize::from(tickets)];
        text.replace("@TICKETS@", tickets).replace("@VARIANT@", self.variant)
    }
}

pub(crate) const NGINX: Server = Server {
    name: "nginx",
    program: "nginx",
    build: &[],
    software: "nginx",
    version: &["nginx", "-v"],
    arguments: &["-c", "FOLDER/nginx@PORT@.conf"],
    configuration: ("nginx@PORT@.conf", include_str!("nginx.conf")),
    variant: "",
    tickets: ["off", "on"],
    reload: Some("HUP"),
    has_workers: true,
};

/// Another nginx, which somebody else has set up for the same site.
pub(crate) const NGINX_OTHER: Server =
    Server { configuration: ("nginx@PORT@.conf", include_str!("nginx-other.conf")), ..NGINX };

const HAPROXY: Server = Server {
    name: "HAProxy",
    program: "haproxy",
    build: &[],
    software: "HAProxy",
    version: &["haproxy", "-v"],
    arguments: &["-W", "-db", "-f", "FOLDER/haproxy@PORT@.cfg"],
    configuration: ("haproxy@PORT@.cfg", include_str!("haproxy.cfg")),
    variant: "",
    tickets: ["no-tls-tickets", ""],
    reload: Some("USR2"),
    has_workers: false,
};

const PREFORK: Server = Server {
    name: "Apache prefork",
    program: "apache2",
    build: &[],
    software: "Apache",
    version: &["apache2", "-v"],
    arguments: &["-D", "FOREGROUND", "-f", "FOLDER/apache@PORT@.conf"],
    configuration: ("apache@PORT@.conf", include_str!("apache.conf")),
    variant: "prefork",
    tickets: ["off", "on"],
    reload: Some("USR1"),
    has_workers: true,
};

const EVENT: Server = Server { name: "Apache event", variant: "event", ..PREFORK };

const S_SERVER: Server = Server {
    name: "`openssl s_server`",
    program: "openssl",
    build: &[],
    software: "OpenSSL",
    version: &["openssl", "version"],
    arguments: &[
        "s_server",
        "-accept",
        "127.0.0.1:@PORT@",
        "-cert",
        "both.pem",
        "-www",
        "-quiet",
        "@TICKETS@",
    ],
    configuration: ("nothing", ""),
    variant: "",
    tickets: ["-no_ticket", "-quiet"],
    reload: None,
    has_workers: false,
};

const PYTHON: Server = Server {
    name: "Python's `ssl`",
    program: "python3",
    build: &[],
    software: "Python",
    version: &["python3", "--version"],
    arguments: &["server@PORT@.py"],
    configuration: ("server@PORT@.py", include_str!("server.py")),
    variant: "",
    tickets: ["ssl.OP_NO_TICKET", "0"],
    reload: None,
    has_workers: true,
};

pub(crate) const SERVERS: [Server; 6] = [NGINX, HAPROXY, PREFORK, EVENT, S_SERVER, PYTHON];

/// A program with OpenSSL inside.
const STATIC: Server = Server {
    name: "static OpenSSL",
    program: "FOLDER/static",
    build: &["cc", "-o", "static", "static.c", "-l:libssl.a", "-l:libcrypto.a", "-ldl", "-pthread"],
    software: "static",
    version: &[],
    arguments: &["@PORT@", "both.pem"],
    configuration: ("static.c", include_str!("static.c")),
    variant: "",
    tickets: ["", ""],
    reload: None,
    has_workers: false,
};

const GO: Server = Server {
    name: "Go",
    program: "FOLDER/server",
    build: &["go", "build", "server.go"],
    software: "Go",
    version: &["go", "version"],
    arguments: &["127.0.0.1:@PORT@"],
    configuration: ("server.go", include_str!("server.go")),
    ..STATIC
};

const NODE: Server = Server {
    name: "Node",
    program: "node",
    // As nodejs.org has it. Debian's has no OpenSSL inside.
    build: &["node", "-e", "process.exit(process.config.variables.node_shared_openssl ? 1 : 0)"],
    software: "Node",
    version: &["node", "--version"],
    arguments: &["server.js", "@PORT@"],
    configuration: ("server.js", include_str!("server.js")),
    ..STATIC
};

/// What has no libssl that could load us.
pub(crate) const UNREACHED: [Server; 3] = [STATIC, GO, NODE];
