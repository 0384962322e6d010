//! Programs that fork while another of their threads makes the first connection.

use std::process::Command;

use rejoin_testkit::clients::world::compiled;
use rejoin_testkit::manager::Managed;
use rejoin_testkit::shipped::library;

use crate::program::text;

#[test]
fn no_child_hangs_that_was_forked_during_the_first_connection() {
    let managed = Managed::start("forks");
    let Some(program) = compiled(&managed, "forks") else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    for round in 0..10 {
        let mut forks = Command::new(&program);
        forks.env("LD_PRELOAD", library("librejoin_preload.so"));
        forks.env("REJOIN_MANAGER", managed.socket());
        let output = forks.output().expect("it runs");
        assert_eq!(text(&output.stdout), "0\n", "round {round}: {}", text(&output.stderr));
    }
}
