//! Programs that fork while another of their threads makes the first connection, or in the middle of a handshake, or that
//! close their descriptors while they make a connection.

use std::net::TcpListener;
use std::process::Command;

use rejoin_testkit::clients::with_rejoin;
use rejoin_testkit::clients::world::{Service, World, compiled};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Signal;
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

/// The patience of these programs, of which some wait longer than that.
const PATIENCE_MS: u64 = 500;

/// Runs a program that forks when its ClientHello is sent, and asserts that its connection to each server works. Returns
/// what Rejoin tells.
fn works(world: &World, servers: &[&Service], how: &str) -> Option<String> {
    let program = compiled(&world.managed, "workers")?;
    let mut all = String::new();
    for service in servers {
        let mut workers = Command::new(&program);
        workers.args([&service.port.to_string(), &world.managed.file("ca.pem"), how]);
        with_rejoin(&mut workers, &world.managed.socket(), PATIENCE_MS);
        let output = workers.output().expect("it runs");
        let told = text(&output.stderr);
        let server = (service.name, service.tls);
        assert_eq!(text(&output.stdout), "works\n", "{how}, {server:?}: {told}");
        all.push_str(&told);
    }
    Some(all)
}

#[test]
fn a_child_leaves_its_parents_connection_alone() {
    let world = World::new("workers");
    let servers: Vec<_> = world.servers.iter().collect();
    for how in ["waits", "frees"] {
        let Some(told) = works(&world, &servers, how) else {
            return eprintln!("skipped: there is no C compiler");
        };
        let through = told.matches(": through the manager: ").count();
        assert_eq!(through, servers.len(), "{how}: {told}");
    }
}

#[test]
fn a_child_may_go_on_with_the_connection() {
    let world = World::new("daemons");
    // OpenSSL's own serves one connection after the other, each of which a manager that hangs keeps open.
    let several = |service: &&Service| service.name != "OpenSSL";
    let servers: Vec<_> = world.servers.iter().filter(several).collect();
    let Some(told) = works(&world, &servers, "goes-on") else {
        return eprintln!("skipped: there is no C compiler");
    };
    assert_eq!(told.matches(": through the manager: ").count(), servers.len(), "{told}");
    works(&world, &servers, "is-waited-for").expect("it was compiled before");
    let manager = world.managed.child.as_ref().expect("it runs");
    manager.signal(Signal::STOP);
    let told = works(&world, &servers, "goes-on").expect("it was compiled before");
    assert_eq!(told.matches("no manager answers").count(), servers.len(), "{told}");
    // The parent gives its own connection up, and a child that waits leaves it alone.
    let told = works(&world, &servers, "waits").expect("it was compiled before");
    assert_eq!(told.matches("no manager answers").count(), servers.len(), "{told}");
    manager.signal(Signal::CONT);
}
