//! The TLS library that a service's program uses.

use std::fs;
use std::process::{Command, Stdio};

use super::unit::Unit;

/// What is known of a program's TLS library.
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

/// Looks at what the service's process has loaded, and at what its program names.
pub(super) fn of(unit: &Unit) -> Linked {
    let loaded = unit.main_process.and_then(|id| fs::read(format!("/proc/{id}/maps")).ok());
    let loaded = loaded.map(|maps| in_list(&String::from_utf8_lossy(&maps)));
    match loaded {
        Some(found @ (Linked::Shared | Linked::Other(_))) => found,
        _ => named(unit),
    }
}

/// Asks the loader, which runs nothing of the program.
fn named(unit: &Unit) -> Linked {
    let mut ldd = Command::new("ldd");
    ldd.arg(&unit.program).env("LC_ALL", "C").stdin(Stdio::null());
    let Ok(told) = ldd.output() else { return Linked::Unknown };
    let text = String::from_utf8_lossy(&told.stdout);
    let is_script = fs::read(&unit.program).is_ok_and(|bytes| bytes.starts_with(b"#!"));
    let is_static = [&told.stderr, &told.stdout].iter().any(|told| {
        let told = String::from_utf8_lossy(told);
        told.contains("not a dynamic executable") || told.contains("statically linked")
    });
    match in_list(&text) {
        Linked::Unknown if is_static && !is_script => Linked::Static,
        found => found,
    }
}

fn in_list(list: &str) -> Linked {
    let names = list.split([' ', '/', '\t', '\n']).filter(|name| name.starts_with("libssl"));
    let mut names = names.filter(|name| name.contains(".so"));
    match names.clone().any(|name| name.starts_with("libssl.so.3")) {
        true => Linked::Shared,
        false => names.next().map_or(Linked::Unknown, |name| Linked::Other(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_both_lists() {
        let ldd = "\tlibssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007f0)\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n";
        assert_eq!(in_list(ldd), Linked::Shared);
        let maps = "a000-b000 r-xp 00000000 08:01 6                  /usr/lib/libssl.so.1.1\n";
        assert_eq!(in_list(maps), Linked::Other("libssl.so.1.1".to_owned()));
        assert_eq!(in_list("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n"), Linked::Unknown);
    }

    #[test]
    fn a_program_that_shares_libssl_is_told_from_one_that_does_not() {
        let unit = |program: &str| Unit { program: program.into(), ..Unit::default() };
        assert_eq!(of(&unit("/usr/bin/openssl")), Linked::Shared);
        assert_eq!(of(&unit("/bin/sh")), Linked::Unknown);
        assert_eq!(of(&unit("/usr/bin/ldd")), Linked::Unknown);
    }
}
