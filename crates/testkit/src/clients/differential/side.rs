//! The visits of a cell with Rejoin, and those without.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_client::protocol::Connect;
use rustix::process::{Pid, Signal, kill_process};

use super::dialects::Dialect;
use super::faults::{End, Fault, Point};
use super::ground::Ground;
use super::programs::Program;
use super::server::{Behaviour, Framing, Server};
use super::visits::{Visit, run};
use crate::certificates::{Authority, Pair, rcgen};
use crate::clients::with_rejoin;
use crate::manager::Managed;
use crate::stacks::Tls;

/// The certificates of a cell's servers.
pub(super) struct Certificates {
    ca: String,
    first: Pair,
    second: Pair,
    /// The end of the first one.
    expires: SystemTime,
}

/// A cell's side.
pub(super) struct Side<'a> {
    pub(super) ground: &'a Ground,
    pub(super) program: &'static Program,
    pub(super) fault: Fault,
    pub(super) tls: Tls,
    pub(super) framing: Framing,
    pub(super) certificates: Certificates,
}

/// The time that a certificate lives which expires between two visits.
const LIFE: Duration = Duration::from_secs(6);

impl Certificates {
    pub(super) fn of(fault: Fault, managed: &Managed) -> Self {
        let authority = managed.authority();
        let names = &["localhost"][..];
        let expires = SystemTime::now() + LIFE;
        let since = expires.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let first = match fault {
            Fault::Expired => authority.expired(names),
            Fault::WrongName => authority.issue(&["other.test"]),
            Fault::Stranger => Authority::new().issue(names),
            Fault::Expires => authority.issue_with(names, |parameters| {
                parameters.not_after =
                    rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since);
            }),
            _ => authority.issue(names),
        };
        Self { ca: managed.file("ca.pem"), first, second: authority.issue(names), expires }
    }
}

/// Returns why a program cannot be tried here: without Rejoin it must get all of an answer.
pub(super) fn is_here(
    ground: &Ground,
    program: &'static Program,
    tls: Tls,
    managed: &Managed,
) -> Result<(), String> {
    let fault = Fault::Ends(End::Notify, Point::All);
    let certificates = Certificates::of(fault, managed);
    let framing = Framing::Length;
    let side = Side { ground, program, fault, tls, framing, certificates };
    let [first, second] = side.without();
    let is_well = |visit: &Visit| visit.code == Some(0) && !visit.clients.is_empty();
    if is_well(&first) && is_well(&second) { Ok(()) } else { Err(format!("{first:?}")) }
}

impl Side<'_> {
    pub(super) fn without(&self) -> [Visit; 2] {
        let nothing: Arc<dyn Fn() + Send + Sync> = Arc::new(|| ());
        let server = self.server(self.fault.behaviour(self.framing, false, &nothing));
        [0, 1].map(|number| {
            self.between(number, &server);
            self.visit(&server, |_| ()).0
        })
    }

    /// Returns the visits and Rejoin's lines.
    pub(super) fn with(&self, managed: &mut Managed) -> ([Visit; 2], Vec<String>) {
        let pid = managed.child.as_ref().expect("it runs").id();
        let signal = match self.fault {
            Fault::ManagerTerminated => Signal::TERM,
            Fault::ManagerStops => Signal::STOP,
            _ => Signal::KILL,
        };
        let _held = self.begin(managed);
        let mut all = Vec::new();
        let mut server = None;
        let visits = [0, 1].map(|number| {
            let pid = managed.child.as_ref().map_or(pid, |child| child.id());
            // A program that was ended early may leave a server that acts too late.
            let is_over = Arc::new(Mutex::new(false));
            let is_late = Arc::clone(&is_over);
            let act: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                let is_late = is_late.lock().expect("no panic");
                if !*is_late {
                    send(pid, signal);
                }
            });
            let behaviour = self.fault.behaviour(self.framing, true, &act);
            let server = server.get_or_insert_with(|| self.server(behaviour.clone()));
            server.behave(behaviour);
            if number == 1 && self.fault == Fault::ManagerRestarted {
                managed.child.as_mut().expect("it runs").terminate();
                managed.run();
            }
            self.between(number, server);
            let patience = self.fault.patience_ms();
            let (visit, told) =
                self.visit(server, |command| with_rejoin(command, &managed.socket(), patience));
            all.extend(told);
            *is_over.lock().expect("no panic") = true;
            match self.fault {
                Fault::ManagerKilled | Fault::ManagerTerminated => {
                    managed.kill();
                    managed.run();
                }
                Fault::ManagerStops => send(pid, Signal::CONT),
                _ => {}
            }
            visit
        });
        match self.fault {
            Fault::ManagerGone => managed.run(),
            Fault::ManagerStopped => send(pid, Signal::CONT),
            Fault::ManagerFull => managed.set(""),
            _ => {}
        }
        (visits, all)
    }

    /// Does to the manager what happens before the first visit. Returns what must last.
    fn begin(&self, managed: &mut Managed) -> Option<(Server, rejoin_client::Stream)> {
        match self.fault {
            Fault::ManagerGone => managed.kill(),
            Fault::ManagerStopped => {
                send(managed.child.as_ref().expect("it runs").id(), Signal::STOP);
            }
            Fault::ManagerFull => {
                managed.set("connections = 1");
                let what = (Dialect::Http, self.ground.www.as_path());
                let pair = &self.certificates.first;
                let server = Server::start(what, (self.tls, pair), (Behaviour::default(), false));
                let port = server.port.try_into().expect("not 0");
                let wanted = Connect::new("localhost".parse().expect("a name"), port);
                let manager = rejoin_client::Manager::at(managed.socket());
                return Some((server, manager.connect(&wanted).expect("the one that it may have")));
            }
            _ => {}
        }
        None
    }

    fn server(&self, behaviour: Behaviour) -> Server {
        let asks = self.fault == Fault::AsksForCertificate;
        let what = (self.program.dialect, self.ground.www.as_path());
        Server::start(what, (self.tls, &self.certificates.first), (behaviour, asks))
    }

    /// Changes what changes between the visits.
    fn between(&self, number: usize, server: &Server) {
        if number == 0 {
            return;
        }
        let Certificates { first, second, expires, .. } = &self.certificates;
        match self.fault {
            Fault::TicketKeys => server.rotate(first),
            Fault::Certificate => server.show(second),
            Fault::Expires => {
                let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
                thread::sleep(left + Duration::from_secs(1));
            }
            _ => {}
        }
    }

    fn visit(&self, server: &Server, change: impl FnOnce(&mut Command)) -> (Visit, Vec<String>) {
        let number = self.ground.number();
        let folder = self.ground.folder(number);
        let mut command = self.command(server.port, &folder);
        change(&mut command);
        let (mut visit, told) = run(&mut command, self.program.writes, server.port);
        visit.stderr = visit.stderr.replace(&folder.display().to_string(), "FOLDER");
        if self.fault.shows_clients() {
            visit.clients = server.seen();
        }
        let _ = std::fs::remove_dir_all(folder);
        (visit, told)
    }

    fn command(&self, port: u16, folder: &Path) -> Command {
        self.ground.command(self.program, (self.fault, port), &self.certificates.ca, folder)
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    // It may have ended.
    let _ = kill_process(pid, signal);
}
