//! Plaintext, both ways, and how it ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use serde_json::json;

use crate::server::{Server, house_and_server};
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server;
use rejoin_testkit::port::reserve;
use rejoin_testkit::proxy::delayed::SlowWay;
use rejoin_testkit::proxy::{call, rogue};

#[test]
fn nginx_answers_through_the_manager_and_resumes() {
    let house = House::new();
    house.certify("server", &["server.test"]);
    let server = Server::nginx(reserve(), &house.folder, "server", "");
    for (round, expected) in ["session . ", "session r "].into_iter().enumerate() {
        let wishes = json!({"alpn": ["http/1.1"]});
        let mut connection = house.program().connect("server.test", server.port, wishes).unwrap();
        assert_eq!(connection.facts["alpn"], "http/1.1");
        assert_eq!(connection.facts["resumed"], round > 0);
        let request = b"GET / HTTP/1.0\r\nHost: server.test\r\n\r\n";
        connection.stream.write_all(request).unwrap();
        let mut page = String::new();
        connection.stream.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        assert!(page.contains(expected.trim_end()), "{page}");
        assert_eq!(house.program().end(&connection.facts["connection"]), "clean");
    }
}

#[test]
fn a_resumed_connection_has_a_round_trip_less() {
    let (house, server) = house_and_server(&["-tls1_2", "-rev"]);
    let way = SlowWay::to(server.port, Duration::from_millis(10));
    let visited = || {
        let before = way.round_trips();
        let why = house.program().visit("server.test", way.port, json!({}));
        (why, way.round_trips() - before)
    };
    // With the one for what the program says.
    assert_eq!(visited(), ("no_session".to_owned(), 3));
    assert_eq!(visited(), ("resumed".to_owned(), 2));
}

#[test]
fn what_stands_behind_the_request_goes_to_whom_is_trusted() {
    let (house, server) = house_and_server(&["-rev"]);
    for name in ["server.test", "other.test"] {
        let made = house.program().connect_with(name, server.port, json!({}), b"hello\n");
        if name == "other.test" {
            assert_eq!(made.unwrap_err()["kind"], "certificate_wrong_name");
            continue;
        }
        let mut word = [0; 6];
        made.unwrap().stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"olleh\n");
    }
}

#[test]
fn an_end_without_a_word_is_truncated() {
    let (house, server) = house_and_server(&[]);
    let (to, hangs_up) = (server.port, Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&hangs_up);
    let port = rogue(move |mut client| {
        let (mut server, mut piece) = (call(to, &client), [0; 4096]);
        while let Ok(read) = client.read(&mut piece) {
            if read == 0 || told.load(Ordering::SeqCst) {
                break;
            }
            server.write_all(&piece[..read]).unwrap();
        }
        let _ = client.shutdown(Shutdown::Both);
    });
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    assert_eq!(house.program().end(&connection.facts["connection"]), "open");
    hangs_up.store(true, Ordering::SeqCst);
    connection.stream.write_all(b"hello\n").unwrap();
    let mut rest = Vec::new();
    // An end of file or a reset, as the kernel likes.
    let _ = connection.stream.read_to_end(&mut rest);
    assert_eq!(house.program().end(&connection.facts["connection"]), "truncated");
    assert_eq!(house.program().end(&json!("00".repeat(16))), "unknown");
}

#[test]
fn much_goes_both_ways_at_once_and_half_a_close_is_half() {
    let (house, server) = House::with_rustls(|_| {});
    let connection = house.program().connect("server.test", server.port, json!({})).unwrap();
    let line: String = "abcdefghij".repeat(1_000);
    let (mut writer, lines) = (connection.stream.try_clone().unwrap(), 1_000);
    let sent = line.clone();
    // Nobody reads until all is written: the program's and the server's buffers fill.
    let writing = std::thread::spawn(move || {
        for _ in 0..lines {
            writer.write_all(format!("{sent}\n").as_bytes()).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    let mut back = String::new();
    let mut stream = &connection.stream;
    stream.read_to_string(&mut back).unwrap();
    writing.join().unwrap();
    let expected: String = line.chars().rev().chain(['\n']).collect();
    assert_eq!(back.len(), lines * expected.len());
    assert!(back.starts_with(&expected) && back.ends_with(&expected));
    assert_eq!(house.program().end(&connection.facts["connection"]), "clean");
}

#[test]
fn a_server_that_speaks_first_is_heard_with_the_handshake() {
    let house = House::new();
    let config = rustls::ServerConfig::builder_with_provider(rustls_server::provider());
    let pair = house.authority.issue(&["server.test"]);
    let config = config.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let config = Arc::new(rustls_server::with_pair(config.with_no_client_auth(), &pair));
    let port = rogue(move |mut tcp| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        while tls.is_handshaking() {
            if tls.wants_write() {
                tls.write_tls(&mut tcp).unwrap();
            } else {
                tls.read_tls(&mut tcp).unwrap();
                tls.process_new_packets().unwrap();
            }
        }
        // In one flight with its Finished; then it waits.
        tls.writer().write_all(b"220 ready\n").unwrap();
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).unwrap();
        }
        tcp.write_all(&flight).unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    let mut greeting = [0; 10];
    connection.stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\n");
}

#[test]
fn what_came_before_a_bad_record_arrives_though_the_program_reads_late() {
    let house = House::new();
    let config = rustls_server::config(&house.authority.issue(&["server.test"]), |_| {});
    let port = rustls_server::rogue(config, move |mut stream| {
        let mut many = [0; 8];
        stream.read_exact(&mut many).unwrap();
        let written = stream.write_all(&vec![7; usize::from_be_bytes(many)]);
        written.and_then(|()| stream.flush()).unwrap();
        // Application data that nobody can decrypt; then the server is silent.
        stream.sock.write_all(&[&[23, 3, 3, 0, 32][..], &[0; 32]].concat()).unwrap();
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    // Whatever a program's socket holds: one of these ends in the piece that it has no room for.
    let many = (8..40).map(|records| records * 16 * 1024_usize);
    let reading = many.map(|many| {
        let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
        connection.stream.write_all(&many.to_be_bytes()).unwrap();
        (many, connection)
    });
    let reading: Vec<_> = reading.collect();
    std::thread::sleep(Duration::from_millis(300));
    for (many, mut connection) in reading {
        let mut read = Vec::new();
        connection.stream.read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), many);
        assert_eq!(house.program().end(&connection.facts["connection"]), "truncated");
    }
}

#[test]
fn a_passed_socket_is_used_and_nothing_else_is_taken_for_one() {
    let (house, server) = house_and_server(&[]);
    let pass = |socket: &dyn std::os::fd::AsFd, says_so: bool| {
        // Port 1 is where nobody listens: only the socket leads to the server.
        let wish = json!({"host": "server.test", "port": 1, "socket": says_so});
        house.program().ask_passing(&json!({"rejoin": 1, "connect": wish}), socket).1
    };
    let tcp = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let own = tcp.local_addr().unwrap();
    let answer = pass(&tcp, true);
    assert_eq!(answer["connected"]["peer"], format!("127.0.0.1:{}", server.port), "{own}");
    assert_eq!(pass(&tcp, false)["error"]["kind"], "bad_request");
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(pass(&one, true)["error"]["kind"], "bad_request");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(pass(&listener, true)["error"]["kind"], "bad_request");
    assert_eq!(
        house.program().kind("server.test", server.port, json!({"socket": true})),
        "bad_request"
    );
}

/// It may have asked elsewhere since.
#[test]
fn what_a_program_wrote_that_has_gone_is_not_sent() {
    let house = House::new();
    let config = rustls_server::config(&house.authority.issue(&["server.test"]), |_| {});
    let (tell, told) = std::sync::mpsc::channel();
    let called_and_gone = Arc::new(Barrier::new(2));
    let ours = Arc::clone(&called_and_gone);
    let port = rogue(move |mut tcp| {
        called_and_gone.wait();
        called_and_gone.wait();
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        while tls.is_handshaking() {
            if tls.complete_io(&mut tcp).is_err() {
                break;
            }
        }
        let mut heard = Vec::new();
        let _ = StreamOwned::new(tls, tcp).read_to_end(&mut heard);
        tell.send(heard).unwrap();
    });
    let mut stream = house.program().dial();
    let wish = json!({"host": "server.test", "port": port, "addresses": ["127.0.0.1"]});
    rejoin_testkit::house::program::send(&mut stream, &json!({"rejoin": 1, "connect": wish}));
    stream.write_all(b"once\n").unwrap();
    ours.wait();
    drop(stream);
    ours.wait();
    assert_eq!(String::from_utf8(told.recv().unwrap()).unwrap(), "");
}

#[test]
fn a_program_that_shuts_reading_down_goes_on_writing() {
    let house = House::new();
    let config = rustls_server::config(&house.authority.issue(&["server.test"]), |_| {});
    let (tell, told) = std::sync::mpsc::channel();
    let port = rustls_server::rogue(config, move |mut stream| {
        let (mut heard, mut piece) = (0, [0; 1_000]);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            heard += read;
            stream.write_all(b"heard\n").and_then(|()| stream.flush()).unwrap();
        }
        tell.send(heard).unwrap();
    });
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    connection.stream.shutdown(Shutdown::Read).unwrap();
    for _ in 0..50 {
        connection.stream.write_all(&[7; 1_000]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    connection.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv().unwrap(), 50_000);
}
