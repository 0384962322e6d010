//! A shared cache: opened, made, looked at, emptied and removed.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use rejoin_cache::{Cache, Checked, Inconsistency, Layout, REACHES_BACK_MS, Region, Settings};
use rustix::time::{ClockId, clock_gettime};
use zeroize::Zeroizing;

use crate::division::Division;
use crate::folder::{self, ATTEMPTS, Folder, PAUSE};
use crate::head::{Head, Keys, Unreadable};
use crate::mailbox::Mailbox;
use crate::mapping::{Figures, Mapping};
use crate::region::{SharedLedger, SharedRegion};
use crate::{CacheName, Error, Trouble};

/// A session cache in memory that processes share. See the crate's documentation.
///
/// After a fork both processes may go on with it. [`Facts::is_locked`] speaks for the first only:
/// a child's memory is not locked.
#[derive(Debug)]
pub struct Store {
    name: CacheName,
    file: File,
    mapping: Arc<Mapping>,
    division: Division,
    settings: Settings,
    keys: Keys,
    created_unix_s: u64,
    page: SharedRegion,
    mailbox: Option<Mailbox>,
    cache: Cache<SharedRegion>,
}

/// What there is to know about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Of the file, all of which is reserved.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// Whether the kernel promised this process never to write it to the swap space, for which
    /// `RLIMIT_MEMLOCK` must allow its size.
    pub is_locked: bool,
    /// Whether it can still be opened by its name. Otherwise it was removed: those who have it go
    /// on with it, and whoever opens that name has another.
    pub is_named: bool,
    /// How often a process had to wait for another: of all processes, as what follows.
    pub lock_waits: u64,
    /// How often a lock was not had in time. That operation was not done, nor were that process's next,
    /// which waited no more, until the lock was had again.
    pub lock_timeouts: u64,
    /// Operations not done since somebody wrote over a lock. Only removing the store mends that.
    pub locks_broken: u64,
    /// How often a shard was emptied because nothing in it could be trusted: a process died, or
    /// panicked, in the middle of an operation, or somebody wrote to it who should not.
    pub emptied: u64,
}

/// What to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The sessions, which are wiped. What was learned of return times stays.
    Sessions,
    /// The counts.
    Counters,
    /// Both.
    Both,
}

/// Why a file cannot be used as it is.
enum Unusable {
    /// Made before the machine was started: its times mean nothing now.
    Outdated,
    Refused(Error),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Store {
    /// Where files live in memory, on any Linux.
    pub const FOLDER: &str = "/dev/shm";
    /// Bytes of the page for ticket keys.
    pub const PAGE_BYTES: usize = Division::PAGE_BYTES;

    /// Opens the cache of this name, or makes it if there is none; of several who come at the same
    /// time one makes it. Without `settings` it must be there, and its own are taken. The processes
    /// that share it run as one user; root may have made it.
    ///
    /// # Errors
    /// All of [`Error`]: the caller goes on without a shared cache.
    pub fn open(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
    ) -> Result<Self, Error> {
        Self::open_or_make(folder, name, settings, None)
    }

    /// As [`Self::open`], for the agent of a cluster, whose servers all have `id_key`: what it makes has a
    /// [`Mailbox`], and its ticket keys change by the agent alone.
    ///
    /// # Errors
    /// As there, and [`Error::OtherCluster`].
    pub fn open_for_cluster(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
        id_key: &[u8; 16],
    ) -> Result<Self, Error> {
        let store = Self::open_or_make(folder, name, settings, Some(id_key))?;
        let is_ours = store.mailbox.is_some() && store.keys.id == *id_key;
        if is_ours { Ok(store) } else { Err(Error::OtherCluster { name: name.clone() }) }
    }

    fn open_or_make(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
        cluster: Option<&[u8; 16]>,
    ) -> Result<Self, Error> {
        let folder = Folder::open(folder)?;
        let mut last = Error::Busy { name: name.clone() };
        for _ in 0..ATTEMPTS {
            let attempt = match folder.file(name)? {
                Some(file) => Self::open_file(&folder, name, &file, settings)?,
                None => Self::make(&folder, name, settings, cluster)?,
            };
            match attempt {
                Ok(store) => return Ok(store),
                Err(why) => last = why.unwrap_or(last),
            }
            std::thread::sleep(PAUSE);
        }
        Err(last)
    }

    /// The names of the caches in a folder, in order, whether or not they can be opened.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn list(folder: &Path) -> Result<Vec<CacheName>, Error> {
        let names = Folder::open(folder)?.file_names()?;
        let mut names: Vec<_> = names.iter().filter_map(|name| CacheName::of_file(name)).collect();
        names.sort();
        Ok(names)
    }

    /// Wipes the cache of this name and removes its file. Those who have it open go on with what
    /// is an empty cache now, that no newcomer sees. Also the way out of every error that calls for
    /// it. Returns whether there was one.
    ///
    /// Root removes what is not ours, too, but does not touch it: it is not wiped.
    ///
    /// # Errors
    /// A file that is not ours ([`Error::NotOurs`]), or that the system would not wipe or remove.
    pub fn remove(folder: &Path, name: &CacheName) -> Result<bool, Error> {
        let folder = Folder::open(folder)?;
        folder.sweep(name)?;
        if rustix::process::geteuid().is_root() && folder.objection(name)?.is_some() {
            return folder.unname(name).map(|()| true);
        }
        let Some(file) = folder.file(name)? else { return Ok(false) };
        if !folder.lock_name(&file, name)? {
            return Ok(false);
        }
        match Self::over_file(&folder, name, &file, None) {
            Ok(store) => store.wipe(&folder)?,
            Err(_) => folder::wipe(&file, &folder.path_of(name))?,
        }
        folder.unname(name).map(|()| true)
    }

    /// The sessions. Its clock is [`now_ms`]. To be called for every operation anew, since it looks
    /// whether the file was cut short.
    pub fn cache(&self) -> &Cache<SharedRegion> {
        self.mapping.notice();
        &self.cache
    }

    /// What leads to the cluster's agent, if the cache is a cluster's.
    pub fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.as_ref()
    }

    /// Has the first listener told, once, of what is found wrong while the cache is in use: on the
    /// thread whose operation found it, and without a lock. Each process that has the cache tells by
    /// itself.
    pub fn on_trouble(&self, listener: impl Fn(Trouble) + Send + Sync + 'static) {
        self.mapping.alarm.listen(listener);
    }

    /// The cache's name.
    pub fn name(&self) -> &CacheName {
        &self.name
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A secret of all who share the cache, from which the tags in session ids are made.
    pub fn id_key(&self) -> &[u8; 16] {
        &self.keys.id
    }

    /// Tells one [`Self::id_key`] from another, and is no secret.
    pub fn key_id(&self) -> u64 {
        self.keys.key_id()
    }

    /// Lends the page for ticket keys, alone. The flag says that somebody was interrupted while using it.
    /// `None`: it could not be had within a tenth of a second. It is zero in a new cache, and again
    /// when the cache is removed while it is in use.
    pub(crate) fn with_page<T>(
        &self,
        operation: impl FnOnce(&mut [u8; Self::PAGE_BYTES], bool) -> T,
    ) -> Option<T> {
        self.mapping.notice();
        self.page.with(|lines, torn| operation(bytemuck::from_bytes_mut(cast(lines)), torn))
    }

    /// Forgets.
    pub fn reset(&self, what: Reset) {
        if what != Reset::Counters {
            self.cache().clear();
        }
        if what != Reset::Sessions {
            self.cache().reset_counters();
            let Figures { lock_waits, lock_timeouts, locks_broken, tickets } = self.figures();
            for figure in [lock_waits, lock_timeouts, locks_broken].into_iter().chain(tickets) {
                figure.store(0, Ordering::Relaxed);
            }
            self.mailbox().into_iter().for_each(Mailbox::reset_counts);
        }
    }

    /// What there is to know about it, now.
    pub fn facts(&self) -> Facts {
        let Figures { lock_waits, lock_timeouts, locks_broken, .. } = self.figures();
        Facts {
            bytes: self.division.bytes as u64,
            created_unix_s: self.created_unix_s,
            is_locked: self.mapping.is_locked(),
            is_named: rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0),
            lock_waits: lock_waits.load(Ordering::Relaxed),
            lock_timeouts: lock_timeouts.load(Ordering::Relaxed),
            locks_broken: locks_broken.load(Ordering::Relaxed),
            emptied: self.cache().emptied(),
        }
    }

    /// Looks whether every shard makes sense, in their order: see [`Cache::check`].
    pub fn check(&self) -> Vec<Result<Checked, Inconsistency>> {
        self.cache().check()
    }

    /// The inner error says why to try again.
    fn open_file(
        folder: &Folder,
        name: &CacheName,
        file: &File,
        settings: Option<&Settings>,
    ) -> Result<Result<Self, Option<Error>>, Error> {
        match Self::over_file(folder, name, file, settings) {
            Ok(store) => Ok(Ok(store)),
            Err(Unusable::Outdated) => {
                if folder.lock_name(file, name)? {
                    folder::wipe(file, &folder.path_of(name))?;
                    folder.unname(name)?;
                }
                Ok(Err(None))
            }
            // Between its being wiped and its being removed.
            Err(Unusable::Refused(error)) if is_wiped(file) => Ok(Err(Some(error))),
            Err(Unusable::Refused(error)) => Err(error),
        }
    }

    fn over_file(
        folder: &Folder,
        name: &CacheName,
        file: &File,
        settings: Option<&Settings>,
    ) -> Result<Self, Unusable> {
        let head = read_head(file, name)?;
        if head.boot_id != boot_id() {
            return Err(Unusable::Outdated);
        }
        if let Some(differs) = settings.and_then(|ours| difference(name, &head.settings, ours)) {
            return Err(differs.into());
        }
        check_size(folder, name, file, &head)?;
        Ok(Self::map(folder, name, file, &head)?)
    }

    fn make(
        folder: &Folder,
        name: &CacheName,
        settings: Option<&Settings>,
        cluster: Option<&[u8; 16]>,
    ) -> Result<Result<Self, Option<Error>>, Error> {
        let not_found = || Error::NotFound { name: name.clone(), folder: folder.path().into() };
        let settings = settings.ok_or_else(not_found)?;
        let layouts = Layout::for_cache(settings)?;
        let division = Division::of(&layouts, cluster.is_some());
        let unfinished = match folder.unfinished(name, division.bytes as u64) {
            Ok(unfinished) => unfinished,
            // Several who come at the same time take the room for several.
            Err(error @ Error::NoRoom { .. }) => return Ok(Err(Some(error))),
            Err(error) => return Err(error),
        };
        let head = new_head(settings, cluster)?;
        let bytes = Zeroizing::new(head.to_bytes(&layouts));
        unfinished.file.write_all_at(&*bytes, 0).map_err(|cause| Error::Refused {
            action: "write",
            path: folder.path_of(name),
            cause,
        })?;
        let store = Self::map(folder, name, &unfinished.file, &head)?;
        store.format();
        Ok(unfinished.finish(name)?.map(|()| store).ok_or(None))
    }

    fn map(folder: &Folder, name: &CacheName, file: &File, head: &Head) -> Result<Self, Error> {
        let Head { settings, keys, clustered, created_unix_s, .. } = head.clone();
        let division = Division::of(&Layout::for_cache(&settings)?, clustered);
        let refused =
            |action| move |cause| Error::Refused { action, path: folder.path_of(name), cause };
        let mapping = Mapping::new(file, division.bytes)
            .map_err(|cause| refused("map")(cause.into()))
            .map(Arc::new)?;
        let mut shards = 0..division.regions.len();
        let region = |_: &Layout| SharedRegion::new(&mapping, &division, shards.next());
        let ledger = SharedLedger::new(&mapping, &division);
        let cache = Cache::over(&settings, keys.hash, ledger, region)?;
        let page = SharedRegion::new(&mapping, &division, None);
        let mailbox = Mailbox::new(&mapping, &division);
        let (name, file) = (name.clone(), file.try_clone().map_err(refused("keep open"))?);
        Ok(Self {
            name,
            file,
            mapping,
            division,
            settings,
            keys,
            created_unix_s,
            page,
            mailbox,
            cache,
        })
    }

    /// Makes an empty cache of a file of zeros, which nobody else can see yet.
    fn format(&self) {
        self.page.lock().initialise();
        for shard in 0..self.division.regions.len() {
            SharedRegion::new(&self.mapping, &self.division, Some(shard)).lock().initialise();
        }
        self.mailbox.iter().for_each(Mailbox::format);
        self.cache.format(now_ms());
    }

    fn wipe(&self, folder: &Folder) -> Result<(), Error> {
        self.cache().clear();
        self.with_page(|page, _| page.fill(0));
        self.mailbox.iter().for_each(Mailbox::wipe);
        self.file.write_all_at(&[0; Head::BYTES], 0).map_err(|cause| Error::Refused {
            action: "wipe",
            path: folder.path_of(&self.name),
            cause,
        })
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.mapping.notice();
        self.mapping.at(Division::FIGURES)
    }
}

/// Milliseconds since 49 days before the machine was started: the clock of every shared cache. A client that
/// another machine heard of before that has its time, too.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    REACHES_BACK_MS + now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

fn new_head(settings: &Settings, cluster: Option<&[u8; 16]>) -> Result<Head, Error> {
    let mut keys = Keys { hash: [0; 16], id: [0; 16] };
    folder::fill_at_random(&mut keys.hash)?;
    match cluster {
        Some(id_key) => keys.id = *id_key,
        None => folder::fill_at_random(&mut keys.id)?,
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (settings, created_unix_s) = (settings.clone(), since_1970.as_secs());
    let clustered = cluster.is_some();
    Ok(Head { settings, keys, clustered, boot_id: boot_id(), created_unix_s })
}

fn read_head(file: &File, name: &CacheName) -> Result<Head, Error> {
    let mut bytes = Zeroizing::new([0; Head::BYTES]);
    let read = file.read_exact_at(&mut *bytes, 0);
    let damaged = |_| Error::Damaged { name: name.clone() };
    read.map_err(damaged)?;
    Head::from_bytes(&bytes).map_err(|why| match why {
        Unreadable::OtherVersion => Error::OtherVersion { name: name.clone() },
        Unreadable::Damaged => Error::Damaged { name: name.clone() },
    })
}

/// Whether there is no head any more.
fn is_wiped(file: &File) -> bool {
    let mut bytes = [0; Head::BYTES];
    file.read_exact_at(&mut bytes, 0).is_ok() && bytes == [0; Head::BYTES]
}

fn check_size(folder: &Folder, name: &CacheName, file: &File, head: &Head) -> Result<(), Error> {
    let layouts = Layout::for_cache(&head.settings)?;
    let needed_bytes = Division::of(&layouts, head.clustered).bytes as u64;
    let refused = |cause| Error::Refused { action: "look at", path: folder.path_of(name), cause };
    let bytes = file.metadata().map_err(refused)?.len();
    let bad = Error::BadSize { name: name.clone(), bytes, needed_bytes };
    if bytes == needed_bytes { Ok(()) } else { Err(bad) }
}

fn difference(name: &CacheName, theirs: &Settings, ours: &Settings) -> Option<Error> {
    macro_rules! first_of {
        ($($setting:ident)*) => {
            [$((stringify!($setting), told(&theirs.$setting), told(&ours.$setting))),*]
        };
    }
    let settings = first_of![capacity policy prediction grace_ms prior_ms block_bytes
        longest_value_bytes ghosts_percent shards];
    let (setting, theirs, ours) = settings.into_iter().find(|(_, theirs, ours)| theirs != ours)?;
    Some(Error::OtherSettings { name: name.clone(), setting, theirs, ours })
}

/// A setting as an operator knows it: `Bytes(4096)` is `4096 bytes`.
fn told(setting: &impl std::fmt::Debug) -> String {
    let text = format!("{setting:?}").to_lowercase();
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some(("some", value)) => value.to_owned(),
        Some((unit, number)) => format!("{number} {unit}"),
        None => text,
    }
}

/// The sessions, to whoever keeps some.
impl Deref for Store {
    type Target = Cache<SharedRegion>;

    fn deref(&self) -> &Self::Target {
        self.cache()
    }
}

/// Of this start of the machine: zeros where it is not told.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

fn cast(lines: &mut [rejoin_cache::Line]) -> &mut [u8] {
    bytemuck::cast_slice_mut(lines)
}

#[cfg(test)]
mod tests {
    use rejoin_cache::Capacity;

    use super::*;

    #[test]
    fn what_was_made_before_the_machine_was_started_is_made_anew() {
        let path = std::env::temp_dir().join(format!("test-of-rejoin-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new folder");
        let (name, settings) = ("test".parse().expect("a name"), Capacity::Sessions(10));
        let settings = Settings::new(settings);
        let store = Store::open(&path, &name, Some(&settings)).expect("made");
        let same = Store::open(&path, &name, None).expect("there");
        assert_eq!(same.id_key(), store.id_key());
        let mut head = read_head(&store.file, &name).expect("readable");
        head.boot_id[0] ^= 1;
        let bytes = head.to_bytes(&Layout::for_cache(&settings).expect("settings"));
        store.file.write_all_at(&bytes, 0).expect("written");
        assert!(matches!(Store::open(&path, &name, None), Err(Error::NotFound { .. })));
        let anew = Store::open(&path, &name, Some(&settings)).expect("made anew");
        assert_ne!(anew.id_key(), store.id_key());
        assert!(is_wiped(&store.file) && !store.facts().is_named);
        std::fs::remove_dir_all(&path).expect("there");
    }

    #[test]
    fn the_page_is_shared_and_lent_to_one_at_a_time() {
        let name = format!("test-page-{}", std::process::id()).parse().expect("a name");
        let settings = Settings::new(Capacity::Sessions(10));
        let [store, other] = [(); 2]
            .map(|()| Store::open(Path::new(Store::FOLDER), &name, Some(&settings)).expect("made"));
        let first = store.with_page(|page, torn| (page.iter().all(|byte| *byte == 0), torn));
        assert_eq!(first, Some((true, false)));
        store.with_page(|page, _| page[Store::PAGE_BYTES - 1] = 9);
        assert_eq!(other.with_page(|page, _| page[Store::PAGE_BYTES - 1]), Some(9));
        let both = store.with_page(|_, _| other.with_page(|_, _| ()));
        assert_eq!(both, Some(None), "one at a time, and not for ever");
        assert_eq!(store.facts().lock_timeouts, 1);
        let locked = store.with_page(|_, _| other.ring()).expect("free");
        assert!(matches!(locked, Err(Error::KeysLocked { .. })), "{locked:?}");
        assert!(Store::remove(Path::new(Store::FOLDER), &name).expect("removed"));
    }
}
