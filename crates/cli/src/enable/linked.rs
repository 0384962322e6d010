//! The TLS library that a service's program uses.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::unit::Unit;

/// The TLS library of a program, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Linked {
    /// A shared libssl 3, to which Rejoin attaches.
    Shared,
    /// Another shared libssl, by the name of its file.
    Other(String),
    /// No library is shared: whatever the program uses is compiled in.
    Static,
    /// The program names none. It may load one later, as a module.
    Unknown,
}

/// The most bytes of a program that are read.
const LONGEST: u64 = 256 << 20;

/// Looks at what the service's process has loaded, and at what its program names. Nothing of the program runs, not even its
/// loader, which would run libraries that the program names (`DT_AUDIT`).
pub(super) fn of(unit: &Unit) -> Linked {
    let maps = unit.main_process.map(|id| Path::new("/proc").join(id.to_string()).join("maps"));
    let loaded = maps.and_then(|path| fs::read(path).ok()).map(|maps| in_list(&maps));
    match loaded {
        Some(found @ (Linked::Shared | Linked::Other(_))) => found,
        _ => named(&unit.program),
    }
}

fn named(program: &Path) -> Linked {
    let mut bytes = Vec::new();
    let read = File::open(program).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    if read.is_err() || !bytes.starts_with(b"\x7fELF") {
        return Linked::Unknown;
    }
    // The path of the loader, which a program without shared libraries does not name.
    let has_loader = bytes.windows(8).any(|window| window == b"/ld-linu" || window == b"/ld-musl");
    match in_list(&bytes) {
        Linked::Unknown if !has_loader => Linked::Static,
        found => found,
    }
}

/// Finds the names of libraries among other bytes.
fn in_list(bytes: &[u8]) -> Linked {
    const NAME: &[u8] = b"libssl.so.";
    let is_end = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"._-".contains(byte));
    let mut other = None;
    for at in 0..bytes.len().saturating_sub(NAME.len()) {
        if !bytes[at..].starts_with(NAME) {
            continue;
        }
        let name = bytes[at..].split(is_end).next().unwrap_or_default();
        match String::from_utf8_lossy(name) {
            name if name.starts_with("libssl.so.3") => return Linked::Shared,
            name => other = Some(name.into_owned()),
        }
    }
    other.map_or(Linked::Unknown, Linked::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_maps_and_in_programs() {
        let maps = b"a000-b000 r-xp 00000000 08:01 6                  /usr/lib/libssl.so.1.1\n";
        assert_eq!(in_list(maps), Linked::Other("libssl.so.1.1".to_owned()));
        assert_eq!(in_list(b"\0libc.so.6\0libssl.so.3\0"), Linked::Shared);
        assert_eq!(in_list(b"\0libc.so.6\0libssl.so"), Linked::Unknown);
    }

    #[test]
    fn a_program_that_shares_libssl_is_told_from_one_that_does_not() {
        let unit = |program: &str| Unit { program: program.into(), ..Unit::default() };
        assert_eq!(of(&unit("/usr/bin/openssl")), Linked::Shared);
        assert_eq!(of(&unit("/bin/sh")), Linked::Unknown);
        assert_eq!(of(&unit("/usr/bin/ldd")), Linked::Unknown, "a script");
    }
}
