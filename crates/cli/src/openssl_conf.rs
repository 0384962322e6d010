//! OpenSSL configuration files that load librejoin.so.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that OpenSSL reads where OPENSSL_CONF names none: Debian's and Red Hat's.
const SYSTEM: [&str; 2] = ["/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"];

/// Returns the system's file.
pub(crate) fn system() -> PathBuf {
    let there = SYSTEM.into_iter().find(|file| Path::new(file).exists());
    there.unwrap_or(SYSTEM[0]).into()
}

/// Returns a file that includes another and loads the library, with these settings of Rejoin's, a line each.
pub(crate) fn loading(library: &Path, before: &Path, settings: &[&str]) -> String {
    let theirs = fs::read_to_string(before).unwrap_or_default();
    let include = if before.exists() { before } else { Path::new("/dev/null") };
    let section = modules_section(&theirs).unwrap_or("openssl_init");
    let mut text = format!(
        "openssl_conf = {section}\n.include {}\n[{section}]\nrejoin = rejoin\n[rejoin]\npath = {}\n",
        include.display(),
        library.display()
    );
    settings.iter().for_each(|setting| {
        let _ = writeln!(text, "{setting}");
    });
    text
}

/// Returns the section of the modules, as named before the first section of the configuration.
fn modules_section(configuration: &str) -> Option<&str> {
    let lines = configuration.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once('=')).find_map(|(name, value)| {
        (name.trim() == "openssl_conf").then(|| value.split('#').next().unwrap_or_default().trim())
    })
}

#[cfg(test)]
mod tests {
    use super::modules_section;

    #[test]
    fn the_modules_section_is_found() {
        let text =
            "# x\nHOME = .\n openssl_conf = default_conf # why\n[other]\nopenssl_conf = no\n";
        assert_eq!(modules_section(text), Some("default_conf"));
        assert_eq!(modules_section("[a]\nopenssl_conf = no\n"), None);
    }
}
