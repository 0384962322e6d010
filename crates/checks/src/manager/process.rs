//! The memory and descriptors of the manager's process.

use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rejoin_manager::client::Manager;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::status_kib;

const MOMENT: Duration = Duration::from_millis(50);
const MOMENTS: usize = 20;

/// Resident memory and descriptors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) kib: u64,
    pub(crate) descriptors: usize,
}

impl Taken {
    /// Measures the manager once this many of its connections are open.
    pub(crate) fn by(managed: &Managed, open: u64) -> Self {
        let listening = UnixStream::connect(managed.socket()).expect("it listens");
        let pid = getsockopt(&listening, PeerCredentials).expect("who listens").pid();
        drop(listening);
        let manager = Manager::at(managed.socket());
        let until = Instant::now() + Duration::from_secs(60);
        while manager.stats().expect("it counts").open != open {
            assert!(Instant::now() < until, "connections stay open");
            sleep(MOMENT);
        }
        let kib = status_kib(pid as u32, "VmRSS").expect("it runs");
        // The descriptors of our own requests are closed a moment later.
        let descriptors = (0..MOMENTS).map(|_| {
            sleep(MOMENT);
            std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
        });
        Self { kib, descriptors: descriptors.min().expect("moments") }
    }
}

/// Raises the limit of descriptors of this process, and those it starts, to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let most = getrlimit(Resource::Nofile).maximum;
    // Raising it to the hard limit is always permitted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}
