//! The ring that is exported or shared: a cluster's, a cache's or a file's.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rejoin_cluster::{Answer, ClusterKeys, Error, Followed, KeyFile, SiteKeys, Sites};
use rejoin_store::{CacheName, RingFile, SharedKeys, Store};
use rejoin_tickets::{KeyRing, KeySource, KeyState, Reschedule, Schedule};

use crate::schedule::tell_of_cluster;
use crate::units::time;
use crate::watch::Watch;
use crate::{cluster, terminal};

/// A ring, and the way to its newest state.
pub(super) enum Source {
    /// It is opened at the first look, when rights have been given up.
    Cluster {
        sites: Sites,
        key_file: Box<KeyFile>,
        keys: Option<Box<ClusterKeys>>,
        opened: Option<Box<SiteKeys>>,
        /// True once the operator was told that this machine's clock is wrong, until it is right.
        were_apart: bool,
    },
    Cache {
        store: Arc<Store>,
        watch: Watch,
        keys: SharedKeys,
        ring: Option<KeyRing>,
    },
    File {
        file: RingFile,
        ring: Option<KeyRing>,
    },
}

impl Source {
    /// Opens a cluster's ring. With a schedule keys are made by it; without they are only followed.
    pub(super) fn of_cluster(
        settings: &Path,
        makes_keys: bool,
        accepts_older: bool,
        user: Option<&str>,
    ) -> anyhow::Result<Self> {
        let settings = cluster::settings_of(settings, user)?;
        let key_file = settings.open_key_file()?;
        let (schedule, sites) = (settings.schedule()?, settings.all_sites()?);
        let keys = match makes_keys {
            true => cluster::keys(&settings, key_file.secret(), Some(schedule))?,
            false => cluster::keys(&settings, key_file.secret(), None)?.only_followed(),
        };
        let mut keys = keys.accepting_older(accepts_older);
        keys.take_unrecorded().iter().for_each(cluster::complain_of_record);
        let (key_file, keys) = (Box::new(key_file), Some(Box::new(keys)));
        Ok(Self::Cluster { sites, key_file, keys, opened: None, were_apart: false })
    }

    /// Opens a cache's ring, and makes one if it has none.
    pub(super) fn of_cache(
        folder: &Path,
        name: &CacheName,
        change: Reschedule,
    ) -> anyhow::Result<Self> {
        let store = Arc::new(Store::open(folder, name, None)?);
        let watch = Watch::until_lost(&store);
        tell_of_cluster(&store, change);
        let now_s = cluster::now_s()?;
        let keys = SharedKeys::open_rescheduled(Arc::clone(&store), change, None, now_s, complain)?;
        let keys = keys.for_others();
        Ok(Self::Cache { store, watch, keys, ring: None })
    }

    /// Names a file's ring, which is made if there is none.
    ///
    /// # Errors
    /// The change does not fit the ring's schedule. A file that cannot be read is told at the first look.
    pub(super) fn of_file(file: &Path, change: Reschedule) -> anyhow::Result<Self> {
        let file = RingFile::rescheduled(file, change);
        if let Ok(there) = file.read() {
            let schedule = there.map_or_else(Schedule::default, |ring| *ring.schedule());
            change.of(&schedule).context("--rotate-every, --ticket-lifetime")?;
        }
        Ok(Self::File { file, ring: None })
    }

    /// Must be called before each look of a follower, which ends if it fails: it would go on alone, and make keys that nobody
    /// else has.
    ///
    /// # Errors
    /// The cache was removed, replaced or cut short.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Self::Cache { store, watch, .. } = self else { return Ok(()) };
        let Some(lost) = watch.lost(store) else { return Ok(()) };
        anyhow::bail!(
            "{}, because nobody else has its keys any more, and the server goes on with the keys it has: start it again, as its \
             unit does",
            lost.ends("export", store)
        )
    }

    /// Looks for a newer ring. Makes the next key first, if it is due. The last ring stays if this fails.
    pub(super) async fn look(&mut self) -> anyhow::Result<()> {
        let now_s = cluster::now_s()?;
        match self {
            Self::Cluster { sites, key_file, keys, opened, were_apart } => {
                if cluster::is_renewed(key_file) {
                    let secret = key_file.secret();
                    keys.iter_mut().for_each(|keys| keys.set_secret(secret));
                    opened.iter_mut().for_each(|keys| keys.set_secret(secret));
                }
                if opened.is_none() {
                    let links = sites.connect().await?;
                    *opened = keys.take().map(|keys| Box::new(SiteKeys::new(*keys, &links)));
                }
                let Some(keys) = opened else { return Ok(()) };
                let Followed { own, home, .. } = keys.follow(now_s).await;
                keys.take_unrecorded().iter().for_each(cluster::complain_of_record);
                tell_of_clock(keys.keys().clock_apart_s(), were_apart);
                match (home, sites.home_elsewhere()) {
                    (Some(Answer { outcome, .. }), Some(site)) => {
                        outcome.with_context(|| format!("{site}, the home of the ticket keys"))?
                    }
                    _ => own.outcome?,
                }
            }
            Self::Cache { keys, ring, .. } => {
                let newer = keys.newer(now_s);
                keys.keep();
                *ring = newer.or_else(|| ring.take());
            }
            Self::File { file, ring } => {
                let looked = file.look(now_s);
                // A file that cannot be written can perhaps be read, and its keys are good for longer.
                let newest = match &looked {
                    Ok(newest) => Some(newest.clone()),
                    Err(_) => file.read().ok().flatten(),
                };
                if let (Some(last), Some(newest)) = (&*ring, &newest) {
                    tell_of_change(file.path(), last, newest, now_s);
                }
                *ring = newest.or_else(|| ring.take());
                looked?;
            }
        }
        Ok(())
    }

    /// Returns the newest ring that was seen.
    pub(super) fn ring(&self) -> Option<&KeyRing> {
        match self {
            Self::Cluster { opened, .. } => opened.as_ref().and_then(|keys| keys.ring()),
            Self::Cache { ring, .. } | Self::File { ring, .. } => ring.as_ref(),
        }
    }

    /// Returns the ring, or says how to get one.
    pub(super) fn needed(&self) -> anyhow::Result<&KeyRing> {
        let missing = match self {
            Self::Cluster { .. } => super::NO_KEYS,
            _ => "the ring cannot be read: try again",
        };
        self.ring().context(missing)
    }
}

/// Says when a clock begins to be wrong, and when it no longer is. The ring is exported all the same: without it the server
/// would lose more.
fn tell_of_clock(apart_s: Option<i64>, were_apart: &mut bool) {
    match (apart_s, std::mem::replace(were_apart, apart_s.is_some())) {
        (Some(ahead_s), false) => terminal::complain(&format!(
            "{}; no key is made here, and the exported key that encrypts may be another one than on other machines",
            Error::ClocksApart { ahead_s }
        )),
        (None, true) => terminal::print("the clock is right again"),
        _ => {}
    }
}

/// Says what others have done to a ring in a file that its servers' operator may not expect. A ring that was removed is not put
/// back: its keys may be the reason.
fn tell_of_change(path: &Path, last: &KeyRing, newest: &KeyRing, now_s: u64) {
    let path = path.display();
    let mut alive = last.list(now_s).filter(|key| key.state != KeyState::Expired).peekable();
    let is_there = |id| newest.list(now_s).any(|key| key.id == id);
    if alive.peek().is_some() && !alive.any(|key| is_there(key.id)) {
        terminal::complain(&format!(
            "{path}: none of its keys is left, because the file was removed or replaced, or because all were retired; a new one is \
             used, and tickets of before become full handshakes"
        ));
    } else if last.schedule() != newest.schedule() {
        let [turn, lifetime] = [Schedule::rotate_every_s, Schedule::ticket_lifetime_s]
            .map(|figure| time(figure(newest.schedule())));
        terminal::complain(&format!(
            "{path}: another process has changed its schedule: keys turn every {turn}, and tickets live for {lifetime}"
        ));
    }
}

/// Reports a key file that cannot be written.
pub(crate) fn complain(error: &rejoin_store::Error) {
    terminal::complain(&error.to_string());
}
