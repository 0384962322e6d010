//! The users whose managers a program believes.
//!
//! A manager vouches for the server, and sees all data in clear. So a program asks the kernel which user listens at the
//! socket (`SO_PEERCRED`), before it says anything: its own user, root, or the user whom root names.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

/// The file in which root names the user of the system's manager: `user = "NAME"`, or the user's number.
pub const CLIENT_SETTINGS: &str = "/etc/rejoin/client.toml";

const ROOT: u32 = 0;
/// The user that all have who are not in this process's namespace, unless root changed `kernel.overflowuid`.
const UNMAPPED: u32 = 65_534;
/// The permissions of a file or folder to which others may write.
const OTHERS_WRITE: u32 = 0o022;
/// The permission of a folder in which each user removes only their own files.
const STICKY: u32 = 0o1000;

/// Checks the user who listens at a connected socket, and the folder of its path.
///
/// # Errors
/// The reason why this program does not believe the manager.
pub(crate) fn check(socket: &OwnedFd, path: &Path) -> Result<(), String> {
    let peer = getsockopt(socket, PeerCredentials).map_err(|error| error.to_string())?.uid();
    let own = geteuid().as_raw();
    let is_somebody = peer != UNMAPPED;
    if peer != ROOT && !(peer == own && is_somebody) {
        let named = named_user(Path::new(CLIENT_SETTINGS), Path::new("/etc/passwd"))?;
        if named != Some(peer) || !is_somebody {
            return Err(format!("user {peer} listens there, and not this user or root"));
        }
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let found = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let owners = [ROOT, own, peer];
    if owners.contains(&found.uid())
        && (found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0)
    {
        return Ok(());
    }
    Err(format!("other users may write to {}", folder.display()))
}

/// Returns the user that the settings name, or `None` if there are none.
fn named_user(settings: &Path, users: &Path) -> Result<Option<u32>, String> {
    let complain = |why: &str| Err(format!("{}: {why}", settings.display()));
    let found = match fs::metadata(settings) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return complain(&error.to_string()),
        Ok(found) => found,
    };
    if found.uid() != ROOT || found.mode() & OTHERS_WRITE != 0 {
        return complain("only root may own it and write to it");
    }
    let text = fs::read_to_string(settings).map_err(|error| error.to_string())?;
    let Some(name) = user_of(&text) else { return complain("write user = \"NAME\"") };
    let number = name.parse().ok().or_else(|| number_of(name, &fs::read_to_string(users).ok()?));
    match number {
        Some(number) => Ok(Some(number)),
        None => complain(&format!("there is no user {name} in {}", users.display())),
    }
}

/// Reads the one setting of the file.
fn user_of(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let (name, value) = lines.find(|line| !line.is_empty())?.split_once('=')?;
    let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
    (name.trim() == "user" && lines.all(str::is_empty)).then_some(value)
}

/// Returns a user's number, by passwd(5). (The C library would load modules into the program.)
fn number_of(name: &str, users: &str) -> Option<u32> {
    let fields = users.lines().map(|line| line.split(':'));
    let mut numbers = fields.filter_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    });
    numbers.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_have_one_line() {
        for (text, user) in [
            ("user = \"rejoin\"\n", Some("rejoin")),
            ("# whom to believe\n\nuser=\"998\" # a number\n", Some("998")),
            ("user = rejoin\n", None),
            ("group = \"rejoin\"\n", None),
            ("user = \"rejoin\"\nuser = \"other\"\n", None),
            ("", None),
        ] {
            assert_eq!(user_of(text), user, "{text:?}");
        }
    }

    #[test]
    fn a_user_has_a_number() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nrejoiner:x:7:7::/:\nrejoin:x:998:997::/:\n:x\n";
        let numbers = ["rejoin", "root", "join", ""].map(|name| number_of(name, users));
        assert_eq!(numbers, [Some(998), Some(0), None, None]);
    }
}
