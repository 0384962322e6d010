//! Programs that fork while another of their threads makes the first connection, or that close their descriptors while
//! they make one.

use std::net::TcpListener;
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

#[test]
fn a_program_that_closes_its_descriptors_keeps_what_it_opens_then() {
    let managed = Managed::start("closes");
    let Some(program) = compiled(&managed, "closes") else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    // It says nothing, so that no handshake ends.
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("bound").port().to_string();
    for how in 0..8 {
        let words = [4, 2, 1].map(|bit| if how & bit > 0 { "1" } else { "0" });
        let mut closes = Command::new(&program);
        closes.arg(&port).args(words);
        closes.env("LD_PRELOAD", library("librejoin_preload.so"));
        closes.env("REJOIN_MANAGER", managed.socket()).env("REJOIN_PATIENCE_MS", "500");
        let output = closes.output().expect("it runs");
        // It waits for an answer, and then nothing is missing.
        assert_eq!(text(&output.stdout), "2\n0 lost\n", "{words:?}: {}", text(&output.stderr));
    }
}
