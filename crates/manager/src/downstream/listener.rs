//! The manager's listening socket.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

use crate::Error;

/// The system's manager.
pub const SYSTEM_SOCKET: &str = "/run/rejoin/manager.sock";

/// Returns the socket of the user's own manager if there is a runtime directory, otherwise the system's.
pub fn default_socket() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => Path::new(&folder).join("rejoin.sock"),
        _ => SYSTEM_SOCKET.into(),
    }
}

/// Returns the socket that the service manager opened for this process, if it did.
///
/// # Errors
/// The descriptor is not a listening Unix socket.
pub fn inherited() -> Result<Option<UnixListener>, Error> {
    let failed = |cause| Error::Process { what: "take over the service manager's socket", cause };
    let Some(listener) = ListenFd::from_env().take_unix_listener(0).map_err(failed)? else {
        return Ok(None);
    };
    if !rustix::net::sockopt::socket_acceptconn(&listener).unwrap_or_default() {
        return Err(failed(io::Error::other("descriptor 3 is not a listening Unix socket")));
    }
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Some(listener))
}

/// Creates a socket of this mode. Replaces a socket that a manager left behind, but not one that a manager listens
/// on. The file `….lock` next to it stays locked for as long as the second value lives.
///
/// # Errors
/// Another manager is listening, or the path is not a socket.
pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, File), Error> {
    let failed = |cause| Error::Listen { path: path.into(), cause };
    let taken = || Error::Taken { path: path.into() };
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = open_lock(Path::new(&lock_path)).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| taken())?;
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(Error::NoSocket { path: path.into() });
        }
        // A socket that systemd holds open, or of a different manager.
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(taken()),
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(_) => {}
    }
    // The socket has its mode from the start. To set that later by its path could open another file, which the owner of the folder
    // has put there.
    let listener = {
        let mask = rustix::process::umask(Mode::from_raw_mode(!mode & 0o777));
        let bound = UnixListener::bind(path);
        rustix::process::umask(mask);
        bound.map_err(failed)?
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((listener, lock))
}

/// Opens a file that no other user can open, and so lock. Never opens a file that another user put in its place.
fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = File::from(open(path, flags, Mode::from_raw_mode(0o600))?);
    let found = lock.metadata()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return Err(io::Error::other(format!("{} does not belong to this user", path.display())));
    }
    lock.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_a_file_of_ours_that_nobody_else_opens() {
        let folder = std::env::temp_dir().join(format!("lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, target) = (folder.join("lock"), folder.join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(open_lock(&path).is_err() && !target.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let mode = open_lock(&path).unwrap().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
