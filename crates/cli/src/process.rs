//! What the process may be: no core, no reading of its memory by others, nobody's rights but its
//! user's.

use std::path::Path;

use anyhow::Context;
use nix::unistd::{User, getuid, initgroups, setgid, setuid};
use rustix::fs::{AtFlags, CWD, chownat};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, set_dumpable_behavior, setrlimit,
};

/// Its memory holds secrets: no core dump is written of it, and no process of the same user reads
/// it (`prctl(2)`, `PR_SET_DUMPABLE`). To be called first.
pub(crate) fn harden() -> anyhow::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot hide its memory")?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).context("cannot forbid core dumps")
}

/// Gives up root's rights for a user's, for good, before there are threads; and [`harden`]s anew,
/// for that is lost on the way. Who is not root stays who he is.
pub(crate) fn become_user(name: &str) -> anyhow::Result<()> {
    let user = user(name)?;
    if !getuid().is_root() {
        let is_ours = getuid() == user.uid;
        anyhow::ensure!(is_ours, "only root becomes {name}: start it as root, or without --user");
        return Ok(());
    }
    let c_name = std::ffi::CString::new(name).context("no name of a user")?;
    initgroups(&c_name, user.gid).context("cannot take a user's groups")?;
    setgid(user.gid).context("cannot become a user's group")?;
    // Of a process that was root it takes every capability, too (capabilities(7)).
    setuid(user.uid).context("cannot become a user")?;
    harden()
}

/// Has a socket be a user's and its group's, whose programs may then ask: before [`become_user`].
pub(crate) fn hand_over(socket: &Path, name: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot give {} to {name}", socket.display());
    let User { uid, gid, .. } = user(name)?;
    let (uid, gid) = (Uid::from_raw(uid.as_raw()), Gid::from_raw(gid.as_raw()));
    let given = chownat(CWD, socket, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    given.with_context(failed)
}

fn user(name: &str) -> anyhow::Result<User> {
    let user = User::from_name(name).context("cannot look up users")?;
    user.with_context(|| format!("there is no user {name}: make one, or name another"))
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn rule_15_hardening_hides_the_memory() {
        harden().expect("it may");
        assert_eq!(dumpable_behavior().expect("known"), DumpableBehavior::NotDumpable);
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
    }

    #[test]
    fn who_is_nobody_is_told_so() {
        let error = become_user("no-such-user").expect_err("none");
        assert_eq!(error.to_string(), "there is no user no-such-user: make one, or name another");
    }
}
