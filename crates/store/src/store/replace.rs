//! Replacing a cache that was made with other settings, or by another version.

use std::fs::File;
use std::path::Path;

use rejoin_cache::Settings;
use zeroize::Zeroizing;

use super::{Store, Unusable};
use crate::folder::Folder;
use crate::head::Keys;
use crate::{CacheName, Error};

/// The origin of a new cache.
#[derive(Default)]
pub(super) struct Origin<'a> {
    /// The id key of the cluster, if the cache is a cluster's.
    pub(super) cluster: Option<&'a [u8; 16]>,
    /// The keys of the cache that it replaces.
    pub(super) inherited: Option<Inherited>,
    /// True if it takes the name of another file, which is locked.
    pub(super) replaces: bool,
}

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
    /// The new cache has the keys of the old one if this version can read them, so that the same tickets open in both.
    /// It has none of the sessions.
    ///
    /// # Errors
    /// Those of [`Self::open`]. A cluster's cache is its agent's, and is not replaced.
    pub fn open_or_replace(
        folder: &Path,
        name: &CacheName,
        settings: &Settings,
    ) -> Result<(Self, Option<Error>), Error> {
        match Self::open(folder, name, Some(settings)) {
            Err(why) if is_of_another_make(&why) => Self::replace(folder, name, settings, why),
            opened => opened.map(|store| (store, None)),
        }
    }

    fn replace(
        folder: &Path,
        name: &CacheName,
        settings: &Settings,
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
                origin.inherited = Some(Inherited { keys: old.keys, page });
            }
            if place.lock_name(&file, name)? {
                origin.replaces = true;
                if let Ok(store) = Self::make(&place, name, Some(settings), &origin)? {
                    return Ok((store, Some(why)));
                }
                // There is no room for both, unless nobody has the old one open.
                place.unname(name)?;
                origin.replaces = false;
            }
        }
        Self::open_or_make(folder, name, Some(settings), &origin).map(|store| (store, Some(why)))
    }
}

fn is_of_another_make(error: &Error) -> bool {
    matches!(error, Error::OtherSettings { .. } | Error::OtherVersion { .. })
}
