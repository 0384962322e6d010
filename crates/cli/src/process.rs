//! Process hardening: no core dumps, no memory access by other processes, no new privileges, and a change of user.

use std::path::Path;

use anyhow::Context;
use nix::unistd::{User, getuid, initgroups, setgid, setuid};
use rustix::fs::{AtFlags, CWD, chownat};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, capabilities, set_no_new_privs};

/// Protects the secrets in memory: no core dump is written, and no process of the same user can read
/// the memory (`prctl(2)`, `PR_SET_DUMPABLE`). No program that it starts gets more privileges than it has itself
/// (`PR_SET_NO_NEW_PRIVS`). Must be called first.
pub(crate) fn harden() -> anyhow::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("cannot protect the process's memory")?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).context("cannot forbid core dumps")?;
    set_no_new_privs(true).context("cannot forbid new privileges")
}

/// Hardens the process, opens what it needs, and then switches to the user, if one is given: so what speaks to the
/// network has nothing of root's but what `open` returned.
pub(crate) fn confined<T>(
    user: Option<&str>,
    open: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    harden()?;
    let opened = open()?;
    user.map_or(Ok(()), become_user)?;
    Ok(opened)
}

/// Switches from root to a user for good. Must be called before threads start. It calls [`harden`]
/// again, because the switch undoes it. A process that is not root keeps its user.
pub(crate) fn become_user(name: &str) -> anyhow::Result<()> {
    let user = user(name)?;
    if !getuid().is_root() {
        let is_ours = getuid() == user.uid;
        anyhow::ensure!(
            is_ours,
            "only root can switch to {name}: start this as root, or without --user"
        );
        return Ok(());
    }
    let c_name = std::ffi::CString::new(name).context("no name of a user")?;
    initgroups(&c_name, user.gid).context("cannot take a user's groups")?;
    setgid(user.gid).context("cannot become a user's group")?;
    // This also drops every capability of a process that was root (capabilities(7)).
    setuid(user.uid).context("cannot become a user")?;
    harden()
}

/// Lets this process get SIGTERM when its parent ends, however that is (`prctl(2)`, `PR_SET_PDEATHSIG`). A change of
/// user undoes it.
pub(crate) fn end_with_parent() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot end with the parent")
}

/// Locks the process's memory, and what it will need, so that nothing of it is swapped (`mlockall(2)`). Root lifts the
/// limit for that. Under a limit nothing is locked, because memory that is needed later could not be had. `stays`: the
/// process keeps its capabilities, and a limit does not bind it if it may lock memory. Returns true if it is locked.
pub(crate) fn lock_memory(stays: bool) -> bool {
    let unlimited = Rlimit { current: None, maximum: None };
    // Only root may.
    let _ = setrlimit(Resource::Memlock, unlimited);
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    let may_lock = || {
        let own = capabilities(None);
        own.is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK))
    };
    // Pages are locked when they are used first.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    (is_unlimited || stays && may_lock()) && mlockall(flags).is_ok()
}

/// Returns true if the machine swaps.
pub(crate) fn may_be_swapped() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|table| table.lines().count() > 1)
}

/// Tells the service manager about this process (`sd_notify(3)`).
pub(crate) fn notify(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Ok(from) = std::os::unix::net::UnixDatagram::unbound()
    {
        // Without a listener, nothing waits for the message.
        let _ = from.send_to(state.as_bytes(), socket);
    }
}

/// Returns a user's number.
pub(crate) fn uid(name: &str) -> anyhow::Result<u32> {
    Ok(user(name)?.uid.as_raw())
}

/// Gives a socket to a user and its group, whose programs may then connect. Must be called before
/// [`become_user`].
pub(crate) fn hand_over(socket: &Path, name: &str) -> anyhow::Result<()> {
    let failed = |cause: Errno| {
        let remedy = match cause {
            Errno::PERM => format!(
                ": this takes CAP_CHOWN, which a unit may lack (CapabilityBoundingSet=): add it, or run all as {name} (User=) and \
                 without --user"
            ),
            _ => String::new(),
        };
        anyhow::anyhow!("cannot give {} to {name}: {cause}{remedy}", socket.display())
    };
    let User { uid, gid, .. } = user(name)?;
    let (uid, gid) = (Uid::from_raw(uid.as_raw()), Gid::from_raw(gid.as_raw()));
    let given = chownat(CWD, socket, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    given.map_err(failed)
}

fn user(name: &str) -> anyhow::Result<User> {
    let user = User::from_name(name).context("cannot look up users")?;
    user.with_context(|| format!("there is no user {name}: create it, or name another"))
}

#[cfg(test)]
mod tests {
    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn rule_15_hardening_hides_the_memory() {
        harden().expect("it may");
        assert_eq!(dumpable_behavior().expect("known"), DumpableBehavior::NotDumpable);
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert!(rustix::thread::no_new_privs().expect("known"));
    }

    #[test]
    fn an_unknown_user_is_an_error() {
        let error = become_user("no-such-user").expect_err("none");
        assert_eq!(error.to_string(), "there is no user no-such-user: create it, or name another");
    }
}
