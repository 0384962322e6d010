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

use rejoin_testkit::clients::cases::CASES;
use rejoin_testkit::clients::matrix;
use rejoin_testkit::clients::sharing::Shared;
use rejoin_testkit::clients::world::World;

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
    let case = CASES.iter().find(|case| case.words == ["dlsym"]).expect("a case");
    for service in &world.servers {
        let seen = world.see(case, service).expect("Python is installed");
        assert!(
            seen.is_same() && seen.went(case.way),
            "{} {:?}: {seen:?}",
            service.name,
            service.tls
        );
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
