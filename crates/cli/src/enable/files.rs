//! The files that `rejoin enable` writes and `rejoin disable` removes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::unit::Unit;
use crate::arguments::Misuse;
use crate::beside::Beside;

/// A file of Rejoin's for a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    /// The content, whose first line tells whose file it is.
    pub(super) text: String,
}

/// The folder of the settings.
pub(super) const SETTINGS: &str = "/etc/rejoin";
/// The folder of the drop-ins' folders.
pub(super) const UNITS: &str = "/etc/systemd/system";
/// The name of a drop-in, which comes after all others of a unit and so prevails.
pub(super) const DROP_IN: &str = "zz-rejoin.conf";
/// The second line of settings that load nothing any more.
const STUB: &str =
    "# The service has not been restarted since. Until then it may read this file again.";

/// Returns the path of a service's settings. `name` is without `.service`.
pub(super) fn settings(name: &str) -> PathBuf {
    Path::new(SETTINGS).join(format!("{name}.cnf"))
}

/// Returns the path of the unit's drop-in.
pub(super) fn drop_in(unit: &Unit) -> PathBuf {
    unit.drop_ins().join(DROP_IN)
}

/// Returns the line that tells whose a file is.
fn mark(name: &str) -> String {
    format!("# Written by `rejoin enable {name}`. `rejoin disable {name}` removes it.")
}

impl Written {
    pub(super) fn new(path: PathBuf, name: &str, text: &str) -> Self {
        Self { path, text: format!("{}\n{text}", mark(name)) }
    }

    /// Returns the file as `--dry-run` shows it.
    pub(super) fn shown(&self) -> String {
        let (state, text) = match fs::read_to_string(&self.path) {
            Ok(text) if is_ours(&self.path) && !is_stub(&self.path) => (" (kept as it is)", text),
            _ => ("", self.text.clone()),
        };
        format!(
            "{}{state}:\n    {}\n",
            self.path.display(),
            text.trim_end().replace('\n', "\n    ")
        )
    }

    /// Checks that nobody else's file has this name.
    ///
    /// # Errors
    /// One has.
    pub(super) fn check(&self) -> Result<(), Misuse> {
        let is_free = fs::symlink_metadata(&self.path).is_err() || is_ours(&self.path);
        let path = self.path.display();
        is_free.then_some(()).ok_or_else(|| {
            Misuse(format!("{path}: was not written by `rejoin enable`: move it away"))
        })
    }

    /// Writes the file, unless it is there: an operator may have changed its settings. Returns true if it was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<bool> {
        if is_ours(&self.path) && !is_stub(&self.path) {
            return Ok(false);
        }
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        let made = fs::create_dir_all(folder);
        let made = made.with_context(|| format!("{}: cannot be written", self.path.display()));
        made.and_then(|()| Beside::create(&self.path)?.write(&self.text)).map_err(as_root)?;
        Ok(true)
    }
}

/// Removes a file of ours, and the folder that was made for it if it is empty then. Returns false if there is none.
pub(super) fn remove(path: &Path) -> anyhow::Result<bool> {
    if !is_ours(path) {
        return Ok(false);
    }
    let removed = fs::remove_file(path);
    removed.with_context(|| format!("{}: cannot be removed", path.display())).map_err(as_root)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".service.d") || name == "rejoin" {
        // Not if other files are there.
        let _ = fs::remove_dir(folder);
    }
    Ok(true)
}

/// Replaces settings of ours by those that they include: a server that reads them again keeps the system's.
pub(super) fn disarm(settings: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(settings).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let include = text.lines().find(|line| line.starts_with(".include ")).unwrap_or_default();
    // The cache is removed with the file.
    let is_kept =
        |line: &&str| ["cache", "folder"].iter().any(|name| line.trim_start().starts_with(name));
    let kept: String = text.lines().filter(is_kept).map(|line| format!("# {line}\n")).collect();
    Beside::create(settings)?.write(&format!("{first}\n{STUB}\n{include}\n{kept}")).map_err(as_root)
}

/// Returns true if `rejoin enable` wrote this file.
pub(super) fn is_ours(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().is_some_and(|line| line.starts_with("# Written by `rejoin enable "))
}

fn is_stub(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.lines().nth(1) == Some(STUB))
}

fn as_root(error: anyhow::Error) -> anyhow::Error {
    let denied = |cause: &std::io::Error| cause.kind() == ErrorKind::PermissionDenied;
    let is_denied = error.chain().filter_map(|cause| cause.downcast_ref()).any(denied);
    match is_denied && !rustix::process::geteuid().is_root() {
        true => error.context("run this command as root"),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ours_are_replaced_or_removed() {
        let folder = std::env::temp_dir().join(format!("rejoin-enable-{}", std::process::id()));
        let path = folder.join("unit.service.d").join(DROP_IN);
        let file =
            Written::new(path.clone(), "web", ".include /etc/x.cnf\n[rejoin]\ncache = web\n");
        assert!(file.check().is_ok() && file.write().expect("written"));
        assert!(file.check().is_ok() && !file.write().expect("kept"));
        fs::write(&path, fs::read_to_string(&path).expect("a file") + "# mine\n").expect("changed");
        assert!(!file.write().expect("kept") && file.shown().contains("# mine"));
        disarm(&path).expect("a stub");
        let stub = fs::read_to_string(&path).expect("a stub");
        assert!(
            stub.ends_with("\n.include /etc/x.cnf\n# cache = web\n") && !stub.contains("[rejoin]"),
            "{stub}"
        );
        assert!(is_ours(&path) && file.write().expect("written anew"));
        assert!(remove(&path).expect("removed") && !path.exists());
        assert!(folder.join("unit.service.d").read_dir().is_err(), "the folder stays");
        // A folder that others made stays.
        let other = Written::new(folder.join("profile.d/rejoin.sh"), "clients", "x\n");
        assert!(other.write().expect("written") && remove(&other.path).expect("removed"));
        assert!(folder.join("profile.d").exists());
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "[Service]\n").expect("a file");
        assert!(file.check().is_err());
        assert!(!remove(&path).expect("left alone") && path.exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
