//! Programs that are not changed, with Rejoin and without: they say the same, end the same, and share
//! sessions.

mod cases;
mod document;
#[path = "../managed/mod.rs"]
mod managed;
mod matrix;
mod proxy;
mod security;
#[expect(dead_code, reason = "the tests of commands start servers in other ways, too")]
#[path = "../servers/mod.rs"]
mod servers;
mod sharing;
#[expect(dead_code, reason = "the checks ask more of it")]
mod site;
#[expect(dead_code, reason = "the tests of many programs ask more of them")]
#[path = "../programs/stacks.rs"]
mod stacks;
mod trouble;
mod world;

use sharing::Shared;
use world::World;

#[test]
fn the_document_says_what_programs_do() {
    let world = World::new("clients");
    let results = matrix::run(&world);
    let wrong: Vec<_> = results.iter().filter(|result| !result.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    document::check(&results);
}

#[test]
fn programs_share_one_full_handshake() {
    let world = World::new("sharing");
    for service in &world.servers {
        let shared = Shared::by(&world, service);
        assert!(shared.holds(), "{} {:?}: {shared:?}", service.name, service.tls);
    }
}
