//! Servers with Rejoin, and processes without it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use rejoin_openssl::{Handshakes, Notes, ProcessNotes};
use rejoin_store::CacheName;

use super::obstacle::Obstacle;
use super::process::{self, Library, Maps, Process};

/// Everything that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) servers: Vec<Server>,
    /// Processes without Rejoin, or with one that has nothing to read.
    pub(super) others: Vec<Other>,
    /// The number of processes that may not be read.
    pub(super) unread: usize,
}

/// Processes that share a memory of Rejoin.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) members: Vec<Member>,
    /// The notes in that memory, or why there are none.
    pub(super) notes: Result<Notes, String>,
}

/// A process of a server.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: Process,
    /// The library, which a program may have compiled in.
    pub(super) library: Option<Library>,
    /// The caches that it has and that no name leads to any more.
    pub(super) lost: Vec<CacheName>,
}

#[derive(Debug)]
pub(super) struct Other {
    pub(super) process: Process,
    pub(super) why: Obstacle,
}

/// The earliest that a process may seem to have started after its own first handshake: clocks tick.
const TOLERANCE_MS: u64 = 1_000;

impl Found {
    /// Groups the processes by the memory that they share, and keeps those that are asked for, or all.
    pub(super) fn among(processes: Vec<Process>, asked: Option<&[u32]>) -> anyhow::Result<Self> {
        let is_asked = |id: u32| asked.is_none_or(|asked| asked.contains(&id));
        let device = process::device_of_memory()?;
        let mut found = Self { servers: Vec::new(), others: Vec::new(), unread: 0 };
        let mut by_memory = BTreeMap::<u64, Server>::new();
        for process in processes {
            let maps = match process.maps(&device) {
                Ok(maps) => maps,
                Err(error) => {
                    let is_unread = error.kind() == ErrorKind::PermissionDenied;
                    found.unread += usize::from(is_unread && is_asked(process.id));
                    continue;
                }
            };
            if maps.memories.is_empty() {
                if is_asked(process.id) {
                    let why = without(&process, &maps);
                    found.others.push(Other { process, why });
                }
                continue;
            }
            for memory in &maps.memories {
                let server = by_memory.entry(memory.inode).or_insert_with(|| Server {
                    members: Vec::new(),
                    notes: Err("its memory may not be read: run as root".to_owned()),
                });
                if server.notes.is_err() {
                    server.notes = notes(process.board(*memory));
                }
                let (library, lost) = (maps.library.clone(), lost(&process, &maps));
                server.members.push(Member { process: process.clone(), library, lost });
            }
        }
        let is_any_asked =
            |server: &Server| server.members.iter().any(|of| is_asked(of.process.id));
        found.servers = by_memory.into_values().filter(is_any_asked).collect();
        let is_told = !found.servers.is_empty() || found.others.iter().any(Other::uses_openssl);
        if asked.is_none() || is_told {
            found.others.retain(Other::uses_openssl);
        }
        Ok(found)
    }
}

/// Returns the names that the process's caches have lost.
fn lost(process: &Process, maps: &Maps) -> Vec<CacheName> {
    let lost = maps.caches.iter().filter(|cache| process.has_lost(cache));
    rejoin_report::distinct(lost.map(|cache| cache.name.clone()))
}

/// Returns the processes that have a cache which has this name in this folder, or which had it, if it `has_lost` the name.
///
/// # Errors
/// Processes cannot be listed.
pub(crate) fn with_cache(
    folder: &Path,
    name: &CacheName,
    has_lost: bool,
) -> anyhow::Result<Vec<Process>> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let device = process::device_of_memory()?;
    let is_it = |process: &Process| {
        let caches = process.maps(&device).map(|maps| maps.caches).unwrap_or_default();
        let mut its = caches.iter().filter(|of| of.folder == folder && of.name == *name);
        its.any(|cache| process.has_lost(cache) == has_lost)
    };
    Ok(process::all()?.into_iter().filter(is_it).collect())
}

fn notes(bytes: io::Result<Vec<u8>>) -> Result<Notes, String> {
    match bytes {
        Ok(bytes) => Notes::read(&bytes).map_err(|why| why.to_string()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err("its memory may not be read: run as root".to_owned())
        }
        Err(error) => Err(format!("its memory cannot be read: {error}")),
    }
}

impl Server {
    /// Returns the member that a line stands for: the oldest.
    pub(super) fn first(&self) -> Option<&Process> {
        self.members.iter().map(|member| &member.process).min_by_key(|of| of.started_ms)
    }

    /// Returns the notes on a member. What the memory says of other processes is not believed.
    pub(super) fn notes_on(&self, member: &Member) -> Option<&ProcessNotes> {
        let Process { inner_id, started_ms, .. } = member.process;
        let is_it = |of: &&ProcessNotes| {
            of.id == inner_id && started_ms <= of.since_ms.saturating_add(TOLERANCE_MS)
        };
        let found = self.notes.as_ref().ok()?.processes.iter().filter(is_it);
        found.max_by_key(|of| of.since_ms)
    }

    /// Returns the handshakes of processes that are no members: they have ended, or may not be read.
    pub(super) fn of_others(&self) -> Handshakes {
        let Ok(notes) = &self.notes else { return Handshakes::default() };
        let listed: Vec<&ProcessNotes> =
            self.members.iter().filter_map(|member| self.notes_on(member)).collect();
        let others = notes.processes.iter().filter(|of| !listed.iter().any(|known| known == of));
        others.fold(notes.of_other_processes, |sum, of| sum.and(of.handshakes))
    }

    /// Returns the caches of members that no name leads to any more.
    pub(super) fn lost(&self) -> Vec<CacheName> {
        rejoin_report::distinct(self.members.iter().flat_map(|member| member.lost.clone()))
    }

    /// Returns true if a member has a library that was replaced since it started.
    pub(super) fn is_outdated(&self) -> bool {
        self.members.iter().any(|of| of.library.as_ref().is_some_and(|of| of.is_replaced))
    }
}

impl Other {
    fn uses_openssl(&self) -> bool {
        self.why.to_string() != NO_LIBSSL
    }
}

const NO_LIBSSL: &str = "it has no shared libssl: it speaks no TLS so far, uses another library, or has libssl compiled in";

/// Returns why a process has no memory of Rejoin.
fn without(process: &Process, maps: &Maps) -> Obstacle {
    if let Some(library) = &maps.library {
        let replaced = if library.is_replaced { ", which was replaced since" } else { "" };
        let why = format!(
            "it has loaded {}{replaced}, and has no memory to read: it has made no server context so far, has another \
             version of Rejoin, or got no memfd from the kernel",
            library.path
        );
        return Obstacle::new(why, "restart it, and connect to it");
    }
    let Some(libssl) = &maps.libssl else {
        return Obstacle::new(NO_LIBSSL, "docs/COMPARE.md names what there is for other libraries");
    };
    if libssl.contains(".so.1") {
        let why = format!("it has no Rejoin: it uses {libssl}, and Rejoin needs OpenSSL 3");
        return Obstacle::new(why, "install a build of it for OpenSSL 3");
    }
    let enable = match process.unit().and_then(|unit| unit.strip_suffix(".service")) {
        Some(unit) => format!("rejoin enable {unit} --now"),
        None => "start it by `rejoin run`, or with OPENSSL_CONF (docs/servers.md)".to_owned(),
    };
    let preloads = process.variable("LD_PRELOAD").is_some_and(|value| value.contains("librejoin"));
    match process.variable("OPENSSL_CONF") {
        _ if preloads => Obstacle::new(
            "it has no Rejoin: librejoin_preload.so has not attached it so far",
            "connect to it: it attaches at the first connection",
        ),
        None => {
            Obstacle::new("it has no Rejoin: OPENSSL_CONF is not set in its environment", enable)
        }
        Some(file) => Obstacle::new(
            format!(
                "it has no Rejoin: OPENSSL_CONF is {file}, which does not name librejoin.so, or which the program has \
                 not read"
            ),
            enable,
        ),
    }
}
