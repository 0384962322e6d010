//! A shared cache: opening, making, reading, emptying and removing it.

mod replace;

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rejoin_cache::{Cache, Checked, Inconsistency, Layout, Region, SessionId, Settings};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::certainty::{Certainty, Seen};
use crate::clock::now_ms;
use crate::division::{Division, Fit};
use crate::figures::Figures;
use crate::folder::{self, ATTEMPTS, Folder, PAUSE};
use crate::head::{Head, Keys, Unreadable};
use crate::mailbox::Mailbox;
use crate::mapping::Mapping;
use crate::random::fill_at_random;
use crate::region::{SharedLedger, SharedRegion};
use crate::turned_away::TurnedAway;
use crate::{CacheName, Error, Objection, Trouble};
use replace::Origin;

/// A session cache in memory that processes share. See the crate's documentation.
///
/// After a fork both processes may go on with it. [`Facts::is_locked`] holds for the parent only:
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
    certainty: Certainty,
}

/// The state of a store, with counts of all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The size of the file, all of which is reserved.
    pub bytes: u64,
    /// The time when it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// True if the kernel promised this process never to write it to the swap space, for which
    /// `RLIMIT_MEMLOCK` must allow its size.
    pub is_locked: bool,
    /// True if it can still be opened by its name. Otherwise it was removed: processes that have it open go
    /// on with it, and the name now opens another.
    pub is_named: bool,
    /// Waits of a process for another.
    pub lock_waits: u64,
    /// Operations not done because a lock was not free within a tenth of a second.
    pub lock_timeouts: u64,
    /// Operations not done because a lock was not free at once: an earlier wait for it was in vain, or the process had
    /// waited for a hundredth of its time.
    pub lock_skips: u64,
    /// The time that processes slept in such waits, in microseconds.
    pub lock_waited_us: u64,
    /// Operations not done because a lock was written over.
    pub locks_broken: u64,
    /// Shards emptied because their contents could not be trusted: a process died or
    /// panicked in the middle of an operation, or another program wrote to the file.
    pub emptied: u64,
}

/// The part of a store that is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The sessions, which are wiped. The learned return times stay.
    Sessions,
    /// The counts.
    Counters,
    /// Both.
    Both,
}

/// The reason why a file cannot be used as it is.
enum Unusable {
    /// It was made before the machine started: its times mean nothing now.
    Outdated,
    Refused(Error),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Store {
    /// The folder of files in memory, on any Linux.
    pub const FOLDER: &str = "/dev/shm";
    /// The size of the page for ticket keys, in bytes.
    pub const PAGE_BYTES: usize = Division::PAGE_BYTES;

    /// Opens the cache of this name, or makes it if there is none. Of several processes at the same
    /// time one makes it. Without `settings` it must exist, and its own are used. The processes
    /// that share it run as one user; root may have made it. A capacity in bytes is all that the file takes.
    ///
    /// # Errors
    /// All of [`Error`]: the caller goes on without a shared cache.
    pub fn open(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
    ) -> Result<Self, Error> {
        Self::open_or_make(folder, name, settings, &Origin::default())
    }

    /// Opens a cache like [`Self::open`], for the agent of a cluster, whose servers all have `id_key`. A cache that
    /// it makes has a [`Mailbox`], and only the agent changes its ticket keys.
    ///
    /// # Errors
    /// Those of [`Self::open`], and [`Error::OtherCluster`].
    pub fn open_for_cluster(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
        id_key: &[u8; 16],
    ) -> Result<Self, Error> {
        let origin = Origin { cluster: Some(id_key), ..Origin::default() };
        let store = Self::open_or_make(folder, name, settings, &origin)?;
        let is_ours = store.mailbox.is_some() && store.keys.id == *id_key;
        let (name, folder) = (name.clone(), folder.into());
        if is_ours { Ok(store) } else { Err(Error::OtherCluster { name, folder }) }
    }

    fn open_or_make(
        folder: &Path,
        name: &CacheName,
        settings: Option<&Settings>,
        origin: &Origin<'_>,
    ) -> Result<Self, Error> {
        let folder = Folder::open(folder)?;
        let mut last = Error::Busy { name: name.clone() };
        for _ in 0..ATTEMPTS {
            let found = folder.file(name);
            let found = if settings.is_none() { found.map_err(Error::of_opening) } else { found };
            let attempt = match found? {
                Some(file) => Self::open_file(&folder, name, &file, settings)?,
                None => Self::make(&folder, name, settings, origin)?,
            };
            match attempt {
                Ok(store) => return Ok(store),
                Err(why) => last = why.unwrap_or(last),
            }
            std::thread::sleep(PAUSE);
        }
        Err(last)
    }

    /// Returns the bytes that the file of such a cache takes: sessions, tables, what is learned, and all that the file has
    /// besides.
    ///
    /// # Errors
    /// Returns an error if no cache can be made of these settings.
    pub fn bytes_for(settings: &Settings) -> Result<u64, rejoin_cache::Error> {
        Ok(Fit::of(settings, false)?.division.bytes as u64)
    }

    /// Returns the sessions of up to one block that such a cache holds.
    ///
    /// # Errors
    /// Returns an error if no cache can be made of these settings.
    pub fn sessions_for(settings: &Settings) -> Result<u64, rejoin_cache::Error> {
        Ok(Fit::of(settings, false)?.layouts.iter().map(Layout::sessions).sum())
    }

    /// Returns the names of the caches in a folder, in order, including those that cannot be opened.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn list(folder: &Path) -> Result<Vec<CacheName>, Error> {
        let names = Folder::open(folder)?.file_names()?;
        let mut names: Vec<_> = names.iter().filter_map(|name| CacheName::of_file(name)).collect();
        names.sort();
        Ok(names)
    }

    /// Wipes the cache of this name and removes its file. Processes that have it open go on with an
    /// empty cache, which no new process opens. This also resolves every error whose text asks for
    /// it. Returns true if there was a cache.
    ///
    /// Root removes a file of another user, too, but does not open it: it is not wiped. Neither is a file that has
    /// another name, too.
    ///
    /// # Errors
    /// [`Error::NotOurs`], or a file that the system does not wipe or remove.
    pub fn remove(folder: &Path, name: &CacheName) -> Result<bool, Error> {
        let folder = Folder::open(folder)?;
        folder.sweep(name)?;
        let file = match folder.objection(name)? {
            Some(Objection::Linked) => return folder.unname(name).map(|()| true),
            Some(Objection::Readable { .. }) => folder.open_file(name)?,
            Some(_) if rustix::process::geteuid().is_root() => {
                return folder.unname(name).map(|()| true);
            }
            _ => folder.file(name)?,
        };
        let Some(file) = file else { return Ok(false) };
        if !folder.lock_name(&file, name)? {
            return Ok(false);
        }
        match Self::over_file(&folder, name, &file, None) {
            Ok(store) => store.wipe(&folder)?,
            Err(_) => folder::wipe(&file, &folder.path_of(name))?,
        }
        folder.unname(name).map(|()| true)
    }

    /// Returns the sessions, whose clock is [`now_ms`]. To be called anew for every operation, because it checks
    /// whether the file was cut short.
    pub fn cache(&self) -> &Cache<SharedRegion> {
        self.mapping.notice();
        &self.cache
    }

    /// Counts a session that was just taken from this machine's memory, and returns true if it was certainly not taken
    /// from there before. It is not for 12 seconds after this process opened the file, unless it made it; after older memory came
    /// back; and after the wall clock was set back, for so much longer.
    pub(crate) fn took_certainly(&self, now_ms: u64) -> bool {
        let Figures { taken_early, doubted_until_ms, .. } = self.figures();
        self.certainty.count(now_ms, Seen { taken: taken_early, doubted_until_ms })
    }

    /// Notes that the cluster did not answer for a session that was to be taken. If there is no room, no session is
    /// certain for a while.
    pub(crate) fn turn_away(&self, id: &SessionId) {
        let (now_ms, Figures { turned_away, doubted_until_ms, .. }) = (now_ms(), self.figures());
        if !turned_away.note(id, now_ms) {
            doubted_until_ms.fetch_max(TurnedAway::until_ms(now_ms), Ordering::AcqRel);
        }
    }

    /// Returns true if the cluster did not answer for this session so lately that a copy of its client's first flight may
    /// come.
    pub(crate) fn has_turned_away(&self, id: &SessionId) -> bool {
        self.figures().turned_away.has(id, now_ms())
    }

    /// Returns the mailbox of the cluster's agent, if the cache is a cluster's.
    pub fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.as_ref()
    }

    /// Returns true if an operation found that the file was cut short. This process is without the cache from then on.
    pub fn is_cut_short(&self) -> bool {
        self.mapping.alarm.has_raised(Trouble::CutShort)
    }

    /// Sets the listener for trouble with the cache in use; only the first one is kept. It is called once for each
    /// kind of trouble, on the thread whose operation found it, and without a lock. Each process that has the cache
    /// reports by itself.
    pub fn on_trouble(&self, listener: impl Fn(Trouble) + Send + Sync + 'static) {
        self.mapping.alarm.listen(listener);
    }

    /// The cache's name.
    pub fn name(&self) -> &CacheName {
        &self.name
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The secret that all processes of the cache share, from which the tags in session ids are made.
    pub fn id_key(&self) -> &[u8; 16] {
        &self.keys.id
    }

    /// Returns a number that tells one [`Self::id_key`] from another, and is no secret.
    pub fn key_id(&self) -> u64 {
        self.keys.key_id()
    }

    /// Lends the page for ticket keys, under its lock. The flag is true if an earlier holder was interrupted.
    /// Returns `None` if the lock was not free in time ([`Facts::lock_timeouts`], [`Facts::lock_skips`]). The page is zero in a new cache, and again
    /// after the cache was removed while in use.
    pub(crate) fn with_page<T>(
        &self,
        operation: impl FnOnce(&mut [u8; Self::PAGE_BYTES], bool) -> T,
    ) -> Option<T> {
        self.mapping.notice();
        self.page.with(|lines, torn| operation(bytemuck::from_bytes_mut(cast(lines)), torn))
    }

    /// Resets a part of the store.
    pub fn reset(&self, what: Reset) {
        if what != Reset::Counters {
            self.cache().clear();
        }
        if what != Reset::Sessions {
            self.cache().reset_counters();
            let Figures { lock_waits, lock_timeouts, lock_skips, lock_waited_us, .. } =
                self.figures();
            let Figures { locks_broken, tickets, .. } = self.figures();
            let of_locks = [lock_waits, lock_timeouts, lock_skips, lock_waited_us, locks_broken];
            for figure in of_locks.into_iter().chain(tickets) {
                figure.store(0, Ordering::Relaxed);
            }
            self.mailbox().into_iter().for_each(Mailbox::reset_counts);
        }
    }

    /// Returns the current state.
    pub fn facts(&self) -> Facts {
        let count = |of: fn(&Figures) -> &AtomicU64| of(self.figures()).load(Ordering::Relaxed);
        Facts {
            bytes: self.division.bytes as u64,
            created_unix_s: self.created_unix_s,
            is_locked: self.mapping.is_locked(),
            is_named: self.is_named(),
            lock_waits: count(|of| &of.lock_waits),
            lock_timeouts: count(|of| &of.lock_timeouts),
            lock_skips: count(|of| &of.lock_skips),
            lock_waited_us: count(|of| &of.lock_waited_us),
            locks_broken: count(|of| &of.locks_broken),
            emptied: self.cache().emptied(),
        }
    }

    /// Returns [`Facts::is_named`].
    pub(crate) fn is_named(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Returns true once for each start of a server, which any number but 0 stands for: to the first of its processes
    /// that asks. It may return true again if another server starts meanwhile.
    pub fn is_first_of(&self, start: u64) -> bool {
        let starts = &self.figures().starts;
        starts[start as usize % starts.len()].swap(start, Ordering::Relaxed) != start
    }

    /// Checks every shard, in their order: see [`Cache::check`].
    pub fn check(&self) -> Vec<Result<Checked, Inconsistency>> {
        self.cache().check()
    }

    /// Opens a file. The inner error is the reason to try again.
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
            // The file was wiped, and is about to be removed.
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
        let head = read_head(folder, file, name)?;
        if head.boot_id != boot_id() {
            return Err(Unusable::Outdated);
        }
        if let Some(differs) =
            settings.and_then(|ours| difference(folder, name, &head.settings, ours))
        {
            return Err(differs.into());
        }
        let bytes = checked_size(folder, name, file, &head)?;
        Ok(Self::map(folder, name, file, &head, bytes)?)
    }

    fn make(
        folder: &Folder,
        name: &CacheName,
        settings: Option<&Settings>,
        origin: &Origin<'_>,
    ) -> Result<Result<Self, Option<Error>>, Error> {
        let not_found = || Error::NotFound { name: name.clone(), folder: folder.path().into() };
        let settings = settings.ok_or_else(not_found)?;
        let fit = Fit::of(settings, origin.cluster.is_some())?;
        let unfinished = match folder.unfinished(name, fit.division.bytes as u64) {
            Ok(unfinished) => unfinished,
            // Several processes at the same time take the room for several files.
            Err(error @ Error::NoRoom { .. }) => return Ok(Err(Some(error))),
            Err(error) => return Err(error),
        };
        let head = new_head(settings, origin)?;
        let bytes = Zeroizing::new(head.to_bytes(&fit.layouts));
        let mark_at = (fit.division.bytes - Mapping::MARK_BYTES) as u64;
        let written = unfinished
            .file
            .write_all_at(&*bytes, 0)
            .and_then(|()| unfinished.file.write_all_at(&Mapping::MARK.to_ne_bytes(), mark_at));
        written.map_err(|cause| Error::refused("write", &folder.path_of(name), cause))?;
        let store = Self::map(folder, name, &unfinished.file, &head, fit.division.bytes)?;
        store.format();
        store.inherit(origin);
        store.certainty.begin(now_ms());
        Ok(unfinished.finish(name, origin.replaces)?.map(|()| store).ok_or(None))
    }

    fn map(
        folder: &Folder,
        name: &CacheName,
        file: &File,
        head: &Head,
        bytes: usize,
    ) -> Result<Self, Error> {
        let Head { settings, keys, clustered, created_unix_s, .. } = head.clone();
        let Fit { sessions, mut division, .. } = Fit::of(&settings, clustered)?;
        let path = folder.path_of(name);
        let is_marked = bytes == division.bytes;
        division.bytes = bytes;
        let mapping = Mapping::new(file, bytes, is_marked)
            .map_err(|cause| match cause {
                Errno::NOSPC => Error::NoRoom { bytes: bytes as u64, folder: folder.path().into() },
                _ => Error::refused("map", &path, cause),
            })
            .map(Arc::new)?;
        let mut shards = 0..division.regions.len();
        let region = |_: &Layout| SharedRegion::new(&mapping, &division, shards.next());
        let ledger = SharedLedger::new(&mapping, &division);
        let cache = Cache::over(&sessions, keys.hash, ledger, region)?;
        let page = SharedRegion::new(&mapping, &division, None);
        let mailbox = Mailbox::new(&mapping, &division);
        let certainty = Certainty::new(now_ms());
        let file = file.try_clone().map_err(|cause| Error::refused("keep open", &path, cause))?;
        let name = name.clone();
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
            certainty,
        })
    }

    /// Makes an empty cache of a file of zeros, which no other process can see yet.
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
        self.with_page(|page, _| {
            page.fill(0);
            self.figures().own_ring.wipe();
        });
        self.mailbox.iter().for_each(Mailbox::wipe);
        let wiped = self.file.write_all_at(&[0; Head::BYTES], 0);
        wiped.map_err(|cause| Error::refused("wipe", &folder.path_of(&self.name), cause))
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.mapping.notice();
        self.mapping.at(Division::FIGURES)
    }
}

fn new_head(settings: &Settings, origin: &Origin<'_>) -> Result<Head, Error> {
    let mut keys = Keys { hash: [0; 16], id: [0; 16] };
    fill_at_random(&mut keys.hash)?;
    match origin.cluster.or_else(|| origin.inherited.as_ref().map(|old| &old.keys.id)) {
        Some(id_key) => keys.id = *id_key,
        None => fill_at_random(&mut keys.id)?,
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (settings, created_unix_s) = (settings.clone(), since_1970.as_secs());
    let clustered = origin.cluster.is_some();
    Ok(Head { settings, keys, clustered, boot_id: boot_id(), created_unix_s })
}

fn read_head(folder: &Folder, file: &File, name: &CacheName) -> Result<Head, Error> {
    let mut bytes = Zeroizing::new([0; Head::BYTES]);
    let is_whole = file.read_exact_at(&mut *bytes, 0).is_ok();
    let (cache, place) = (|| name.clone(), || folder.path().to_owned());
    Head::from_bytes(&bytes).map_err(|why| match why {
        Unreadable::NoCache => folder.no_cache(name, file),
        Unreadable::OtherVersion if !is_whole => Error::Damaged { name: cache(), folder: place() },
        Unreadable::OtherVersion => Error::OtherVersion { name: cache(), folder: place() },
        Unreadable::Damaged => Error::Damaged { name: cache(), folder: place() },
    })
}

/// Returns true if the head was wiped.
fn is_wiped(file: &File) -> bool {
    let mut bytes = [0; Head::BYTES];
    file.read_exact_at(&mut bytes, 0).is_ok() && bytes == [0; Head::BYTES]
}

/// Returns the size of a file, which is as its head says, or as an older version made it.
fn checked_size(
    folder: &Folder,
    name: &CacheName,
    file: &File,
    head: &Head,
) -> Result<usize, Error> {
    let Division { bytes: needed, unmarked_bytes, .. } =
        Fit::of(&head.settings, head.clustered)?.division;
    let refused = |cause| Error::Refused { action: "look at", path: folder.path_of(name), cause };
    let bytes = file.metadata().map_err(refused)?.len();
    if let Some(size) = [needed, unmarked_bytes].into_iter().find(|size| *size as u64 == bytes) {
        return Ok(size);
    }
    let (name, folder, needed_bytes) = (name.clone(), folder.path().to_owned(), needed as u64);
    Err(Error::BadSize { name, folder, bytes, needed_bytes })
}

fn difference(
    folder: &Folder,
    name: &CacheName,
    theirs: &Settings,
    ours: &Settings,
) -> Option<Error> {
    macro_rules! first_of {
        ($($setting:ident)*) => {
            [$((stringify!($setting), told(&theirs.$setting), told(&ours.$setting))),*]
        };
    }
    let settings = first_of![capacity policy prediction grace_ms prior_ms block_bytes
        longest_value_bytes ghosts_percent shards fairness];
    let (setting, theirs, ours) = settings.into_iter().find(|(_, theirs, ours)| theirs != ours)?;
    let (name, folder) = (name.clone(), folder.path().to_owned());
    Some(Error::OtherSettings { name, folder, setting, theirs, ours })
}

/// Formats a setting for operators: `Bytes(4096)` is `4096 bytes`.
fn told(setting: &impl std::fmt::Debug) -> String {
    let text = format!("{setting:?}").to_lowercase();
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some(("some", value)) => value.to_owned(),
        Some((unit, number)) => format!("{number} {unit}"),
        None => text,
    }
}

/// A store is a cache: see [`Store::cache`].
impl Deref for Store {
    type Target = Cache<SharedRegion>;

    fn deref(&self) -> &Self::Target {
        self.cache()
    }
}

/// Returns the id of this start of the machine, or zeros if the kernel does not give it.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

fn cast(lines: &mut [rejoin_cache::Line]) -> &mut [u8] {
    bytemuck::cast_slice_mut(lines)
}

const _: () = assert!(Store::PAGE_BYTES == rejoin_tickets::PAGE_BYTES);

#[cfg(test)]
mod tests {
    use rejoin_cache::Capacity;

    use super::*;

    #[test]
    fn what_was_made_before_the_machine_was_started_is_made_anew() {
        let path = rejoin_testkit::folder::Folder::new();
        let (name, settings) = ("test".parse().expect("a name"), Capacity::Sessions(10));
        let settings = Settings::new(settings);
        let store = Store::open(&path, &name, Some(&settings)).expect("made");
        let same = Store::open(&path, &name, None).expect("there");
        assert_eq!(same.id_key(), store.id_key());
        let folder = Folder::open(&path).expect("there");
        let mut head = read_head(&folder, &store.file, &name).expect("readable");
        head.boot_id[0] ^= 1;
        let bytes = head.to_bytes(&Fit::of(&settings, false).expect("settings").layouts);
        store.file.write_all_at(&bytes, 0).expect("written");
        assert!(matches!(Store::open(&path, &name, None), Err(Error::NotFound { .. })));
        let anew = Store::open(&path, &name, Some(&settings)).expect("made anew");
        assert_ne!(anew.id_key(), store.id_key());
        assert!(is_wiped(&store.file) && !store.facts().is_named);
    }

    /// Older versions made files without a mark, and a page shorter if the other parts fill their pages.
    #[test]
    fn what_an_older_version_made_is_opened_and_marked_where_it_can_be() {
        let division_of = |sessions| {
            let settings = Settings::new(Capacity::Sessions(sessions));
            let Division { bytes, unmarked_bytes, .. } =
                Fit::of(&settings, false).expect("settings").division;
            (settings, bytes, unmarked_bytes)
        };
        let full = (100..2_000).map(division_of).find(|(_, bytes, unmarked)| bytes != unmarked);
        for (settings, bytes, unmarked_bytes) in [division_of(100), full.expect("some fill them")] {
            let path = rejoin_testkit::folder::Folder::below(Path::new(Store::FOLDER));
            let name = "test".parse().expect("a name");
            let file = Store::open(&path, &name, Some(&settings)).expect("made").file;
            let mark_at = (bytes - Mapping::MARK_BYTES) as u64;
            file.write_all_at(&[0; Mapping::MARK_BYTES], mark_at).expect("written");
            file.set_len(unmarked_bytes as u64).expect("as it was made");
            for _ in 0..2 {
                let store = Store::open(&path, &name, None).expect("opened");
                assert_eq!(store.facts().bytes, unmarked_bytes as u64);
                assert!(store.check().iter().all(Result::is_ok) && !store.is_cut_short());
            }
            let mut mark = [0; Mapping::MARK_BYTES];
            let is_there = file.read_exact_at(&mut mark, mark_at).is_ok();
            assert_eq!(is_there, bytes == unmarked_bytes);
            assert!(!is_there || mark == Mapping::MARK.to_ne_bytes());
            // What is wiped was not cut short.
            let store = Store::open(&path, &name, None).expect("opened");
            folder::wipe(&file, &path).expect("wiped");
            assert!(store.check().iter().all(Result::is_err) && !store.is_cut_short());
        }
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

    /// A thread sleeps on a lock, whose memory is gone when it wakes up.
    #[test]
    fn a_file_that_is_cut_short_meanwhile_ends_the_wait_for_a_lock() {
        let folder = rejoin_testkit::folder::Folder::below(Path::new(Store::FOLDER));
        let (name, settings) = ("test".parse().expect("a name"), Capacity::Sessions(10));
        let settings = Settings::new(settings);
        let [holds, waits] =
            [(); 2].map(|()| Store::open(&folder, &name, Some(&settings)).expect("made"));
        let (is_held, held) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            holds.with_page(|_, _| {
                is_held.send(()).expect("awaited");
                // It would touch the lock.
                loop {
                    std::thread::park();
                }
            })
        });
        held.recv().expect("held");
        let file = waits.file.try_clone().expect("a file");
        let waiter = std::thread::spawn(move || {
            assert!(waits.with_page(|_, _| ()).is_none() && waits.is_cut_short());
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        file.set_len(4096).expect("cut");
        waiter.join().expect("no panic");
    }
}
