//! A manager in a thread of the test, and programs and servers that speak with it.

pub mod program;
pub mod rustls_server;

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rejoin_manager::protocol::Stats;
use rejoin_manager::{Clock, Settings};
use rustls::ServerConfig;
use tokio::sync::oneshot;

use crate::certificates::{Authority, Pair};
pub use program::Program;
use rustls_server::RustlsServer;

/// A manager in a thread of the test, its authority, and a folder; all gone when it is dropped.
pub struct House {
    pub folder: PathBuf,
    pub authority: Authority,
    pub clock: Clock,
    /// The manager's threads: several, so that races can happen.
    pub threads: usize,
    manager: Option<(oneshot::Sender<()>, JoinHandle<Stats>)>,
}

impl House {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut house = Self::empty();
        let mut settings = house.settings();
        change(&mut settings);
        house.start(settings);
        house
    }

    /// A house and its server on rustls.
    pub fn with_rustls(change: impl FnOnce(&mut ServerConfig)) -> (Self, RustlsServer) {
        let house = Self::new();
        let server = house.rustls(change);
        (house, server)
    }

    /// Starts a server on rustls for `server.test`.
    pub fn rustls(&self, change: impl FnOnce(&mut ServerConfig)) -> RustlsServer {
        RustlsServer::start(&self.certify("server", &["server.test"]), change)
    }

    /// A house without a manager yet.
    pub fn empty() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("manager-{}-{number}", std::process::id());
        // A socket's path has 107 characters at most.
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let authority = Authority::new();
        std::fs::write(folder.join("authority.pem"), authority.pem()).expect("a file");
        Self { folder, authority, clock: Clock::default(), threads: 2, manager: None }
    }

    /// Settings in which the system's authority is the test's.
    pub fn settings(&self) -> Settings {
        Settings {
            system_bundle: Some(self.folder.join("authority.pem")),
            clock: self.clock.clone(),
            ..Settings::default()
        }
    }

    pub fn start(&mut self, settings: Settings) {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let threads = self.threads;
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(threads).enable_all().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).expect("a socket");
                let stopped = async {
                    let _ = stopped.await;
                };
                let ready = move || ready.send(()).expect("the test waits");
                let run = rejoin_manager::run(listener, settings, ready, stopped);
                tokio::spawn(run).await.expect("no panic").expect("it runs")
            })
        });
        is_ready.recv().expect("it starts");
        self.manager = Some((stop, thread));
    }

    /// Ends the manager. Returns its counts.
    pub fn stop(&mut self) -> Stats {
        let (stop, thread) = self.manager.take().expect("it runs");
        let _ = stop.send(());
        let _ = std::fs::remove_file(self.socket());
        thread.join().expect("it ends")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("m.sock")
    }

    pub fn program(&self) -> Program {
        Program::new(self.socket())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a certificate for these names, and its key, as `NAME.pem` and `NAME.key`.
    pub fn certify(&self, name: &str, names: &[&str]) -> Pair {
        let pair = self.authority.issue(names);
        pair.write(&self.file(name));
        pair
    }
}

impl Default for House {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if self.manager.is_some() {
            self.stop();
        }
        let _ = std::fs::remove_dir_all(Path::new(&self.folder));
    }
}
