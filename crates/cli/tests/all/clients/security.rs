//! Attacks that must not succeed.

use std::process::{Command, Stdio};

use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{Directly, Handshakes, Stats, Went};

use rejoin_testkit::clients::cases::{CASES, Case};
use rejoin_testkit::clients::world::{Seen, Service, World};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::stacks::Tls;

fn case(program: &str, what: &str) -> &'static Case {
    let is = |case: &&Case| case.program == program && case.what == what;
    CASES.iter().find(is).expect("a case")
}

fn stats(world: &World) -> Stats {
    Manager::at(world.managed.socket()).stats().expect("it counts")
}

fn see(world: &World, service: &Service, (program, what): (&str, &str)) -> Option<Seen> {
    world.see(case(program, what), service)
}

/// A program that does not verify, or overrides the verification, leaves nothing that another program takes for
/// verified.
#[test]
fn a_program_that_skips_verification_skips_it_for_itself() {
    let world = World::new("skips");
    for tls in Tls::ALL {
        // Of an authority that nobody believes.
        let other = Managed::start(&format!("skips-{}", tls.number()));
        let service = Service::openssl(&other, tls).expect("openssl is installed");
        for skips in [
            ("curl", "-k"),
            ("C", "a callback that overrides"),
            ("C", "the same, and says that all is well"),
            ("C", "one that says that all is well"),
            ("Python", "nothing is verified"),
        ] {
            for _ in 0..2 {
                let Some(seen) = see(&world, &service, skips) else { continue };
                assert_eq!((seen.with.code, seen.is_same()), (Some(0), true), "{seen:?}");
            }
        }
        assert_eq!(stats(&world).sessions, 0, "{tls:?}");
        for verifies in
            [("curl", "a page"), ("Python", "urllib"), ("C", "a callback for each certificate")]
        {
            let Some(seen) = see(&world, &service, verifies) else { continue };
            assert_ne!(seen.with.code, Some(0), "{seen:?}");
            assert!(seen.is_same(), "{seen:?}");
        }
        assert_eq!(stats(&world).sessions, 0, "{tls:?}");
    }
}

/// A store's callback counts for nothing, and what else a store may have of its own keeps the session from others.
#[test]
fn what_a_store_does_by_itself_is_not_verified() {
    let world = World::new("stores");
    let store = ("C", "a callback of the store");
    for service in &world.servers {
        let before = stats(&world).sessions;
        let unsigned = ("C", "a store that checks no signature");
        for how in [unsigned, store] {
            for _ in 0..2 {
                let Some(seen) = see(&world, service, how) else { return };
                assert_eq!((seen.with.code, seen.is_same()), (Some(0), true), "{seen:?}");
                let is_kept = stats(&world).sessions > before;
                assert_eq!(is_kept, how == store, "{} {seen:?}", service.name);
            }
        }
    }
}

/// A program with another authority refuses what others resume.
#[test]
fn a_program_with_another_authority_refuses() {
    let world = World::new("refuses");
    for service in &world.servers {
        for refuses in [("curl", "another authority"), ("Python", "the system's authorities")] {
            for believes in [("curl", "a page"), ("Python", "urllib")] {
                let seen = see(&world, service, believes).expect("both are installed");
                assert_eq!(seen.with.code, Some(0), "{seen:?}");
            }
            let before = stats(&world).handshakes;
            let seen = see(&world, service, refuses).expect("both are installed");
            assert!(seen.is_same() && seen.with.code != Some(0), "{seen:?}");
            // It was a resumption that it refused; the server may have other certificates now.
            let seen = see(&world, service, ("curl", "a page")).expect("curl is installed");
            assert_eq!(seen.with.code, Some(0), "{seen:?}");
            let after = stats(&world).handshakes;
            let more = (after.resumed - before.resumed, after.full - before.full);
            assert_eq!(more, (1, 1), "{}", service.name);
        }
    }
}

/// Secrets that a program can read from its own libssl belong to the hop, and the server does not know
/// them.
#[test]
fn the_key_of_a_hop_does_not_open_the_servers_session() {
    let world = World::new("key");
    let service =
        Service::openssl_that_tells(&world.managed, Tls::V13).expect("openssl is installed");
    let file = world.managed.file("session.pem");
    for with in [false, true] {
        let Some(mut command) = world.verify() else { return };
        command.args(["localhost", &service.port.to_string(), &world.managed.file("ca.pem")]);
        command.args(["session", &file]).stdout(Stdio::null());
        if with {
            world.with_rejoin(&mut command);
        }
        assert!(command.status().is_ok_and(|status| status.success()));
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &format!("127.0.0.1:{}", service.port)]);
        client.args(["-sess_in", &file, "-servername", "localhost"]).stdin(Stdio::null());
        let output = client.output().expect("openssl is installed");
        let told = String::from_utf8_lossy(&output.stdout);
        // Its own session a program may take along.
        let expected = if with { "New, TLSv1.3" } else { "Reused, TLSv1.3" };
        assert!(told.contains(expected), "with: {with}, {told}");
    }
}

/// The manager counts the connections that bypass it.
#[test]
fn who_goes_directly_is_counted_with_the_reason() {
    let world = World::new("counted");
    let service = &world.servers[0];
    for (times, program) in [(1, "curl"), (2, "Python")] {
        let page = CASES.iter().find(|case| case.program == program).expect("a case");
        let mut command = world.command(page, service, "counted").expect("it is installed");
        world.with_rejoin(&mut command);
        let keys = world.managed.file("keys");
        let output = command.env("SSLKEYLOGFILE", keys).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("SSLKEYLOGFILE"), "{told}");
        let of = [Went { why: Directly::KeyLog, times }];
        // It is not waited for.
        let is_counted = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            stats(&world).directly == of
        });
        assert!(is_counted, "{program}: {:?}", stats(&world).directly);
    }
    assert_eq!(stats(&world).handshakes, Handshakes::default());
}

/// Hosts and programs that the manager's settings leave out, a program that is told so, and another label.
#[test]
fn who_does_not_share_does_not() {
    let world = World::new("leaves-out");
    let service = &world.servers[0];
    let page = case("curl", "a page");
    let run = |variables: &[(&str, &str)]| {
        let mut command = world.command(page, service, "left-out").expect("curl is installed");
        world.with_rejoin(&mut command);
        let output = command.envs(variables.iter().copied()).output().expect("it runs");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run(&[]).contains("through the manager: in full"));
    assert!(run(&[]).contains("through the manager: resumed"));
    assert!(run(&[("REJOIN_LABEL", "work")]).contains("through the manager: in full"));
    assert!(run(&[("REJOIN_LABEL", "work")]).contains("through the manager: resumed"));
    assert_eq!(run(&[("REJOIN_MANAGER", "no")]), "");
    let lable = "rejoin: REJOIN_LABLE: no such setting; did you mean REJOIN_LABEL? Going on without the manager\n";
    assert_eq!(run(&[("REJOIN_LABLE", "work")]).matches(lable).count(), 1);
    let manger = "rejoin: REJOIN_MANGER: no such setting; did you mean REJOIN_MANAGER?\n";
    assert_eq!(run(&[("REJOIN_MANGER", "yes"), ("REJOIN_MANAGER", "")]), manger);
    let before = stats(&world).handshakes;
    let mut other = Managed::start("left-out");
    for settings in ["unshared_hosts = [\"localhost\"]", "unshared_programs = [\"curl\"]"] {
        other.set(settings);
        let told = run(&[("REJOIN_MANAGER", &other.socket())]);
        assert!(told.contains("directly: the manager has no use for it"), "{told}");
        let counted = Manager::at(other.socket()).stats().expect("it counts");
        assert_eq!(counted.handshakes, Default::default());
        let refused = [Went { why: Directly::ManagerRefused, times: 1 }];
        assert_eq!(counted.directly, refused);
    }
    assert_eq!(stats(&world).handshakes, before);
}
