//! The partitions within which sessions are shared, and the data that is sent before the handshake is complete.

use rejoin_testkit::port::reserve;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::visit;
use crate::carrier::Carrier;
use crate::others::run_as;
use crate::server::{Server, house_and_server};
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server::RustlsServer;
use rejoin_testkit::proxy::{extension, rogue, tapped};

#[test]
fn rule_11_a_session_with_a_client_certificate_is_its_holders() {
    for version in ["-tls1_2", "-tls1_3"] {
        let house = House::new();
        house.certify("server", &["server.test"]);
        let arguments =
            [version, "-Verify", "2", "-verify_return_error", "-CAfile", "authority.pem"];
        let server = Server::openssl(&house.folder, "server", &arguments);
        let one = house.authority.issue(&["one.test"]);
        let other = house.authority.issue(&["other.test"]);
        let identity = |chain: &str, key: &str| json!({"identity": {"chain": chain, "key": key}});
        let program = house.program();
        let why = |wishes| program.visit("server.test", server.port, wishes);
        let kind = |wishes| program.kind("server.test", server.port, wishes);
        let holder = identity(&one.certificate, &one.key);
        assert_eq!(why(holder.clone()), "no_session");
        assert_eq!(why(holder.clone()), "resumed", "{version}");
        // Another's certificate is another's session; none is none, and not the holder's.
        assert_eq!(why(identity(&other.certificate, &other.key)), "no_session");
        assert_eq!(kind(json!({})), "client_certificate_required", "{version}");
        // Who has the certificate and not its key has nothing.
        assert_eq!(kind(identity(&one.certificate, &other.key)), "client_certificate_invalid");
        assert_eq!(kind(identity(&one.certificate, "")), "client_certificate_invalid");
        // A certificate that the server does not take.
        let foreign = rejoin_testkit::certificates::Authority::new().issue(&["one.test"]);
        let foreign = identity(&foreign.certificate, &foreign.key);
        assert_eq!(kind(foreign), "client_certificate_invalid", "{version}");
        assert_eq!(why(holder), "resumed");
    }
}

#[test]
fn rule_12_labels_and_those_who_do_not_share_are_apart() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    let why = |wishes| house.program().visit("server.test", server.port, wishes);
    let alone = || json!({"share": false});
    assert_eq!(why(alone()), "not_wanted");
    assert_eq!(house.program().stats()["sessions"], 0);
    assert_eq!(visit(&house, &server), "no_session");
    let stored = house.program().stats()["sessions"].clone();
    assert_eq!(why(alone()), "not_wanted");
    assert_eq!(house.program().stats()["sessions"], stored);
    assert_eq!(why(json!({"label": "work"})), "no_session");
    assert_eq!(why(json!({"label": "work"})), "resumed");
    assert_eq!(visit(&house, &server), "resumed");
}

/// A virtual host answers to a name, and another one without. The certificate must be valid for the name all the same.
#[test]
fn rule_12_connections_that_do_not_tell_the_name_are_apart() {
    for version in ["-tls1_2", "-tls1_3"] {
        let house = House::new();
        for file in ["plain", "named"] {
            house.certify(file, &["server.test", "other.test"]);
        }
        let named = ["-servername", "server.test", "-cert2", "named.pem", "-key2", "named.key"];
        let server = Server::openssl(&house.folder, "plain", &[&[version], &named[..]].concat());
        let said = |facts: &Value| (facts["why"].clone(), facts["chain"][0]["sha256"].clone());
        let visit = |host, wishes| {
            let connection = house.program().connect(host, server.port, wishes).unwrap();
            let said = said(&connection.facts);
            connection.talk();
            said
        };
        let unnamed = || json!({"server_name": false});
        let (why, named) = visit("server.test", json!({}));
        assert_eq!(why, "no_session");
        let (why, plain) = visit("server.test", unnamed());
        assert_eq!(why, "no_session", "{version}");
        assert_ne!(named, plain);
        let mut carrier = Carrier::offer(&house, server.port, unnamed()).unwrap();
        assert_eq!(said(&carrier.connect(b'v')), (json!("resumed"), plain.clone()), "{version}");
        carrier.talk();
        drop(carrier);
        // Nor is one of another name used.
        assert_eq!(visit("other.test", unnamed()), (json!("no_session"), plain.clone()));
        assert_eq!(visit("server.test", unnamed()), (json!("resumed"), plain), "{version}");
        assert_eq!(visit("server.test", json!({})), (json!("resumed"), named), "{version}");
        let kind = house.program().kind("third.test", server.port, unnamed());
        assert_eq!(kind, "certificate_wrong_name", "{version}");
    }
}

#[test]
fn rule_12_settings_keep_hosts_and_programs_out() {
    let own = std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
    for unshared in ["host", "program"] {
        let house = House::with(|settings| match unshared {
            "host" => settings.unshared_hosts = vec!["*.test".parse().unwrap()],
            _ => settings.unshared_programs = vec![own.clone()],
        });
        house.certify("server", &["server.test"]);
        let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
        for _ in 0..2 {
            assert_eq!(visit(&house, &server), "not_shared", "{unshared}");
        }
        assert_eq!(house.program().stats()["sessions"], 0);
    }
}

/// Returns the manager's answers to another user's program: on a new connection, on this connection's end, and on
/// counters.
fn told_to(uid: u32, house: &House, port: u16, token: &Value) -> Value {
    let script = format!(
        r#"
print(json.dumps([ask(connect=connect)[1]["connected"]["why"],
                  ask(end={{"connection": {token}}})[1]["end"],
                  ask(stats={{}})[1]["stats"]["handshakes"]]))
"#
    );
    run_as(uid, house, port, &script)
}

/// A user that fills the memory evicts only its own sessions.
#[test]
fn rule_12_another_user_pushes_nothing_out() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: there is no other user to ask as");
        return;
    }
    let house = House::with(|settings| settings.session_bytes = 256 * 1024);
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let visit_as =
        |label: &str| house.program().visit("server.test", server.port, json!({"label": label}));
    for label in ["a", "b", "c"] {
        assert_eq!(visit_as(label), "no_session");
    }
    let script = r#"
for number in range(400):
    manager, answer = ask(connect={**connect, "label": str(number // 2)})
    assert "connected" in answer, answer
    manager.sendall(b"hello\n")
    assert manager.recv(1)
    manager.close()
print(json.dumps(ask(stats={})[1]["stats"]))
"#;
    let stats = run_as(12_345, &house, server.port, script);
    assert!(stats["session_bytes"].as_u64().unwrap() <= 256 * 1024, "{stats}");
    assert!(stats["sessions"].as_u64().unwrap() > 50, "{stats}");
    for label in ["d", "e", "f"] {
        assert_eq!(visit_as(label), "no_session");
    }
    for label in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(visit_as(label), "resumed", "{label}");
    }
}

/// Programs of other users: this test's own, run again as theirs.
#[test]
fn rule_12_another_user_gets_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: there is no other user to ask as");
        return;
    }
    let (house, server) = house_and_server(&["-tls1_3"]);
    let connection = house.program().connect("server.test", server.port, json!({})).unwrap();
    let token = connection.facts["connection"].clone();
    connection.talk();
    let told = told_to(12_345, &house, server.port, &token);
    assert_eq!(told[0], "no_session");
    assert_eq!(told[1], "unknown");
    assert_eq!((&told[2]["full"], &told[2]["resumed"]), (&json!(1), &json!(0)));
    // Who is known by no number of its own may be anybody, each time.
    for _ in 0..2 {
        assert_eq!(told_to(65_534, &house, server.port, &token)[0], "not_shared");
    }
    assert_eq!(visit(&house, &server), "resumed");
}

#[test]
fn rule_13_early_data_is_sent_on_request_alone_and_its_fate_told() {
    let house = House::new();
    house.certify("server", &["server.test"]);
    let early_again = "ssl_early_data on; ssl_protocols TLSv1.3;";
    let early = "ssl_early_data on; ssl_protocols TLSv1.3; ssl_session_timeout 1h;";
    let port = reserve();
    let server = Server::nginx(port, &house.folder, "server", early);
    let request = "GET / HTTP/1.0\r\n\r\n";
    let ask = |wishes: Value, resend: bool| {
        let mut connection = house.program().connect("server.test", port, wishes).unwrap();
        if resend || connection.facts["early_data"] != "accepted" {
            connection.stream.write_all(request.as_bytes()).unwrap();
        }
        let mut page = String::new();
        connection.stream.read_to_string(&mut page).unwrap();
        assert_eq!(page.matches("HTTP/1.1 200").count(), 1, "{page}");
        (connection.facts["early_data"].as_str().unwrap().to_owned(), connection.why().to_owned())
    };
    let data = base64(request.as_bytes());
    let early = || json!({"early_data": data});
    let told = |fate: &str, why: &str| (fate.to_owned(), why.to_owned());
    assert_eq!(ask(early(), false), told("not_offered", "no_session"));
    assert_eq!(ask(json!({}), false), told("not_offered", "resumed"));
    assert_eq!(ask(early(), false), told("accepted", "resumed"));
    assert_eq!(house.program().stats()["handshakes"]["early_data"], 1);
    // Another protocol than the session's: not sent.
    let other = json!({"early_data": data, "alpn": ["http/1.1"]});
    assert_eq!(ask(other, false), told("not_offered", "resumed"));
    // A server whose keys are gone: rejected, and sent again by the program, not by us.
    ask(json!({}), false);
    drop(server);
    let _server = Server::nginx(port, &house.folder, "server", early_again);
    assert_eq!(ask(early(), false), told("rejected", "refused"));
}

#[test]
fn rule_13_more_than_the_server_takes_is_not_sent() {
    let (house, server) = House::with_rustls(|config| config.max_early_data_size = 10);
    let (tap, told) = tapped(server.port);
    let fate = |data: &[u8]| {
        let wishes = json!({"early_data": base64(data)});
        let connection = house.program().connect("server.test", tap, wishes).unwrap();
        let fate = connection.facts["early_data"].clone();
        connection.talk();
        fate
    };
    // Whether the hello announced any.
    let announced = || extension(&told.recv().unwrap(), 42).is_some();
    assert_eq!((fate(b""), announced()), (json!("not_offered"), false));
    assert_eq!((fate(b"12345678901"), announced()), (json!("not_offered"), false));
    assert_ne!(fate(b"1234567890"), "not_offered");
    assert!(announced());
}

#[test]
fn rule_13_an_error_says_that_early_data_had_left() {
    let (house, server) = House::with_rustls(|config| config.max_early_data_size = 100);
    let first = house.program().connect("server.test", server.port, json!({})).unwrap();
    first.talk();
    // Takes the first flight and says nothing.
    let silent = rogue(|mut client| {
        let _ = client.read_to_end(&mut Vec::new());
    });
    let ask = |early_data: Value| {
        let tcp = TcpStream::connect(("127.0.0.1", silent)).unwrap();
        let wish = json!({"host": "server.test", "port": server.port, "socket": true,
            "deadline_ms": 300, "early_data": early_data});
        let request = json!({"rejoin": 1, "connect": wish});
        let error = house.program().ask_passing(&request, &tcp).1["error"].take();
        assert_eq!(error["kind"], "timeout");
        error["early_data"].clone()
    };
    assert_eq!(ask(json!(base64(b"GET /"))), "sent");
    assert_eq!(ask(Value::Null), Value::Null);
}

fn base64(bytes: &[u8]) -> String {
    rejoin_manager::protocol::Base64(bytes.to_vec().into()).to_string()
}

#[test]
fn hosts_are_kept_out_however_they_are_written() {
    for written in ["bank.test.", "*.test.", "BANK.test"] {
        let house =
            House::with(|settings| settings.unshared_hosts = vec![written.parse().unwrap()]);
        let pair = house.certify("server", &["bank.test"]);
        let server = RustlsServer::start(&pair, |_| {});
        for asked in ["bank.test", "Bank.test."] {
            let why = house.program().visit(asked, server.port, json!({}));
            assert_eq!(why, "not_shared", "{asked} under {written}");
        }
        let kind = house.program().kind("bank.test..", server.port, json!({}));
        assert_eq!(kind, "bad_request");
    }
}
