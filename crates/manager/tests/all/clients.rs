//! The client library, waiting and on tokio, against a real manager and real servers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use rejoin_manager::client::{Error, FIRST_BYTES, Manager, tokio as asynchronous};
use rejoin_manager::protocol::{
    Base64, Connect, ErrorKind as Kind, Fingerprint, Malformed, Trust, Why,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use rejoin_testkit::house::House;
use rejoin_testkit::proxy::{call, rogue};

fn wanted(port: u16) -> Connect {
    let mut wanted = Connect::new("server.test".parse().unwrap(), port.try_into().unwrap());
    wanted.addresses = vec![Ipv4Addr::LOCALHOST.into()];
    wanted
}

fn manager(house: &House) -> Manager {
    Manager::at(house.socket())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The same conversation, waiting: what came back, and why the session was resumed or not.
fn talk(manager: &Manager, wanted: &Connect) -> (String, Why) {
    let mut stream = manager.connect(wanted).unwrap();
    stream.write_all(b"hello\n").unwrap();
    stream.finish_writing().unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    (heard, stream.session().why)
}

/// And on tokio.
async fn talk_on_tokio(manager: &Manager, wanted: &Connect) -> (String, Why) {
    let mut stream = asynchronous::connect(manager, wanted).await.unwrap();
    stream.write_all(b"hello\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    (heard, stream.session().why)
}

#[test]
fn clients_share_sessions_whether_they_wait_or_not() {
    let (house, server) = House::with_rustls(|_| {});
    let (manager, wanted) = (manager(&house), wanted(server.port));
    let expected = |why| ("olleh\n".to_owned(), why);
    assert_eq!(talk(&manager, &wanted), expected(Why::NoSession));
    assert_eq!(runtime().block_on(talk_on_tokio(&manager, &wanted)), expected(Why::Resumed));
    assert_eq!(talk(&manager, &wanted), expected(Why::Resumed));
    assert_eq!(manager.stats().unwrap().handshakes.resumed, 2);
}

#[test]
fn first_bytes_go_with_the_request() {
    let (house, server) = House::with_rustls(|_| {});
    let (manager, wanted) = (manager(&house), wanted(server.port));
    let mut stream = manager.connect_sending(&wanted, b"hello\n").unwrap();
    stream.finish_writing().unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "olleh\n");
    let heard = runtime().block_on(async {
        let mut stream =
            asynchronous::connect_sending(&manager, &wanted, b"hello\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        heard
    });
    assert_eq!(heard, "olleh\n");
    let long = manager.connect_sending(&wanted, &[7; FIRST_BYTES + 1]).unwrap_err();
    assert!(matches!(long, Error::Malformed(Malformed::TooLarge { most: FIRST_BYTES, .. })));
    let early = Connect { early_data: Some(Base64(vec![7].into())), ..wanted.clone() };
    let both = manager.connect_sending(&early, b"hello\n").unwrap_err();
    assert!(both.to_string().contains("exclude each other"), "{both}");
    let distrusted = Connect { trust: Trust::Pins(vec![Fingerprint([7; 32])]), ..wanted };
    let error = manager.connect_sending(&distrusted, b"hello\n").unwrap_err();
    assert!(matches!(error, Error::Refused(of) if of.kind == Kind::CertificatePinMismatch));
}

#[test]
fn a_burst_of_clients_waits_for_its_turn() {
    let (house, server) = House::with_rustls(|_| {});
    let (manager, wanted) = (manager(&house), wanted(server.port));
    runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let (manager, wanted) = (manager.clone(), wanted.clone());
            all.spawn(async move { talk_on_tokio(&manager, &wanted).await.0 });
        }
        let heard = all.join_all().await;
        assert!(heard.iter().all(|heard| heard == "olleh\n") && heard.len() == 200);
    });
}

#[test]
fn a_socket_can_be_brought() {
    let (house, server) = House::with_rustls(|_| {});
    let tcp = || TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    // Nobody listens where the request says: that the socket was used shows.
    let mut wanted = wanted(1);
    wanted.deadline_ms = 5_000;
    let brought = tcp();
    let mut stream = manager(&house).connect_over(brought, &wanted).unwrap();
    stream.write_all(b"abc\n").unwrap();
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"cba\n");
    runtime().block_on(async {
        let brought = tcp();
        brought.set_nonblocking(true).unwrap();
        let brought = tokio::net::TcpStream::from_std(brought).unwrap();
        let manager = manager(&house);
        let mut stream = asynchronous::connect_over(&manager, brought, &wanted).await.unwrap();
        stream.write_all(b"abc\n").await.unwrap();
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"cba\n");
    });
}

/// A server behind a relay that hangs up when it hears the line `hang up`.
fn hanging_up(to: u16) -> u16 {
    rogue(move |mut client| {
        let mut server = call(to, &client);
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut piece = [0; 4096];
        // The handshake over, nobody says anything: then it hangs up.
        while let Ok(read @ 1..) = client.read(&mut piece) {
            server.write_all(&piece[..read]).unwrap();
        }
        let _ = client.shutdown(Shutdown::Both);
    })
}

#[test]
fn what_was_cut_short_is_an_error_and_what_ended_is_not() {
    let (house, server) = House::with_rustls(|_| {});
    let (manager, cut) = (manager(&house), wanted(hanging_up(server.port)));
    let mut stream = manager.connect(&cut).unwrap();
    let error = stream.read(&mut [0; 9]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    // It stays so.
    assert_eq!(stream.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    runtime().block_on(async {
        let mut stream = asynchronous::connect(&manager, &cut).await.unwrap();
        let error = stream.read(&mut [0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    });
}

#[test]
fn errors_say_whose_they_are() {
    let mut house = House::new();
    let manager = manager(&house);
    let refused = manager.connect(&wanted(1)).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused(problem) if problem.kind == Kind::Refused),
        "{refused}"
    );
    assert!(!refused.is_the_managers());
    house.stop();
    let gone = manager.connect(&wanted(1)).unwrap_err();
    assert!(matches!(gone, Error::NotRunning { .. }) && gone.is_the_managers(), "{gone}");
    assert!(gone.to_string().contains("`rejoin manager` is not running"), "{gone}");
    let gone = runtime().block_on(asynchronous::connect(&manager, &wanted(1))).unwrap_err();
    assert!(matches!(gone, Error::NotRunning { .. }), "{gone}");
}
