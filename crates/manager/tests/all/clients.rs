//! The client library, waiting and on tokio, against a real manager and real servers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use rejoin_manager::client::{Error, FIRST_BYTES, Manager, tokio as asynchronous};
use rejoin_manager::protocol::{
    Base64, Connect, EarlyData, ErrorKind as Kind, Fingerprint, Malformed, Trust, Why,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use rejoin_testkit::house::House;
use rejoin_testkit::port::reserve;
use rejoin_testkit::proxy::{call, extension, rogue};

use crate::server::Server;

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

/// A house whose settings list these hosts, and a port for its server.
fn house_that_lists(hosts: &str) -> (House, u16) {
    let house = House::with(|settings| settings.early_data.hosts = vec![hosts.parse().unwrap()]);
    house.certify("server", &["server.test", "server.example"]);
    (house, reserve())
}

/// nginx for these names, which says whether a request came before the handshake was complete.
fn nginx_that_tells(house: &House, port: u16) -> Server {
    let inside =
        "ssl_early_data on; ssl_protocols TLSv1.3; add_header Early \"[$ssl_early_data]\" always;";
    Server::nginx(port, &house.folder, "server", inside)
}

/// Sends a request with the question. Returns whether it came early, how often it was answered, and what the session says.
fn send(manager: &Manager, wanted: &Connect, request: &str) -> (bool, usize, EarlyData, Why) {
    let mut stream = manager.connect_sending(wanted, request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let (early, late) = (page.matches("Early: [1]").count(), page.matches("Early: []").count());
    let session = stream.session();
    (early > 0, early + late, session.early_data, session.why)
}

const GET: &str = "GET / HTTP/1.0\r\n\r\n";

#[test]
fn rule_13_a_request_that_the_owner_lists_goes_early() {
    let (house, port) = house_that_lists("*.test");
    let server = nginx_that_tells(&house, port);
    let (manager, listed) = (manager(&house), wanted(port));
    let ask = |request| send(&manager, &listed, request);
    assert_eq!(ask(GET), (false, 1, EarlyData::NotOffered, Why::NoSession));
    // nginx no longer calls it early if the handshake's end arrives before it has read the request, as on a busy machine.
    let mut asked = 0;
    let came_early =
        std::iter::repeat_with(|| ask(GET)).take(100).any(|(early, answers, accepted, why)| {
            asked += 1;
            assert_eq!((answers, accepted, why), (1, EarlyData::Accepted, Why::Resumed));
            early
        });
    assert!(came_early);
    assert_eq!(manager.stats().unwrap().handshakes.early_data, asked);
    // Not what may be repeated: it goes with the handshake's end.
    let late = (false, 1, EarlyData::NotOffered, Why::Resumed);
    assert_eq!(ask("POST / HTTP/1.0\r\n\r\n"), late);
    assert_eq!(ask("GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\na"), late);
    // In two parts: the first is no whole request.
    let mut stream = manager.connect_sending(&listed, &GET.as_bytes()[..9]).unwrap();
    stream.write_all(&GET.as_bytes()[9..]).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("Early: []"), "{page}");
    // A server whose keys are gone rejects it, and gets it with the handshake's end.
    drop(server);
    let _server = nginx_that_tells(&house, port);
    assert_eq!(ask(GET), (false, 1, EarlyData::NotOffered, Why::Refused));
    // The same server by a name that is not listed.
    let unlisted = Connect { host: "server.example".parse().unwrap(), ..listed };
    send(&manager, &unlisted, GET);
    assert_eq!(send(&manager, &unlisted, GET), late);
}

#[test]
fn a_server_that_fails_at_a_listed_request_gets_it_again_without_a_session() {
    let (house, port) = house_that_lists("server.test");
    let _server = nginx_that_tells(&house, port);
    let intolerant = rogue(move |mut client| {
        let mut flight = vec![0; 16 * 1024];
        let bytes = client.read(&mut flight).unwrap();
        if extension(&flight[..bytes], 42).is_some() {
            // handshake_failure
            let _ = client.write_all(&[21, 3, 3, 0, 2, 2, 40]);
            return;
        }
        let mut server = call(port, &client);
        server.write_all(&flight[..bytes]).unwrap();
        let _ = std::io::copy(&mut client, &mut server);
    });
    let (manager, wanted) = (manager(&house), wanted(intolerant));
    let first = send(&manager, &wanted, GET);
    assert_eq!(first, (false, 1, EarlyData::NotOffered, Why::NoSession));
    let second = send(&manager, &wanted, GET);
    assert_eq!(second, (false, 1, EarlyData::NotOffered, Why::Refused));
    // What a program sends early by its own wish is not sent twice.
    let early_data = Some(Base64(GET.as_bytes().to_vec().into()));
    let error = manager.connect(&Connect { early_data, ..wanted }).unwrap_err();
    assert!(error.early_data_may_have_left(), "{error}");
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
