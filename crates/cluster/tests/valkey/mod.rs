//! A Valkey or Redis server of a test's own, on loopback, in a folder of its own.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rejoin_cluster::{Link, Servers};

pub(crate) struct Valkey {
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    settings: &'static [&'static str],
    process: Child,
}

impl Valkey {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The only node of a cluster.
    pub(crate) async fn start_clustered() -> Self {
        let valkey = Self::start_with(&["--cluster-enabled", "yes"]);
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
        slots.exec_async(&mut valkey.link().await).await.expect("all slots");
        valkey
    }

    fn start_with(settings: &'static [&'static str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-of-rejoin-valkey-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a new folder");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a free port").port();
        let process = spawn(port, &folder, settings);
        Self { port, folder, settings, process }
    }

    pub(crate) fn stop(&mut self) {
        self.process.kill().expect("ours");
        self.process.wait().expect("ended");
    }

    /// Ends it, and starts an empty one in its place.
    pub(crate) fn restart_empty(&mut self) {
        self.stop();
        // It would load what was saved.
        let _ = std::fs::remove_file(self.folder.join("dump.rdb"));
        self.process = spawn(self.port, &self.folder, self.settings);
    }

    pub(crate) fn servers(&self) -> Servers {
        let addresses = vec![("127.0.0.1".to_owned(), self.port)];
        Servers { addresses, clustered: false, user: None, password: None, tls: None }
    }

    pub(crate) async fn link(&self) -> Link {
        Link::connect(&self.servers()).await.expect("connected")
    }
}

fn spawn(port: u16, folder: &Path, settings: &[&str]) -> Child {
    let start = |program| {
        let mut command = Command::new(program);
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        // What is searched must not be compressed.
        command.args(["--rdbcompression", "no"]).args(settings);
        command.args(["--port", &port.to_string(), "--dir"]).arg(folder);
        command.stdout(Stdio::null()).spawn()
    };
    let process = start("valkey-server").or_else(|_| start("redis-server"));
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return process.expect("valkey-server or redis-server is installed");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not listen");
}

impl Drop for Valkey {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
