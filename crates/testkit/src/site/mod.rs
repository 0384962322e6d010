//! A server on loopback, with `librejoin.so` in its environment.

mod client;
mod flights;

use crate::port::{is_open, reserve};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use client::{Client, Steady, Versions};
pub use flights::{Early, Flight, Origin, Recorded, Requests, request};
use rejoin_store::{CacheName, Store};

use crate::certificates::Pair;
use crate::process::{DEADLINE, STEP, Signal, signal};
use crate::shipped::{library, target};

/// The settings that every nginx includes in its `http`.
const NGINX_HTTP: &str = "\
access_log off;
client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem;
";

/// The time that a server has to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of every HAProxy, in the place of `@DEFAULTS@`.
const HAPROXY_DEFAULTS: &str = "\
global
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 20s
  timeout connect 10s
  timeout server 10s";

/// A folder, a certificate and a cache of this test's own; all gone when it is dropped.
pub struct Site {
    pub folder: PathBuf,
    pub cache: String,
    pub port: u16,
    /// Environment variables of servers, besides those of the test.
    pub environment: Vec<(&'static str, String)>,
    pub running: Vec<Child>,
}

impl Site {
    pub fn new(name: &str) -> Self {
        let folder = target().join("tmp").join(format!("capi-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let Pair { certificate, key, .. } = Pair::of_localhost();
        let both = format!("{certificate}{key}");
        for (file, text) in [("cert.pem", &certificate), ("key.pem", &key), ("both.pem", &both)] {
            fs::write(folder.join(file), text).expect("a file");
        }
        let port = reserve();
        let cache = format!("test-{name}-{}", std::process::id());
        let configuration = folder.join("openssl.cnf").display().to_string();
        let environment = vec![("OPENSSL_CONF", configuration)];
        let site = Self { folder, cache, port, environment, running: Vec::new() };
        site.configure("");
        site.write("nginx-http.conf", NGINX_HTTP);
        site
    }

    /// Writes the file that `OPENSSL_CONF` names. A server that is attached says nothing, unless `more` has it so.
    pub fn configure(&self, more: &str) {
        let library = library("librejoin.so");
        let text = format!(
            ".include /etc/ssl/openssl.cnf\n[openssl_init]\nrejoin = rejoin\n[rejoin]\npath = {}\n\
             cache = {}\ncapacity = 1MiB\nlog = errors\n{more}\n",
            library.display(),
            self.cache
        );
        fs::write(self.file("openssl.cnf"), text).expect("a file");
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn shown(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Fills in a configuration and writes it.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), self.filled(text)).expect("a file");
    }

    /// Fills in the folder, the port and the settings of every HAProxy.
    pub fn filled(&self, text: &str) -> String {
        let text = text.replace("@DEFAULTS@", HAPROXY_DEFAULTS);
        let text = text.replace("FOLDER", &self.folder.display().to_string());
        text.replace("@PORT@", &self.port.to_string())
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // A server gets none of the variables of the tests themselves.
        let ours = std::env::vars_os().map(|(name, _)| name);
        ours.filter(|name| name.as_encoded_bytes().starts_with(b"REJOIN_")).for_each(|name| {
            command.env_remove(name);
        });
        command.env_remove("OPENSSL_CONF").envs(self.environment.iter().cloned());
        command.current_dir(&self.folder);
        // Apache ends by a signal to its whole group.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let log = fs::File::options().create(true).append(true).open(self.file("stderr"));
        command.stderr(log.expect("a file"));
        command
    }

    /// Starts a server and waits until it listens. `None` if it is not installed.
    pub fn start(&mut self, program: &str, arguments: &[&str]) -> Option<()> {
        let Ok(mut child) = self.command(program).args(arguments).spawn() else {
            eprintln!("{program} is not installed: nothing is tested with it");
            return None;
        };
        self.wait_until_it_listens(&mut child);
        self.running.push(child);
        Some(())
    }

    pub fn wait_until_it_listens(&self, server: &mut Child) {
        let until = Instant::now() + DEADLINE;
        while !is_open(self.port) {
            let ended = server.try_wait().expect("our own child");
            let told = || fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
            assert!(ended.is_none_or(|status| status.success()), "it ended: {}", told());
            if Instant::now() > until {
                let _ = server.kill();
                panic!("it does not listen: {}", told());
            }
            thread::sleep(STEP);
        }
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn client(&self, versions: Versions) -> Client {
        Client::new(self.address(), versions)
    }

    pub fn stop(&mut self) {
        for mut child in self.running.drain(..) {
            let (begin, mut asked) = (Instant::now(), 0);
            // A process that was waited for has no id any more.
            while child.try_wait().expect("our own child").is_none() {
                // nginx does not notice a signal that arrives just before it waits for events (under valgrind, often).
                if asked <= begin.elapsed().as_secs() {
                    signal(&child, Signal::TERM);
                    asked += 1;
                }
                if begin.elapsed() > PATIENCE {
                    let _ = child.kill();
                }
                thread::sleep(STEP);
            }
        }
    }

    pub fn cache(&self) -> CacheName {
        self.cache.parse().expect("a name")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
        let _ = Store::remove(Path::new(Store::FOLDER), &self.cache());
    }
}
