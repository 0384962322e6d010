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
/// The name of a drop-in.
pub(super) const DROP_IN: &str = "50-rejoin.conf";

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
        format!("{}:\n    {}\n", self.path.display(), self.text.trim_end().replace('\n', "\n    "))
    }

    /// Writes the file, unless it is there: an operator may have changed its settings. Returns what was done.
    ///
    /// # Errors
    /// Somebody else's file has this name, or it cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<String> {
        let path = self.path.display();
        if self.path.exists() {
            anyhow::ensure!(
                is_ours(&self.path),
                Misuse(format!("{path}: was not written by `rejoin enable`: move it away"))
            );
            let same = fs::read_to_string(&self.path).is_ok_and(|text| text == self.text);
            let kept = if same { "" } else { ", with the settings that it has" };
            return Ok(format!("kept     {path}{kept}"));
        }
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        let made = fs::create_dir_all(folder).with_context(|| format!("{path}: cannot be written"));
        made.and_then(|()| Beside::create(&self.path)?.write(&self.text)).map_err(as_root)?;
        Ok(format!("wrote    {path}"))
    }
}

/// Removes a file of ours, and its folder if it is empty then. Returns false if there is none.
pub(super) fn remove(path: &Path) -> anyhow::Result<bool> {
    if !is_ours(path) {
        return Ok(false);
    }
    let removed = fs::remove_file(path);
    removed.with_context(|| format!("{}: cannot be removed", path.display())).map_err(as_root)?;
    // Not if other files are there.
    let _ = path.parent().map(fs::remove_dir);
    Ok(true)
}

/// Returns true if `rejoin enable` wrote this file.
pub(super) fn is_ours(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().is_some_and(|line| line.starts_with("# Written by `rejoin enable "))
}

fn as_root(error: anyhow::Error) -> anyhow::Error {
    let denied = |cause: &std::io::Error| cause.kind() == ErrorKind::PermissionDenied;
    match error.chain().filter_map(|cause| cause.downcast_ref()).any(denied) {
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
        let path = folder.join("unit.d").join(DROP_IN);
        let file = Written::new(path.clone(), "web", "[Service]\n");
        assert!(file.write().expect("written").starts_with("wrote"));
        assert!(file.write().expect("kept").starts_with("kept"));
        fs::write(&path, fs::read_to_string(&path).expect("a file") + "# mine\n").expect("changed");
        assert!(file.write().expect("kept").ends_with("with the settings that it has"));
        assert!(
            remove(&path).expect("removed")
                && !path.exists()
                && folder.join("unit.d").read_dir().is_err()
        );
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "[Service]\n").expect("a file");
        assert!(file.write().is_err_and(|error| error.is::<Misuse>()));
        assert!(!remove(&path).expect("left alone") && path.exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
