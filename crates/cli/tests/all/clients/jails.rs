//! A program that changes its root before its first connection, as servers and their helpers do that give up root.

use std::fs;
use std::path::Path;
use std::process::Command;

use rejoin_testkit::clients::world::{World, compiled};
use rejoin_testkit::shipped::library;

use crate::program::text;

/// A library of the jail's owner that has the name of ours.
const THEIRS: &str = "\
#include <unistd.h>
__attribute__((constructor)) static void runs(void) { write(1, \"theirs\\n\", 7); }
";

#[test]
fn nothing_is_loaded_from_another_root() {
    let world = World::new("jails");
    let Some(program) = compiled(&world.managed, "jailed") else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no root is changed");
        return;
    }
    let (jail, source) = (world.managed.file("jail"), world.managed.file("theirs.c"));
    let ours = library("librejoin.so");
    let theirs = Path::new(&jail).join(ours.strip_prefix("/").expect("a whole path"));
    fs::create_dir_all(theirs.parent().expect("in a folder")).expect("a folder");
    fs::write(&source, THEIRS).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&theirs).arg(&source);
    assert!(cc.status().expect("it is there").success());
    let [plain, with] = [false, true].map(|is_with| {
        let mut jailed = Command::new(&program);
        jailed.args([&world.servers[0].port.to_string(), &world.managed.file("ca.pem"), &jail]);
        if is_with {
            world.with_rejoin(&mut jailed);
        }
        let output = jailed.output().expect("it runs");
        (text(&output.stdout), text(&output.stderr))
    });
    assert_eq!(plain.0, "connected: 1\n");
    assert_eq!(with.0, plain.0, "{}", with.1);
    assert!(with.1.contains("the process has changed its root"), "{}", with.1);
}
