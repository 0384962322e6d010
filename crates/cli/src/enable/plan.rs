//! The files that `rejoin enable` writes for a service, and the reasons for which it refuses.

use std::hash::Hasher;
use std::path::Path;

use rejoin_cache::{Capacity, Layout, Settings};
use siphasher::sip::SipHasher13;

use super::files::{self, Written};
use super::linked::Linked;
use super::unit::Unit;
use crate::openssl_conf;
use crate::units::Bytes;

/// The files of a service, and what its operator must know.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) files: Vec<Written>,
    /// Warnings, a line each.
    pub(super) notes: Vec<String>,
}

/// The memory that Rejoin locks besides the cache, in bytes.
const BESIDES: u64 = 8 << 20;

impl Plan {
    /// Decides what a service needs.
    ///
    /// # Errors
    /// The reason why Rejoin would not work there, and the remedy.
    pub(super) fn new(
        unit: &Unit,
        linked: &Linked,
        library: &Path,
        capacity: Bytes,
        is_stateful: bool,
    ) -> Result<Self, String> {
        refusal(unit, linked).map_or(Ok(()), Err)?;
        let name = unit.short_name();
        let settings = files::settings(name);
        let before = unit.openssl_conf.clone().filter(|file| *file != settings);
        let before = before.unwrap_or_else(openssl_conf::system);
        let capacity_line = format!("capacity = {}MiB", mebibytes(capacity)?);
        let cache_line = format!("cache = {}", cache_name(name));
        let mut lines = vec![cache_line.as_str(), capacity_line.as_str()];
        if is_stateful {
            lines.push("stateful = yes");
        }
        let text =
            openssl_conf::loading(library, &before, &lines).map_err(|why| why.to_string())?;
        // systemd takes a backslash, as in the name of a unit, for the start of an escape.
        let path = settings.display().to_string().replace('\\', "\\\\");
        let mut drop_in = format!("[Service]\nEnvironment=OPENSSL_CONF={path}\n");
        let lockable_bytes = capacity.0.saturating_add(BESIDES);
        if unit.user.is_some() && unit.lockable_bytes < lockable_bytes {
            // The cache then is never swapped out.
            drop_in += &format!("LimitMEMLOCK={}M\n", lockable_bytes.div_ceil(1 << 20));
        }
        let files = vec![
            Written::new(settings, name, &text),
            Written::new(files::drop_in(unit), name, &drop_in),
        ];
        Ok(Self { files, notes: notes(unit, linked) })
    }
}

/// Returns a capacity in MiB, rounded up.
///
/// # Errors
/// The reason why no cache can have it.
fn mebibytes(capacity: Bytes) -> Result<u64, String> {
    let rounded = capacity.0.div_ceil(1 << 20);
    let bytes = rounded.checked_mul(1 << 20).ok_or("--capacity: too many bytes")?;
    let settings = Settings::new(Capacity::Bytes(if capacity.0 == 0 { 0 } else { bytes }));
    match Layout::for_cache(&settings) {
        Ok(_) => Ok(rounded),
        Err(error) => Err(format!("--capacity: {error}")),
    }
}

/// Returns a name for a cache, which has fewer letters than a unit may have: what is lost is in a hash.
fn cache_name(unit: &str) -> String {
    const LONGEST: usize = 40;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let plain = unit.chars().map(|letter| if is_plain(letter) { letter } else { '-' });
    let name: String = plain.take(LONGEST).collect();
    if name == unit {
        return name;
    }
    let mut hasher = SipHasher13::new();
    hasher.write(unit.as_bytes());
    format!("{name}-{:08x}", hasher.finish() as u32)
}

fn refusal(unit: &Unit, linked: &Linked) -> Option<String> {
    if unit.root.is_none() && !unit.program.exists() {
        return Some(format!("{}, which it starts, does not exist", unit.program.display()));
    }
    let elsewhere = "`rejoin keys export` and `rejoin share` bring ticket keys to servers without libssl (docs/keys.md)";
    match linked {
        Linked::Other(library) if library.contains(".so.1") => {
            return Some(format!("it uses {library}, and Rejoin needs OpenSSL 3"));
        }
        Linked::Other(library) => {
            return Some(format!("it uses {library}, not OpenSSL's libssl.so.3"));
        }
        Linked::Static => {
            let program = unit.program.display();
            return Some(format!(
                "{program} has its TLS library compiled in, out of Rejoin's reach; {elsewhere}"
            ));
        }
        Linked::Shared | Linked::Unknown => {}
    }
    if unit.has_dynamic_user {
        let why = "its user may be another at each start, and would not own the cache";
        return Some(format!("it has DynamicUser=yes: {why}; give it a User="));
    }
    unit.drops_openssl_conf.then(|| {
        "it has UnsetEnvironment=OPENSSL_CONF, by which OpenSSL finds Rejoin; take that out"
            .to_owned()
    })
}

fn notes(unit: &Unit, linked: &Linked) -> Vec<String> {
    let user = unit.user.as_deref();
    let notes = [
        (*linked == Linked::Unknown).then(|| {
            format!("{} names no libssl; it may load one later: --now tells", unit.program.display())
        }),
        user.filter(|_| unit.removes_ipc).map(|user| {
            format!("it has User={user} and RemoveIPC=yes: sessions and keys are lost whenever it stops")
        }),
        unit.root.as_ref().map(|root| {
            format!("it runs in {root}: librejoin.so, its settings and /dev/shm must be there, too")
        }),
        unit.has_own_memory.then(|| {
            "it has a /dev/shm of its own: sessions and keys are lost whenever it stops; the setting `folder` names \
             another place"
                .to_owned()
        }),
    ];
    notes.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        Unit {
            id: "web@a.service".to_owned(),
            program: "/bin/sh".into(),
            lockable_bytes: 8 << 20,
            ..Unit::default()
        }
    }

    fn plan(unit: &Unit, linked: &Linked) -> Result<Plan, String> {
        Plan::new(unit, linked, Path::new("/usr/lib/rejoin/librejoin.so"), Bytes(64 << 20), false)
    }

    #[test]
    fn two_files_name_the_library_the_cache_and_the_settings() {
        let plan = plan(&unit(), &Linked::Shared).expect("a plan");
        let [settings, drop_in] = plan.files.as_slice() else { panic!("{plan:?}") };
        assert_eq!(settings.path, Path::new("/etc/rejoin/web@a.cnf"));
        let cache = format!("cache = {}\n", cache_name("web@a"));
        let lines = ["path = /usr/lib/rejoin/librejoin.so\n", &cache, "capacity = 64MiB\n"];
        assert!(settings.text.ends_with(&lines.concat()), "{}", settings.text);
        let path = "/etc/systemd/system/web@a.service.d/zz-rejoin.conf";
        assert_eq!(drop_in.path, Path::new(path));
        let lines = "[Service]\nEnvironment=OPENSSL_CONF=/etc/rejoin/web@a.cnf\n";
        assert!(drop_in.text.ends_with(lines), "{}", drop_in.text);
        assert!(plan.notes.is_empty(), "{plan:?}");
    }

    #[test]
    fn a_service_that_never_was_root_may_lock_its_cache() {
        let unit = Unit { user: Some("web".to_owned()), removes_ipc: true, ..unit() };
        let plan = plan(&unit, &Linked::Shared).expect("a plan");
        assert!(plan.files[1].text.ends_with("LimitMEMLOCK=72M\n"), "{plan:?}");
        assert!(plan.notes[0].contains("RemoveIPC"), "{plan:?}");
    }

    #[test]
    fn no_cache_is_planned_that_cannot_be() {
        assert_eq!([1, 64 << 20].map(|bytes| mebibytes(Bytes(bytes))), [Ok(1), Ok(64)]);
        for (bytes, why) in [(0, "0 bytes cannot hold"), (u64::MAX, "too many bytes")] {
            let told = mebibytes(Bytes(bytes)).expect_err("no capacity");
            assert!(told.starts_with("--capacity: ") && told.contains(why), "{told}");
        }
    }

    #[test]
    fn units_have_caches_of_their_own() {
        assert_eq!(cache_name("nginx"), "nginx");
        assert_ne!(cache_name("web@1"), cache_name("web-1"));
        let [long, longer] = [100, 101].map(|letters| cache_name(&"x".repeat(letters)));
        assert!(long != longer && longer.parse::<rejoin_store::CacheName>().is_ok(), "{longer}");
    }

    #[test]
    fn what_the_operator_set_before_is_included() {
        let unit = Unit { openssl_conf: Some("/dev/null".into()), ..unit() };
        let plan = plan(&unit, &Linked::Shared).expect("a plan");
        assert!(plan.files[0].text.contains(".include /dev/null\n"), "{plan:?}");
    }

    #[test]
    fn where_rejoin_would_not_work_it_says_why() {
        let why = |unit: &Unit, linked| plan(unit, &linked).expect_err("a refusal");
        let told = why(&unit(), Linked::Other("libssl.so.1.1".to_owned()));
        assert!(told.contains("needs OpenSSL 3"), "{told}");
        assert!(why(&unit(), Linked::Static).contains("compiled in"));
        let dynamic = Unit { has_dynamic_user: true, ..unit() };
        assert!(why(&dynamic, Linked::Shared).contains("DynamicUser"));
        let dropping = Unit { drops_openssl_conf: true, ..unit() };
        assert!(why(&dropping, Linked::Shared).contains("UnsetEnvironment"));
    }
}
