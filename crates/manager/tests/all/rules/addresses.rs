//! Rule 7 for a name with several hosts: one may refuse a ticket that another issued.

use rejoin_testkit::port::reserve;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::server::Server;
use rejoin_testkit::house::House;

const A: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[test]
fn rule_07_hosts_with_keys_of_their_own_keep_their_sessions() {
    for version in ["-tls1_2", "-tls1_3"] {
        let house = House::new();
        house.certify("server", &["server.test"]);
        let port = reserve();
        let _servers =
            [A, B, C].map(|at| Server::openssl_on(at, port, &house.folder, "server", &[version]));
        let why = |at| house.program().visit("server.test", port, json!({"addresses": [at]}));
        assert_eq!(why(A), "no_session", "{version}");
        // It is tried once whether they have keys in common.
        assert_eq!(why(B), "refused", "{version}");
        assert_eq!(why(C), "no_session", "{version}");
        for _ in 0..3 {
            for at in [A, B, C] {
                assert_eq!(why(at), "resumed", "{version} {at}");
            }
        }
    }
}

#[test]
fn rule_07_hosts_with_keys_in_common_resume_and_forget_each_others_sessions() {
    for version in ["-tls1_2", "-tls1_3"] {
        let house = House::new();
        house.certify("server", &["server.test"]);
        // One process at all addresses.
        let all = Ipv4Addr::UNSPECIFIED;
        let port = reserve();
        let start = || Server::openssl_on(all, port, &house.folder, "server", &[version]);
        let why = |at| house.program().visit("server.test", port, json!({"addresses": [at]}));
        let server = start();
        assert_eq!(why(A), "no_session", "{version}");
        for at in [B, C, B, A, C] {
            assert_eq!(why(at), "resumed", "{version} {at}");
        }
        drop(server);
        // The keys are gone, and one host's word is enough.
        let _server = start();
        assert_eq!(why(B), "refused", "{version}");
        for at in [A, C, B] {
            assert_eq!(why(at), "resumed", "{version} {at}");
        }
    }
}
