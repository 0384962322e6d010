//! Many programs and one manager: what they share, and what nobody but the manager holds.

mod hidden;
#[path = "../managed/mod.rs"]
mod managed;
mod memory;
mod once;
#[path = "../../../manager/tests/manager/means/rogue.rs"]
mod rogue;
mod secrets;
#[expect(dead_code, reason = "the tests of commands start servers in other ways, too")]
#[path = "../servers/mod.rs"]
mod servers;
mod stacks;
mod twenty;

use std::path::Path;

use hidden::{Exposed, Hidden};
use managed::Managed;
use secrets::{Held, Holder};
use servers::REJOIN;
use stacks::{Stack, Tls};
use twenty::Twenty;

fn start(name: &str) -> Managed {
    Managed::start(Path::new(REJOIN), name)
}

fn twenty_need_one_full_handshake(stack: Stack) {
    for tls in Tls::ALL {
        let managed = start(&format!("twenty-{stack:?}-{}", tls.number()));
        let Some(seen) = Twenty::visit(&managed, stack, tls) else { return };
        assert!(seen.holds(tls), "{stack:?} {tls:?}: {seen:?}");
    }
}

#[test]
fn twenty_programs_and_nginx() {
    twenty_need_one_full_handshake(Stack::Nginx);
}

#[test]
fn twenty_programs_and_openssl() {
    twenty_need_one_full_handshake(Stack::OpenSsl);
}

#[test]
fn twenty_programs_and_rustls() {
    twenty_need_one_full_handshake(Stack::Rustls);
}

#[test]
fn twenty_programs_and_java() {
    twenty_need_one_full_handshake(Stack::Java);
}

#[test]
fn rule_01_holds_for_many_at_once_and_over_a_kill() {
    let seen = once::ask_at_once(&mut start("once"));
    assert!(seen.holds(), "{seen:?}");
}

#[test]
fn programs_hold_no_secret_of_their_connections() {
    for tls in Tls::ALL {
        for holder in [Holder::Connect, Holder::Python] {
            let Held { search, .. } = secrets::hold(&start("secrets"), holder, tls);
            assert!(search.found.is_empty(), "{holder:?}, {tls:?}: {search:?}");
        }
    }
}

/// A program that does its own TLS holds them all: the search finds what is there.
#[test]
fn the_search_finds_secrets() {
    for tls in Tls::ALL {
        let held = secrets::hold(&start("found"), Holder::SClient, tls);
        assert_eq!(held.search.found, held.kinds(), "{tls:?}");
    }
}

#[test]
fn rule_15_a_manager_shows_its_memory_to_nobody() {
    let Hidden { manager, other } = hidden::look();
    assert_eq!(manager, Exposed { is_readable: false, leaves_core: false });
    if other != (Exposed { is_readable: true, leaves_core: true }) {
        eprintln!("this machine hides all of it from every program: {other:?}");
    }
}
