//! The servers, and their configurations.

use std::path::Path;
use std::process::Command;

/// A server from a package, unmodified.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// The name in the tables.
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    /// The command that builds it from its configuration, if no package has it.
    build: &'static [&'static str],
    /// The name in the list of versions, and the command that prints its own.
    pub(crate) software: &'static str,
    pub(crate) version: &'static [&'static str],
    pub(crate) arguments: &'static [&'static str],
    /// The name of its configuration file, and the text.
    pub(crate) configuration: (&'static str, &'static str),
    /// The value of `@VARIANT@`.
    variant: &'static str,
    /// The value of `@TICKETS@` if stateless tickets are off, and if they are on.
    tickets: [&'static str; 2],
    /// The signal for a reload of its configuration.
    pub(crate) reload: Option<&'static str>,
    /// True if several processes answer at one port. Otherwise sessions are shared with a second server at another
    /// port.
    pub(crate) has_workers: bool,
    /// True if its configuration leaves its own cache on. Otherwise resumption is off with tickets off.
    pub(crate) is_caching: bool,
}

impl Server {
    /// Returns a label that no other server has, for the names of files.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.software, self.variant)
    }

    /// Builds its program in a folder. `None`: the tools are not installed.
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

    /// Replaces the placeholders that do not belong to the site.
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
    is_caching: true,
};

/// Another nginx with another configuration for the same site.
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
    is_caching: false,
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
    is_caching: false,
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
    is_caching: true,
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
    is_caching: true,
};

pub(crate) const SERVERS: [Server; 6] = [NGINX, HAPROXY, PREFORK, EVENT, S_SERVER, PYTHON];

/// A program with OpenSSL linked into it.
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
    is_caching: true,
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
    // The build of nodejs.org. Debian's has a shared OpenSSL.
    build: &["node", "-e", "process.exit(process.config.variables.node_shared_openssl ? 1 : 0)"],
    software: "Node",
    version: &["node", "--version"],
    arguments: &["server.js", "@PORT@"],
    configuration: ("server.js", include_str!("server.js")),
    ..STATIC
};

/// The programs without a libssl that could load Rejoin.
pub(crate) const UNREACHED: [Server; 3] = [STATIC, GO, NODE];
