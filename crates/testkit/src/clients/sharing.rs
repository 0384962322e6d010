//! The handshakes that servers count when several programs connect.

use rejoin_client::Manager;

use crate::clients::cases::{CASES, Case, Way};
use crate::clients::world::{Service, World};
use crate::stacks::Counted;

/// Handshakes by the manager's count, and by the server's own, if it tells.
#[derive(Debug)]
pub struct Shared {
    manager: Counted,
    server: Option<Counted>,
    /// The connections that programs made.
    wanted: u64,
}

/// Programs that make one connection each, and ask for one page.
const PROGRAMS: [(&str, &str); 8] = [
    ("curl", "a page"),
    ("Python", "urllib"),
    ("curl", "--resolve"),
    ("Python", "asyncio"),
    ("C", "a callback for each certificate"),
    ("wget", "a page"),
    ("Python", "memory BIOs"),
    ("Python", "epoll, before the handshake"),
];

impl Shared {
    /// Runs the programs one after the other, each in a process of its own.
    pub fn by(world: &World, service: &Service) -> Self {
        let manager = Manager::at(world.managed.socket());
        let name = format!("localhost:{}", service.port);
        let handshakes = || {
            let services = manager.stats().expect("it counts").services;
            let share = services.into_iter().find(|share| share.name == name);
            share.map_or_else(Counted::default, |share| Counted {
                full: share.handshakes.full,
                resumed: share.handshakes.resumed,
            })
        };
        let before = handshakes();
        if let Some(site) = &service.site {
            site.counted(0);
        }
        let mut wanted = 0;
        for case in PROGRAMS.map(found) {
            assert_eq!(case.way, Way::Manager);
            let Some(mut command) = world.command(case, service, "shared") else { continue };
            world.with_rejoin(&mut command);
            let output = command.output().expect("the program runs");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{case:?}: {told}");
            wanted += told.matches(": through the manager: ").count() as u64;
        }
        let after = handshakes();
        let manager =
            Counted { full: after.full - before.full, resumed: after.resumed - before.resumed };
        let server = service.site.as_ref().map(|site| site.counted(wanted));
        Self { manager, server, wanted }
    }

    /// Returns true if only the first handshake was full. (Simultaneous connections of one program may need more TLS 1.3
    /// tickets than there are.)
    pub fn holds(&self) -> bool {
        let one = Counted { full: 1, resumed: self.wanted - 1 };
        self.wanted >= 7 && self.manager == one && self.server.is_none_or(|server| server == one)
    }
}

fn found((program, what): (&str, &str)) -> &'static Case {
    let is = |case: &&Case| case.program == program && case.what == what;
    CASES.iter().find(is).expect("a case")
}
