//! OpenSSL configuration files that load librejoin.so.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The files that OpenSSL reads where OPENSSL_CONF names none: Debian's and Red Hat's.
const SYSTEM: [&str; 2] = ["/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"];

/// Returns the system's file.
pub(crate) fn system() -> PathBuf {
    let there = SYSTEM.into_iter().find(|file| Path::new(file).exists());
    there.unwrap_or(SYSTEM[0]).into()
}

/// Returns a file that includes another and loads the library, with these settings of Rejoin's, a line each.
///
/// # Errors
/// A path that no such file can name.
pub(crate) fn loading(library: &Path, before: &Path, settings: &[&str]) -> anyhow::Result<String> {
    let theirs = fs::read_to_string(before).unwrap_or_default();
    let include = if before.exists() { before } else { Path::new("/dev/null") };
    let section = modules_section(&theirs).unwrap_or("openssl_init");
    let (include, library) = (escaped(include)?, escaped(library)?);
    let mut text = format!(
        "openssl_conf = {section}\n.include {include}\n[{section}]\nrejoin = rejoin\n[rejoin]\npath = {library}\n"
    );
    settings.iter().for_each(|setting| {
        let _ = writeln!(text, "{setting}");
    });
    Ok(text)
}

/// Returns the file that one of these files includes.
pub(crate) fn included(loading: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(loading).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix(".include "))?;
    Some(unescaped(path).into())
}

/// Returns a path as a configuration spells it: OpenSSL takes these characters for quotes, variables, comments and escapes,
/// unless a backslash precedes them (config(5)).
fn escaped(path: &Path) -> anyhow::Result<String> {
    let fits = |text: &&str| !text.contains(char::is_control) && text.trim() == *text;
    let text = path.to_str().filter(fits).with_context(|| {
        let why = "it has a control character, a space at its end or bytes that are not UTF-8";
        format!("{}: openssl.cnf cannot name it, because {why}: move it", path.display())
    })?;
    let escape = |letter: char| "\\\"'`$#".contains(letter).then_some('\\');
    Ok(text.chars().flat_map(|letter| escape(letter).into_iter().chain([letter])).collect())
}

fn unescaped(text: &str) -> String {
    let mut letters = text.chars();
    std::iter::from_fn(|| match letters.next()? {
        '\\' => letters.next(),
        letter => Some(letter),
    })
    .collect()
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
    use super::*;

    #[test]
    fn the_modules_section_is_found() {
        let text =
            "# x\nHOME = .\n openssl_conf = default_conf # why\n[other]\nopenssl_conf = no\n";
        assert_eq!(modules_section(text), Some("default_conf"));
        assert_eq!(modules_section("[a]\nopenssl_conf = no\n"), None);
    }

    #[test]
    fn a_path_is_spelt_as_openssl_reads_it() {
        let odd = "/a b/$c/#d/\"e\"/'f'/`g`/\\h;i";
        let spelt = escaped(Path::new(odd)).expect("it fits");
        assert_eq!(spelt, "/a b/\\$c/\\#d/\\\"e\\\"/\\'f\\'/\\`g\\`/\\\\h;i");
        assert_eq!(unescaped(&spelt), odd);
        assert!(["/a\nb", "/a "].iter().all(|path| escaped(Path::new(path)).is_err()));
    }
}
