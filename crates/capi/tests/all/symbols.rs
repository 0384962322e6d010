//! The symbols that the libraries export, which are those that they may interpose.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Returns the names in a library's dynamic symbol table that it defines.
fn exported(library: &str) -> BTreeSet<String> {
    let library = rejoin_testkit::shipped::library(library);
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let listed = String::from_utf8(listed.expect("nm is installed").stdout).expect("text");
    listed.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect()
}

#[test]
fn the_library_has_its_two_interfaces_and_nothing_else() {
    let header = include_str!("../../include/rejoin.h");
    let functions = header.lines().filter(|line| line.starts_with(char::is_alphabetic));
    let functions = functions.filter(|line| line.contains('('));
    let names = functions.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let declared: BTreeSet<_> = names
        .chain(["OPENSSL_init", "OPENSSL_finish", "rejoin_client_hooks"])
        .map(str::to_owned)
        .collect();
    assert_eq!(exported("librejoin.so"), declared);
    assert!(declared.contains("rejoin_attach") && declared.contains("rejoin_version"));
}

#[test]
fn the_preload_library_exports_the_table_and_nothing_else() {
    let functions = rejoin_abi::TABLE.iter().flat_map(|library| library.functions);
    let names: BTreeSet<_> = functions.map(|function| function.name.to_owned()).collect();
    assert_eq!(names.len(), 101);
    assert_eq!(exported("librejoin_preload.so"), names);
}

/// The libraries need only what every program that loads them has, and not what panics need, which would be loaded into
/// each program of a machine.
#[test]
fn the_libraries_bring_no_others_along() {
    let c = ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    for (library, tls) in [
        ("librejoin_preload.so", &[][..]),
        ("librejoin_gnutls.so", &[]),
        ("librejoin.so", &["libssl.so.3", "libcrypto.so.3"]),
    ] {
        let listed = Command::new("readelf")
            .arg("-d")
            .arg(rejoin_testkit::shipped::library(library))
            .output();
        let listed = String::from_utf8(listed.expect("readelf is installed").stdout).expect("text");
        let needed = listed.lines().filter(|line| line.contains("(NEEDED)"));
        let needed: Vec<_> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
        assert!(needed.contains(&"libc.so.6"), "{library}: {listed}");
        let others = needed.iter().filter(|name| !c.contains(name) && !tls.contains(name));
        assert_eq!(others.count(), 0, "{library}: {needed:?}");
    }
}

/// The files of a release name sources by paths that are the same wherever they are built.
#[test]
#[ignore = "slow: needs make release"]
fn a_release_names_no_folder_of_the_machine_that_built_it() {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize();
    let here = here.expect("the repository").to_str().expect("UTF-8").to_owned();
    let home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|home| home + "/.cargo"));
    let told = [here, home.expect("a home"), "/rustup/toolchains/".to_owned()];
    let dist = rejoin_testkit::shipped::target().join("dist");
    if !dist.exists() {
        eprintln!("without make release: nothing is tested");
        return;
    }
    for name in ["librejoin.so", "librejoin_gnutls.so", "librejoin_preload.so", "rejoin"] {
        let path = dist.join(name);
        let bytes = fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let places = |part: &str| {
            let windows = bytes.windows(part.len()).enumerate();
            windows.filter(|(_, bytes)| *bytes == part.as_bytes()).map(|(at, _)| at).collect()
        };
        for told in &told {
            let places: Vec<usize> = places(told);
            assert!(places.is_empty(), "{name} names {told} at {places:?}");
        }
        let crates: Vec<usize> = places("/registry/src/");
        assert!(crates.iter().all(|at| bytes[..*at].ends_with(b"/cargo")), "{name}: {crates:?}");
    }
}
