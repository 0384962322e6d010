//! What the libraries define for others, which is what they may get between.

use std::collections::BTreeSet;
use std::process::Command;

/// The names in a library's dynamic symbol table that are its own.
fn exported(library: &str) -> BTreeSet<String> {
    let library = crate::site::library(library);
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
    let declared: BTreeSet<_> =
        names.chain(["OPENSSL_init", "OPENSSL_finish"]).map(str::to_owned).collect();
    assert_eq!(exported("librejoin.so"), declared);
    assert!(declared.contains("rejoin_attach") && declared.contains("rejoin_version"));
}

#[test]
fn the_preload_library_has_what_it_takes_the_place_of() {
    assert_eq!(exported("librejoin_preload.so"), BTreeSet::from(["SSL_new".to_owned()]));
}
