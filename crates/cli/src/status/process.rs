//! Processes, as `/proc` shows them to anybody and to their owner.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_cache::REACHES_BACK_MS;
use rejoin_openssl::Notes;
use rejoin_store::CacheName;
use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};

/// A process, as everybody may see it.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) id: u32,
    /// The id that the process sees itself, in its own namespace.
    pub(super) inner_id: u64,
    pub(crate) program: String,
    parent: u32,
    /// On the clock of caches.
    pub(super) started_ms: u64,
    cgroups: Vec<String>,
}

/// The parts of a process that its owner and root may see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Maps {
    /// The memories that may be a board.
    pub(super) memories: Vec<Memory>,
    pub(super) library: Option<Library>,
    pub(super) caches: Vec<MappedCache>,
    /// The shared libssl's file.
    pub(super) libssl: Option<String>,
}

/// A mapping of a file in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    start: u64,
    bytes: u64,
    /// The file's number, which all processes that map it have in common.
    pub(super) inode: u64,
}

/// A cache that a process has mapped. The name that its maker mapped it under is always gone, because it is mapped before
/// it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedCache {
    pub(super) folder: PathBuf,
    pub(super) name: CacheName,
    inode: u64,
    /// The addresses, as the kernel names the mapping.
    range: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Library {
    pub(super) path: String,
    /// The file was removed or replaced since.
    pub(super) is_replaced: bool,
}

/// The kernel's `USER_HZ`, which is this on all machines that Rust knows.
const TICKS_PER_S: u64 = 100;
/// The most bytes that are read of a file in `/proc`, which another user's process may make long.
const LONGEST: u64 = 16 << 20;
/// The most memories of one process that are looked into.
const MEMORIES: usize = 4;
/// The most caches of one process that are looked for.
const CACHES: usize = 16;

/// Returns all processes but this one.
pub(crate) fn all() -> anyhow::Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").context("cannot list processes")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    ids.retain(|id| *id != std::process::id());
    ids.sort_unstable();
    Ok(ids.into_iter().filter_map(Process::read).collect())
}

impl Process {
    /// Returns `None` if the process has ended.
    fn read(id: u32) -> Option<Self> {
        let stat = text(id, "stat").ok()?;
        let (program, parent, started_ticks) = parse_stat(&stat)?;
        let status = text(id, "status").ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner_id = ids.and_then(|ids| ids.split_whitespace().next_back()?.parse().ok());
        let cgroups = text(id, "cgroup").unwrap_or_default();
        let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        Some(Self {
            id,
            inner_id: inner_id.unwrap_or_else(|| id.into()),
            program: program.to_owned(),
            parent,
            started_ms: REACHES_BACK_MS + started_ticks * (1_000 / TICKS_PER_S),
            cgroups: paths.map(str::to_owned).collect(),
        })
    }

    /// Returns the unit of systemd that the process is in.
    pub(super) fn unit(&self) -> Option<&str> {
        let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        self.cgroups.iter().find_map(|path| path.rsplit('/').find(is_unit))
    }

    /// Returns true if it is in this control group or one below.
    pub(crate) fn is_in_group(&self, group: &str) -> bool {
        let is_below = |path: &String| {
            path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !group.is_empty() && self.cgroups.iter().any(is_below)
    }

    pub(crate) fn is_in_unit(&self, unit: &str) -> bool {
        let is_it = |part: &str| part == unit || part.strip_suffix(".service") == Some(unit);
        !unit.is_empty() && self.cgroups.iter().any(|path| path.split('/').any(is_it))
    }

    /// Returns the unit, or the program if there is none.
    pub(super) fn label(&self) -> &str {
        self.unit().unwrap_or(&self.program)
    }

    /// Returns the parts of its memory that matter. `device` is that of files in memory.
    pub(super) fn maps(&self, device: &str) -> io::Result<Maps> {
        text(self.id, "maps").map(|maps| Maps::parse(&maps, device))
    }

    /// Returns true if no name leads to a cache that the process has mapped.
    pub(super) fn has_lost(&self, cache: &MappedCache) -> bool {
        let path = cache.folder.join(cache.name.file_name());
        let has_name = |path: &Path| path.metadata().is_ok_and(|file| file.ino() == cache.inode);
        // It may see other folders than this process, and root sees the file itself.
        let inside = Path::new("/proc").join(format!("{}/root", self.id));
        let inside = inside.join(path.strip_prefix("/").unwrap_or(&path));
        let itself = Path::new("/proc").join(format!("{}/map_files/{}", self.id, cache.range));
        let is_linked = || itself.metadata().is_ok_and(|file| file.nlink() > 0);
        !has_name(&path) && !has_name(&inside) && !is_linked()
    }

    /// Copies the board that a memory may hold.
    pub(super) fn board(&self, memory: Memory) -> io::Result<Vec<u8>> {
        if memory.bytes < Notes::BYTES as u64 {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; Notes::BYTES];
        let file = File::open(format!("/proc/{}/mem", self.id))?;
        file.read_exact_at(&mut bytes, memory.start).map(|()| bytes)
    }

    /// Returns a variable of the environment that the process started with, unless it wrote over it.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let environment = text(self.id, "environ").ok()?;
        let values = environment.split('\0').filter_map(|pair| pair.strip_prefix(name));
        values.filter_map(|rest| rest.strip_prefix('=')).map(str::to_owned).next()
    }
}

/// Reads a file of a process, which has any bytes.
fn text(id: u32, name: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{id}/{name}"))?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a program's name, which may have any characters, its parent, and its start in ticks (proc_pid_stat(5)).
fn parse_stat(stat: &str) -> Option<(&str, u32, u64)> {
    let (_, rest) = stat.split_once(" (")?;
    let (program, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(1);
    Some((program, fields.next()?.parse().ok()?, fields.nth(17)?.parse().ok()?))
}

/// Returns a process and those that descend from it: HAProxy's master runs its program anew once its workers are forked,
/// and then shares no memory with them.
pub(super) fn descendants(of: u32, processes: &[Process]) -> Vec<u32> {
    let mut ids: Vec<u32> =
        processes.iter().map(|process| process.id).filter(|id| *id == of).collect();
    let mut looked_at = 0;
    while let Some(parent) = ids.get(looked_at).copied() {
        let children = processes.iter().filter(|process| process.parent == parent);
        let new: Vec<u32> =
            children.map(|process| process.id).filter(|id| !ids.contains(id)).collect();
        ids.extend(new);
        looked_at += 1;
    }
    ids
}

/// Returns the device of files in memory, as `/proc/PID/maps` writes it. A file of that name on another device is not one,
/// and reading it could take for ever.
pub(super) fn device_of_memory() -> anyhow::Result<String> {
    let file = memfd_create("rejoin-status", MemfdFlags::CLOEXEC);
    let device = file.and_then(fstat).context("cannot make a file in memory")?.st_dev;
    Ok(format!("{:02x}:{:02x}", major(device), minor(device)))
}

impl Maps {
    fn parse(maps: &str, device: &str) -> Self {
        let mut found = Self::default();
        maps.lines().filter_map(Mapping::parse).for_each(|mapping| found.add(&mapping, device));
        found
    }

    fn add(&mut self, mapping: &Mapping<'_>, device: &str) {
        let Mapping { start, end, is_shared, inode, path, .. } = *mapping;
        if path == Notes::MAPPING && mapping.device == device && self.memories.len() < MEMORIES {
            self.memories.push(Memory { start, bytes: end.saturating_sub(start), inode });
        }
        let kept = path.strip_suffix(" (deleted)");
        let file = kept.unwrap_or(path);
        let name = file.rsplit('/').next().unwrap_or(file);
        if let (true, Some(cache)) = (is_shared, CacheName::of_mapped_file(name))
            && self.caches.len() < CACHES
        {
            let folder = Path::new(file).parent().unwrap_or_else(|| Path::new("/")).to_owned();
            let range = format!("{start:x}-{end:x}");
            self.caches.push(MappedCache { folder, name: cache, inode, range });
        }
        if name == "librejoin.so" && self.library.is_none() {
            self.library = Some(Library { path: file.to_owned(), is_replaced: kept.is_some() });
        }
        if name.starts_with("libssl") && name.contains(".so") && self.libssl.is_none() {
            self.libssl = Some(name.to_owned());
        }
    }
}

/// A line of `/proc/PID/maps` with a path.
struct Mapping<'a> {
    start: u64,
    end: u64,
    is_shared: bool,
    device: &'a str,
    inode: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let is_shared = fields.next()?.ends_with('s');
        let (device, inode) = (fields.nth(1)?, fields.next()?.parse().ok()?);
        Some(Self { start, end, is_shared, device, inode, path: fields.next()?.trim_start() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let stat = "4092 (a) (b) S 17 4092 4092 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9";
        assert_eq!(parse_stat(stat), Some(("a) (b", 17, 123_456)));
        assert_eq!(parse_stat("4092 (cut) S 17"), None);
    }

    #[test]
    fn the_memory_of_files_in_memory_alone_is_looked_into() {
        let maps = "\
7f00-7f0a000 rw-s 00000000 00:01 77                         /memfd:rejoin (deleted)
8000-8100 rw-s 00000000 00:31 78                         /memfd:rejoin (deleted)
9000-9100 r-xp 00000000 08:01 5                          /opt/a b/librejoin.so (deleted)
a000-a100 r-xp 00000000 08:01 6                          /usr/lib/libssl.so.3
b000-b100 rw-p 00000000 00:00 0 
d000-d100 rw-s 00000000 00:19 8                          /dev/shm/rejoin-web (deleted)
d100-d200 rw-s 00000000 00:19 9                          /dev/shm/.rejoin-new~00ff (deleted)
d200-d300 rw-s 00000000 00:19 10                         /dev/shm/rejoin-named
d300-d400 r--p 00000000 00:19 11                         /usr/lib/rejoin-private (deleted)
c000 nonsense
";
        let memory = Memory { start: 0x7f00, bytes: 0x7f0_a000 - 0x7f00, inode: 77 };
        let library = Library { path: "/opt/a b/librejoin.so".to_owned(), is_replaced: true };
        let libssl = Some("libssl.so.3".to_owned());
        let cache = |name: &str, inode, range: &str| MappedCache {
            folder: "/dev/shm".into(),
            name: name.parse().expect("a name"),
            inode,
            range: range.to_owned(),
        };
        let mut caches = vec![cache("web", 8, "d000-d100"), cache("new", 9, "d100-d200")];
        caches.push(cache("named", 10, "d200-d300"));
        let expected = Maps { memories: vec![memory], library: Some(library), caches, libssl };
        assert_eq!(Maps::parse(maps, "00:01"), expected);
    }

    #[test]
    fn this_process_is_read_like_another() {
        let own = Process::read(std::process::id()).expect("it runs");
        assert_eq!(own.inner_id, u64::from(std::process::id()));
        let age_ms = rejoin_openssl::now_ms() - own.started_ms;
        assert!(age_ms < 3_600_000, "{age_ms}");
        assert_eq!(own.variable("PATH"), std::env::var("PATH").ok());
    }

    #[test]
    fn the_children_of_children_descend_from_a_process() {
        let own = Process::read(std::process::id()).expect("it runs");
        let of = |(id, parent)| Process { id, parent, ..own.clone() };
        // One that was its own ancestor would not keep anybody looking.
        let processes = [(2, 1), (5, 2), (3, 5), (4, 1), (1, 3)].map(of);
        assert_eq!(descendants(2, &processes), [2, 5, 3, 1, 4]);
        assert_eq!(descendants(4, &processes), [4]);
        assert_eq!(descendants(9, &processes), [0; 0]);
    }

    #[test]
    fn a_unit_is_the_innermost_of_the_control_group() {
        let user = "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service/worker";
        let mut process = Process::read(std::process::id()).expect("it runs");
        process.cgroups = vec!["/".to_owned(), user.to_owned()];
        assert_eq!(process.unit(), Some("web.service"));
        let units = ["web", "web.service", "user@1000", "worker", "app", "we"];
        assert_eq!(
            units.map(|unit| process.is_in_unit(unit)),
            [true, true, true, true, false, false]
        );
    }
}
