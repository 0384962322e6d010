//! The ways in which Rejoin is loaded into a server.

use rejoin_testkit::shipped::library;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rejoin_store::Store;

use rejoin_testkit::site::Site;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Rejoin is not loaded.
    Nothing,
    /// `OPENSSL_CONF`.
    Module,
    /// `LD_PRELOAD`.
    Preload,
}

impl Means {
    pub(crate) fn bring(self, site: &mut Site, stateful: bool) {
        let setting = if stateful { "stateful = yes" } else { "" };
        match self {
            Self::Nothing => site.environment.clear(),
            Self::Module => site.configure(setting),
            Self::Preload => site.environment = preloading(site, stateful),
        }
    }

    /// Returns the folder of the cache. With the preload library, processes that have dropped root make the cache, so
    /// that the folder must be writable for them.
    pub(crate) fn folder(self, site: &Site) -> PathBuf {
        match self {
            Self::Preload => site.file("caches"),
            Self::Nothing | Self::Module => PathBuf::from(Store::FOLDER),
        }
    }
}

fn preloading(site: &Site, stateful: bool) -> Vec<(&'static str, String)> {
    let folder = Means::Preload.folder(site);
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("ours");
    vec![
        ("LD_PRELOAD", library("librejoin_preload.so").display().to_string()),
        ("REJOIN_CACHE", site.cache.clone()),
        ("REJOIN_CAPACITY", "1MiB".to_owned()),
        ("REJOIN_FOLDER", folder.display().to_string()),
        ("REJOIN_LOG", "errors".to_owned()),
        ("REJOIN_STATEFUL", if stateful { "yes" } else { "no" }.to_owned()),
    ]
}
