//! What the process may be: no core, no reading of its memory by others, nobody's rights but its
//! user's.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::unistd::{User, getuid, initgroups, setgid, setuid};
use rustix::fs::{AtFlags, CWD, chownat};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::process::{Gid, Uid};

use crate::Error;

/// Its memory holds secrets: no core dump is written of it, and no process of the same user reads
/// it (`prctl(2)`, `PR_SET_DUMPABLE`). To be called first, and again after [`become_user`].
///
/// # Errors
/// The system does not allow it.
pub fn harden() -> Result<(), Error> {
    let failed =
        |what| move |error: rustix::io::Errno| Error::Process { what, cause: error.into() };
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("hide its memory"))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("forbid core dumps"))
}

/// Has a socket be a user's and its group's, whose programs may then ask: before [`become_user`].
///
/// # Errors
/// No such user, or the system does not allow it.
pub fn hand_over(socket: &Path, name: &str) -> Result<(), Error> {
    let failed = |cause| Error::Listen { path: socket.into(), cause };
    let User { uid, gid, .. } = user(name)?;
    let (uid, gid) = (Uid::from_raw(uid.as_raw()), Gid::from_raw(gid.as_raw()));
    let given = chownat(CWD, socket, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    given.map_err(|error| failed(error.into()))?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o660)).map_err(failed)
}

/// Gives up root's rights for a user's, before there are threads. Who is not root stays who he is.
///
/// # Errors
/// No such user, or the system does not allow it.
pub fn become_user(name: &str) -> Result<(), Error> {
    let failed = |what| move |error: nix::Error| Error::Process { what, cause: error.into() };
    let user = user(name)?;
    if !getuid().is_root() {
        let is_other = getuid() != user.uid;
        let cause = || io::Error::from(io::ErrorKind::PermissionDenied);
        let what = "become another user without being root";
        return if is_other { Err(Error::Process { what, cause: cause() }) } else { Ok(()) };
    }
    let no_zero = || Error::NoUser { name: name.to_owned() };
    let c_name = std::ffi::CString::new(name).map_err(|_| no_zero())?;
    initgroups(&c_name, user.gid).map_err(failed("take a user's groups"))?;
    setgid(user.gid).map_err(failed("become a user's group"))?;
    setuid(user.uid).map_err(failed("become a user"))?;
    harden()
}

fn user(name: &str) -> Result<User, Error> {
    let user = User::from_name(name);
    let user = user.map_err(|cause| Error::Process { what: "look up users", cause: cause.into() });
    user?.ok_or_else(|| Error::NoUser { name: name.to_owned() })
}
