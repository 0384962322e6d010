//! Captures of real clients and servers, which themselves say what was resumed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rejoin_capture::{Analyser, Carrier, Class, Handshake, Limits, Method, Version};
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::made_capture::{CLIENT, Capture, SERVER, ip};
use rejoin_testkit::port;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::shipped::target;

/// The connections and if each was resumed, by its client's port and its server's name.
type Resumed = BTreeMap<(u16, String), bool>;

fn analyse(capture: &[u8]) -> Vec<Handshake> {
    let mut found = Vec::new();
    Analyser::new(Limits::default()).read(capture, |handshake| found.push(handshake)).unwrap();
    found
}

#[test]
#[ignore = "needs target/peers; make test-all"]
fn quic_by_aioquic_is_as_its_clients_say() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = Folder::new();
    Pair::self_signed(&["first.example"]).write(&folder.path().join("server"));
    let (capture, script) = (folder.file("capture"), "crates/capture/tests/peers/quic.py");
    let output = Command::new("python3")
        .arg(project.join(script))
        .args([&capture, &folder.file("server.pem"), &folder.file("server.key")])
        .env("PYTHONPATH", target().join("peers/root"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Resumed = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let told: serde_json::Value = serde_json::from_str(line).unwrap();
            let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
            let name = told["name"].as_str().unwrap().to_owned();
            ((port, name), told["resumed"].as_bool().unwrap())
        })
        .collect();
    let handshakes = analyse(&fs::read(capture).unwrap());
    let found: Resumed = handshakes
        .iter()
        .map(|handshake| {
            assert!(matches!(handshake.cls, Class::Full | Class::Resumed), "{handshake:?}");
            assert_eq!((handshake.carrier, handshake.completed), (Carrier::Quic, true));
            let name = handshake.sni.clone().unwrap();
            ((handshake.client_port, name), handshake.cls == Class::Resumed)
        })
        .collect();
    assert_eq!((found.len(), handshakes.len()), (told.len(), told.len()));
    assert_eq!(found, told);
    assert_eq!(told.values().filter(|resumed| **resumed).count(), 8);
}

/// A way between a client and a server that keeps what goes by.
struct Relay {
    address: SocketAddr,
    end: mpsc::Sender<()>,
    kept: thread::JoinHandle<Capture>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        }
        far.connect(server).unwrap();
        let address = near.local_addr().unwrap();
        let (end, ended) = mpsc::channel();
        let kept = thread::spawn(move || {
            let (mut capture, mut client) = (Capture::new(), None);
            let mut space = [0; 1 << 16];
            while ended.try_recv().is_err() {
                if let Ok((length, from)) = near.recv_from(&mut space) {
                    client = Some(from);
                    datagram(&mut capture, CLIENT, &space[..length]);
                    let _ = far.send(&space[..length]);
                }
                while let Ok(length) = far.recv(&mut space) {
                    datagram(&mut capture, SERVER, &space[..length]);
                    let _ = near.send_to(&space[..length], client.unwrap());
                }
            }
            capture
        });
        Self { address, end, kept }
    }

    fn end(self) -> Capture {
        self.end.send(()).unwrap();
        self.kept.join().unwrap()
    }
}

fn datagram(capture: &mut Capture, from: u16, payload: &[u8]) {
    let to = if from == CLIENT { SERVER } else { CLIENT };
    let ports = [from, to].map(u16::to_be_bytes).concat();
    capture.packet(&ip(17, from, &[&ports[..], &[0; 4], payload].concat()));
}

/// A client of OpenSSL: what it says of its connection, and the packets.
fn s_client(server: SocketAddr, arguments: &[&str]) -> (bool, Handshake) {
    let relay = Relay::to(server);
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &relay.address.to_string(), "-servername", "a.example"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let handshake = relay.end().handshake();
    assert!(told.contains("New, ") || told.contains("Reused, "), "{told}");
    (told.contains("Reused, "), handshake)
}

#[test]
fn dtls_by_openssl_is_as_its_clients_say() {
    let folder = Folder::new();
    Pair::self_signed(&["a.example"]).write(&folder.path().join("server"));
    let (certificate, key) = (folder.file("server.pem"), folder.file("server.key"));
    for (way, settings) in [
        ("tickets", &["-dtls1_2"][..]),
        ("ids", &["-dtls1_2", "-no_ticket"]),
        ("cookies", &["-dtls1_2", "-listen"]),
        ("small", &["-dtls1_2", "-mtu", "256"]),
        ("certificates", &["-dtls1_2", "-verify", "1"]),
    ] {
        let port = port::reserve();
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let _server = Process::start(
            Command::new("openssl")
                .args(["s_server", "-quiet", "-accept", &server.to_string()])
                .args(["-cert", &certificate, "-key", &key])
                .args(settings)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        wait_until("the server", || is_bound(port));
        let session = folder.file(way);
        let mut client = vec!["-dtls1_2", "-sess_out", &session];
        if way == "certificates" {
            client.extend(["-cert", &certificate, "-key", &key]);
        }
        let (resumed, first) = s_client(server, &client);
        assert!(!resumed);
        assert_eq!((first.cls, first.completed), (Class::Full, true), "{way}");
        assert_eq!((first.carrier, first.version), (Carrier::Dtls, Some(Version::Dtls12)));
        assert_eq!(first.client_auth, Some(way == "certificates"), "{way}");
        assert_eq!(first.sni.as_deref(), Some("a.example"));
        if way == "cookies" {
            // This server takes one client.
            continue;
        }
        client.extend(["-sess_in", &session]);
        let (resumed, second) = s_client(server, &client);
        assert!(resumed, "{way}");
        assert_eq!((second.cls, second.completed), (Class::Resumed, true), "{way}: {second:?}");
        assert_eq!(second.method, Some(if way == "ids" { Method::Id } else { Method::Ticket }));
    }
}

/// Returns true if there is a UDP socket of this port on this machine.
fn is_bound(port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/udp").unwrap();
    sockets.contains(&format!(":{port:04X} "))
}
