//! Settings from the environment, and the time during which a silent manager is left alone.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rejoin_abi::gate::get_or_make;
use rejoin_client::protocol::{Directly, Label};
use rejoin_client::{Error, Manager};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::debug;

/// The time for which a manager that did not answer is left alone.
const ALONE_MS: u64 = 5_000;
/// The end of that time.
static ALONE_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    get_or_make(&START, Instant::now).elapsed().as_millis() as u64
}

/// Leaves the manager alone for a while, because it does not answer.
fn leave_alone() {
    ALONE_UNTIL_MS.store(now_ms() + ALONE_MS, Ordering::Relaxed);
}

/// Reports that the manager does not make a connection to this server, and leaves it alone if it does not answer.
pub(crate) fn failed(service: &str, error: &Error) {
    let why = match error {
        Error::NotRunning { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
            Directly::ManagerRefused
        }
        Error::NotRunning { .. } | Error::Untrusted { .. } | Error::Silent(_) => {
            leave_alone();
            Directly::NoManager
        }
        _ => Directly::ManagerRefused,
    };
    debug::refused(service, why, error);
}

/// Returns the manager that the program's connections go through. `None`: there is none, it is left alone, or a variable
/// is misspelled, which is reported once.
pub(crate) fn manager() -> Option<&'static Manager> {
    static MANAGER: OnceLock<Option<Manager>> = OnceLock::new();
    if now_ms() < ALONE_UNTIL_MS.load(Ordering::Relaxed) {
        return None;
    }
    let find = || found(variable("REJOIN_MANAGER")?.as_str()).filter(|_| is_spelled_well());
    get_or_make(&MANAGER, find).as_ref()
}

/// Returns true if a manager may be there: its socket is bound. Nobody is called.
pub fn is_manager_there() -> bool {
    manager().is_some_and(|manager| manager.sockets().any(is_bound))
}

/// Returns true if a process has bound this socket. A datagram socket cannot be connected to a stream socket, and the
/// error tells if there is one.
fn is_bound(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(probe) = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) else {
        return false;
    };
    connect(&probe, &address) == Err(Errno::PROTOTYPE)
}

fn is_spelled_well() -> bool {
    let complain =
        |why: &String| rejoin_abi::report(&format!("{why} Going on without the manager"));
    rejoin_abi::check_variables().inspect_err(complain).is_ok()
}

fn found(said: &str) -> Option<Manager> {
    match said {
        "" | "no" => None,
        "yes" => Some(Manager::find()),
        path => Some(Manager::at(path)),
    }
}

/// Returns the longest wait for the manager's decision to take a connection, which is a lookup for the manager. A
/// program whose socket is non-blocking goes on meanwhile.
pub(crate) fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *get_or_make(&PATIENCE, || patience_of(variable("REJOIN_PATIENCE_MS").as_deref()))
}

fn patience_of(said: Option<&str>) -> Duration {
    let said = said.and_then(|ms| ms.parse().ok()).filter(|ms| (1..=MOST_PATIENCE_MS).contains(ms));
    Duration::from_millis(said.unwrap_or(PATIENCE_MS))
}

/// The default of `REJOIN_PATIENCE_MS`.
const PATIENCE_MS: u64 = 500;
const MOST_PATIENCE_MS: u64 = 60_000;

/// Returns the label of the program's partition. `None`: `REJOIN_LABEL` is not a label, and nothing is shared.
pub(crate) fn label() -> Option<&'static Label> {
    static LABEL: OnceLock<Option<Label>> = OnceLock::new();
    let parse = || variable("REJOIN_LABEL").unwrap_or_default().parse().ok();
    get_or_make(&LABEL, parse).as_ref()
}

fn variable(name: &str) -> Option<String> {
    rejoin_abi::variable(name)?.into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_socket() {
        assert_eq!(found("no"), None);
        assert_eq!(found("yes"), Some(Manager::find()));
        assert_eq!(found("/run/x.sock"), Some(Manager::at("/run/x.sock")));
    }

    #[test]
    fn patience_has_bounds() {
        let ms = |said| patience_of(said).as_millis();
        assert_eq!([ms(None), ms(Some("0")), ms(Some("x")), ms(Some("60001"))], [500; 4]);
        assert_eq!(ms(Some("20")), 20);
    }
}
