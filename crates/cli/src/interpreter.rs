//! The linker that a program names (`PT_INTERP` of elf(5)): it tells whose C library the program has.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Returns true for a program whose C library is musl, as far as its file shows. A script shows nothing.
pub(crate) fn is_musl(program: &OsStr) -> bool {
    let named = found(program).and_then(|path| named_in(&path));
    named.is_some_and(|path| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl-"))
    })
}

/// Returns the file that execvp(3) runs.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Returns the linker that a file names: of 64 bits, in this machine's order.
fn named_in(path: &Path) -> Option<PathBuf> {
    /// The bytes of the header, and those of an entry of the table of segments.
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    const MOST_ENTRIES: u16 = 64;
    const LONGEST_PATH: u64 = 4_096;
    const INTERPRETER: u32 = 3;
    // A pipe would make this wait.
    let file = path.is_file().then(|| File::open(path).ok()).flatten()?;
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (start, count) = (u64_at(&header, 32)?, u16_at(&header, 56)?);
    for number in 0..count.min(MOST_ENTRIES) {
        let mut entry = [0; ENTRY];
        let at = start.checked_add(u64::from(number) * ENTRY as u64)?;
        file.read_exact_at(&mut entry, at).ok()?;
        if entry.first_chunk().map(|kind| u32::from_ne_bytes(*kind)) == Some(INTERPRETER) {
            let length = u64_at(&entry, 32)?.min(LONGEST_PATH);
            let mut name = vec![0; length as usize];
            file.read_exact_at(&mut name, u64_at(&entry, 8)?).ok()?;
            let name = name.split(|byte| *byte == 0).next()?;
            return Some(OsStr::from_bytes(name).into());
        }
    }
    None
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_ne_bytes(*number))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|number| u16::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_linker() {
        let own = std::env::current_exe().expect("the program's path");
        let linker = named_in(&own).expect("it is linked with a C library");
        assert!(linker.is_absolute() && !is_musl(own.as_os_str()), "{}", linker.display());
        // The same program, as if it were linked with musl.
        let mut program = std::fs::read(&own).expect("a file");
        let name = linker.as_os_str().as_bytes();
        let at = program.windows(name.len()).position(|bytes| bytes == name).expect("it is there");
        let other = format!("{:\0<1$}", "/lib/ld-musl-x.so", name.len());
        program[at..at + name.len()].copy_from_slice(&other.as_bytes()[..name.len()]);
        let path = std::env::temp_dir().join(format!("rejoin-musl-{}", std::process::id()));
        std::fs::write(&path, program).expect("a file");
        let is_one = is_musl(path.as_os_str());
        std::fs::remove_file(&path).expect("it was written");
        assert!(is_one);
        assert!(!is_musl(OsStr::new("/etc/passwd")) && !is_musl(OsStr::new("no-such-program")));
        assert_eq!(named_in(Path::new("/etc")), None);
    }
}
