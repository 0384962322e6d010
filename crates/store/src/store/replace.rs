//! Replacing a cache that was made with other settings, or by another version.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rejoin_cache::Settings;
use zeroize::Zeroizing;

use super::{Store, Unusable};
use crate::folder::Folder;
use crate::head::Keys;
use crate::{CacheName, Error, now_ms};

/// The origin of a new cache.
#[derive(Default)]
pub(super) struct Origin<'a> {
    /// The id key of the cluster, if the cache is a cluster's.
    pub(super) cluster: Option<&'a [u8; 16]>,
    /// The keys of the cache that it replaces.
    pub(super) inherited: Option<Inherited>,
    /// The cache that it replaces, if there is room for both.
    pub(super) old: Option<Store>,
    /// True if it takes the name of another file, which is locked.
    pub(super) replaces: bool,
}

/// The longest time for carrying sessions over, because other processes wait for the new cache. It is enough for some
/// 100,000.
const CARRYING: Duration = Duration::from_millis(300);

/// The keys of an old cache.
pub(super) struct Inherited {
    pub(super) keys: Keys,
    /// The page of ticket keys. `None`: it is locked.
    pub(super) page: Option<Zeroizing<[u8; Store::PAGE_BYTES]>>,
}

impl Store {
    /// Opens the cache of this name like [`Self::open`]. If it was made with other settings or by another version, a
    /// new one takes its name. Processes that have the old one open finish on it. Its file is not wiped: the kernel
    /// gets its memory when the last of them ends. In that case the reason is returned, too.
    ///
    /// If this version can read the old one, the new one has its keys, so that the same tickets open in both, and
    /// copies of its sessions, as many as fit and as a third of a second allows, unless `carries` is false: where each
    /// session is used once, none may be in two caches. Sessions that the old one gets later stay there.
    ///
    /// # Errors
    /// Those of [`Self::open`]. A cluster's cache is its agent's, and is not replaced. If the folder had no room for the
    /// new one even without the old one, that stays.
    pub fn open_or_replace(
        folder: &Path,
        name: &CacheName,
        settings: &Settings,
        carries: bool,
    ) -> Result<(Self, Option<Error>), Error> {
        match Self::open(folder, name, Some(settings)) {
            Err(why) if is_of_another_make(&why) => {
                Self::replace(folder, name, settings, carries, why)
            }
            opened => opened.map(|store| (store, None)),
        }
    }

    fn replace(
        folder: &Path,
        name: &CacheName,
        settings: &Settings,
        carries: bool,
        why: Error,
    ) -> Result<(Self, Option<Error>), Error> {
        let mut origin = Origin::default();
        let place = Folder::open(folder)?;
        let other = |file: &File| match Self::over_file(&place, name, file, Some(settings)) {
            Err(Unusable::Refused(error)) => is_of_another_make(&error),
            _ => false,
        };
        // Another process may have replaced it by now.
        if let Some(file) = place.file(name)?.filter(other) {
            if let Ok(old) = Self::over_file(&place, name, &file, None) {
                if old.mailbox.is_some() {
                    return Err(why);
                }
                let page = old.with_page(|page, _| Zeroizing::new(*page));
                origin.inherited = Some(Inherited { keys: old.keys.clone(), page });
                origin.old = carries.then_some(old);
            }
            if place.lock_name(&file, name)? {
                origin.replaces = true;
                match Self::make(&place, name, Some(settings), &origin)? {
                    Ok(store) => return Ok((store, Some(why))),
                    // A cache of another size, with its ticket keys, is better than none.
                    Err(Some(error)) if is_hopeless(&error, &place, &file) => return Err(error),
                    Err(_) => {}
                }
                // There is no room for both, unless nobody has the old one open.
                place.unname(name)?;
                (origin.replaces, origin.old) = (false, None);
            }
        }
        Self::open_or_make(folder, name, Some(settings), &origin).map(|store| (store, Some(why)))
    }

    /// Copies the old cache's ticket keys and sessions. No other process has this one yet.
    pub(super) fn inherit(&self, origin: &Origin<'_>) {
        if let Some(page) = origin.inherited.as_ref().and_then(|old| old.page.as_ref()) {
            self.with_page(|new, _| new.copy_from_slice(&**page));
        }
        if let Some(old) = &origin.old {
            let began = Instant::now();
            self.cache().carry(now_ms(), old.cache(), || began.elapsed() < CARRYING);
            self.cache().reset_counters();
        }
    }
}

/// Returns true if there is no room for the new file without the old one either.
fn is_hopeless(error: &Error, place: &Folder, old: &File) -> bool {
    matches!(error, Error::NoRoom { bytes, .. } if !place.has_room_without(old, *bytes))
}

fn is_of_another_make(error: &Error) -> bool {
    matches!(error, Error::OtherSettings { .. } | Error::OtherVersion { .. })
}
