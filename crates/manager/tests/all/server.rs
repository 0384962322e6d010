//! Servers of Debian's packages.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rejoin_testkit::house::House;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::{Process, wait_until};

/// A process of the test's own, ended when it is dropped.
pub(crate) struct Server {
    _process: Process,
    pub(crate) port: u16,
}

impl Server {
    /// Starts OpenSSL's server, which sends lines back reversed, with `NAME.pem` of a folder.
    pub(crate) fn openssl(folder: &Path, name: &str, arguments: &[&str]) -> Self {
        Self::openssl_at(reserve(), folder, name, arguments)
    }

    pub(crate) fn openssl_at(port: u16, folder: &Path, name: &str, arguments: &[&str]) -> Self {
        Self::openssl_on(Ipv4Addr::LOCALHOST, port, folder, name, arguments)
    }

    /// Starts OpenSSL's server on another address of this machine.
    pub(crate) fn openssl_on(
        address: Ipv4Addr,
        port: u16,
        folder: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Self {
        let at = SocketAddrV4::new(address, port);
        Self::start(&mut Self::command(at, folder, name, arguments), at)
    }

    /// Starts OpenSSL's server with these environment variables.
    pub(crate) fn openssl_with(
        folder: &Path,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, reserve());
        let mut command = Self::command(at, folder, name, arguments);
        Self::start(command.envs(environment.iter().copied()), at)
    }

    fn command(at: SocketAddrV4, folder: &Path, name: &str, arguments: &[&str]) -> Command {
        let (pem, key) = (format!("{name}.pem"), format!("{name}.key"));
        let at = at.to_string();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-accept", &at, "-cert", &pem, "-key", &key]);
        command.args(arguments);
        if !arguments.iter().any(|argument| ["-www", "-WWW", "-early_data"].contains(argument)) {
            command.arg("-rev");
        }
        command.current_dir(folder);
        command
    }

    /// Starts nginx with these lines in its `server` block.
    pub(crate) fn nginx(port: u16, folder: &Path, name: &str, inside: &str) -> Self {
        let folder_text = folder.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {folder_text}/{of};"))
            .concat();
        let configuration = format!(
            "daemon off; master_process off; pid {folder_text}/nginx.pid; error_log stderr;
             events {{}} http {{ access_log off; {temporary} server {{
             listen 127.0.0.1:{port} ssl; ssl_certificate {folder_text}/{name}.pem;
             ssl_certificate_key {folder_text}/{name}.key; {inside}
             location / {{ return 200 \"session $ssl_session_reused $ssl_protocol\\n\"; }} }} }}"
        );
        let path = folder.join(format!("nginx-{port}.conf"));
        std::fs::write(&path, configuration).expect("a file");
        Self::start(
            Command::new("nginx").arg("-c").arg(path),
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        )
    }

    fn start(command: &mut Command, at: SocketAddrV4) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::start(command);
        wait_until("the server's port", || {
            let ended = process.ended();
            assert!(ended.is_none(), "{command:?}: {ended:?}");
            TcpStream::connect(at).is_ok()
        });
        Self { _process: process, port: at.port() }
    }
}

/// A house and OpenSSL's server for `server.test`.
pub(crate) fn house_and_server(arguments: &[&str]) -> (House, Server) {
    let house = House::new();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", arguments);
    (house, server)
}
