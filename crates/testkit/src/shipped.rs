//! The libraries that are loaded into other programs, as they ship, and the `rejoin` program.
//!
//! The libraries are those of the release build, stripped as packages have them: debug builds call functions where
//! release builds jump to them, and hide faults by it. `rejoin` is the one that was built with the running program: a
//! test's in `target/debug`, a check's in `target/release`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::copy_program;
use std::time::SystemTime;

/// The three libraries, which lie beside each other.
const LIBRARIES: [&str; 3] = ["librejoin.so", "librejoin_gnutls.so", "librejoin_preload.so"];
const REMEDY: &str = "run make test, or: cargo build --release --locked -p rejoin-capi -p rejoin-gnutls -p rejoin-preload";

/// The path of the `rejoin` program.
pub fn rejoin() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = profile().join("rejoin");
        assert!(
            program.exists(),
            "{}: build it first, by cargo build -p rejoin-cli",
            program.display()
        );
        program
    })
}

/// The path of an example, which `cargo test` builds unless it is asked for some targets alone.
///
/// # Panics
///
/// If it was not built.
pub fn example(name: &str) -> PathBuf {
    let program = profile().join("examples").join(name);
    let path = program.display();
    assert!(program.exists(), "{path}: build it first, by cargo build --example {name}");
    program
}

/// The path of a library as it ships, which lies beside the others.
///
/// # Panics
///
/// If it was not built for release, or a source is newer.
pub fn library(name: &str) -> PathBuf {
    assert!(LIBRARIES.contains(&name), "{name} is not one of {LIBRARIES:?}");
    folder().join(name)
}

/// The path of a library of the release build with its symbols, for tests that read them.
pub fn library_with_symbols(name: &str) -> PathBuf {
    built(name)
}

/// The path of a `rejoin` that lies beside the libraries, as where both are installed.
pub fn rejoin_beside_libraries() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let path = folder().join("rejoin");
        replace(&path, |part| {
            copy_program(rejoin(), part);
            true
        });
        path
    })
}

/// The folder of all builds: `target`, unless Cargo was told otherwise.
pub fn target() -> PathBuf {
    profile().parent().expect("a profile's folder is in another").to_owned()
}

/// The folder of this program's build.
fn profile() -> PathBuf {
    let program = std::env::current_exe().expect("the program's path");
    let folder = program.parent().expect("a program is in a folder");
    let is_test = folder.file_name().is_some_and(|name| name == "deps");
    if is_test { folder.parent().expect("deps is in a folder") } else { folder }.to_owned()
}

/// The folder of the stripped libraries, made once by each program that runs.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = target().join("shipped");
        fs::create_dir_all(&folder).expect("a folder");
        for name in LIBRARIES {
            let (built, copy) = (built(name), folder.join(name));
            if modified(&copy).is_none_or(|copied| modified(&built) >= Some(copied)) {
                replace(&copy, |part| strip(&built, part));
            }
        }
        // The name by which programs that were linked with it ask for it.
        replace(&folder.join("librejoin.so.0"), |part| symlink("librejoin.so", part).is_ok());
        folder
    })
}

fn strip(library: &Path, into: &Path) -> bool {
    let mut strip = Command::new("strip");
    strip.arg("--strip-unneeded").arg("-o").arg(into).arg(library);
    strip.status().is_ok_and(|status| status.success())
}

/// Puts a new file in the place of another, which programs may have open.
fn replace(path: &Path, make: impl FnOnce(&Path) -> bool) {
    let part = path.with_extension(format!("{}.part", std::process::id()));
    assert!(make(&part), "{}: cannot be made", part.display());
    fs::rename(&part, path).expect("a file beside it");
}

/// A library of the release build, newer than its sources.
fn built(name: &str) -> PathBuf {
    let path = target().join("release").join(name);
    let Some(built) = modified(&path) else { panic!("{}: not built; {REMEDY}", path.display()) };
    // Cargo lists the sources beside it, in make's syntax.
    let listed = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let sources = listed.split_once(": ").map_or("", |(_, sources)| sources).split_whitespace();
    let newer = sources.map(Path::new).find(|source| modified(source) > Some(built));
    assert!(newer.is_none(), "{}: older than {newer:?}; {REMEDY}", path.display());
    path
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}
