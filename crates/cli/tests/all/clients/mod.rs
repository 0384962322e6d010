//! Programs that are not changed, with Rejoin and without: they say the same, end the same, and share
//! sessions.

mod apt;
mod differential;
mod document;
mod endings;
mod forks;
mod impostor;
mod jails;
mod life;
mod many;
mod once;
pub(crate) mod pins;
mod policy;
mod quiet;
mod refusals;
mod security;
mod staples;
mod trouble;

use std::process::Command;

use rejoin_testkit::clients::cases::CASES;
use rejoin_testkit::clients::matrix;
use rejoin_testkit::clients::sharing::Shared;
use rejoin_testkit::clients::with_rejoin;
use rejoin_testkit::clients::world::{World, compiled};

use crate::program::text;

#[test]
#[ignore = "slow: make test-all"]
fn the_document_says_what_programs_do() {
    let world = World::new("clients");
    let results = matrix::run(&world);
    let wrong: Vec<_> = results.iter().filter(|result| !result.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    document::check(&results);
}

#[test]
fn calls_past_rejoin_make_a_direct_connection() {
    let world = World::new("past");
    for case in CASES.iter().filter(|case| case.words.first() == Some(&"dlsym")) {
        for service in &world.servers {
            let seen = world.see(case, service).expect("Python is installed");
            let what = format!("{}, {} {:?}", case.what, service.name, service.tls);
            assert!(seen.is_same() && seen.went(case.way), "{what}: {seen:?}");
        }
    }
}

#[test]
fn a_bio_finishes_its_handshake_by_a_write() {
    let world = World::new("bio");
    let Some(verify) = compiled(&world.managed, "verify") else {
        return eprintln!("skipped: needs cc and libssl-dev");
    };
    for service in &world.servers {
        for authority in ["ca.pem", "other.pem"] {
            let mut command = Command::new(&verify);
            command.args(["localhost", &service.port.to_string()]);
            command.args([&world.managed.file(authority), "bio"]);
            let plain = command.output().expect("it runs");
            with_rejoin(&mut command, &world.managed.socket(), 20_000);
            let with = command.output().expect("it runs");
            let [plain, with] = [plain, with].map(|run| (run.status.code(), text(&run.stdout)));
            assert_eq!(with, plain, "{} {:?} {authority}", service.name, service.tls);
        }
    }
}

#[test]
fn programs_share_one_full_handshake() {
    let world = World::new("sharing");
    for service in &world.servers {
        let shared = Shared::by(&world, service);
        assert!(shared.holds(), "{} {:?}: {shared:?}", service.name, service.tls);
    }
}
