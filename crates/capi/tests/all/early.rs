//! Early data that nobody can replay: `early_data = once`, in nginx and HAProxy, and without Rejoin for comparison.

use std::path::Path;
use std::thread;

use rejoin_cache::{Counters, EarlyCounters};
use rejoin_store::Store;
use rejoin_testkit::site::{Client, Flight, Origin, Site, Versions};

const NGINX: &str = "\
daemon off; master_process on; worker_processes 4; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 512; }
http {
  include FOLDER/nginx-http.conf;
  server {
    listen 127.0.0.1:@PORT@ ssl reuseport; ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on; @MORE@
    location / { proxy_pass http://@ORIGIN@; proxy_set_header Early-Data $ssl_early_data; }
  }
}
";

const HAPROXY: &str = "\
@DEFAULTS@
global
  nbthread 4
  ssl-default-bind-options ssl-min-ver TLSv1.2
frontend front
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem allow-0rtt
  default_backend back
backend back
  server one @ORIGIN@
";

struct Server {
    site: Site,
    origin: Origin,
}

impl Server {
    /// Starts a server, with Rejoin if there are settings. `None` if it is not installed.
    fn start(program: &str, settings: Option<&str>) -> Option<Self> {
        Self::start_with(program, settings, "")
    }

    /// The same, with more settings of nginx.
    fn start_with(program: &str, settings: Option<&str>, more: &str) -> Option<Self> {
        let name = format!("early-{program}-{}-{}", settings.is_some(), more.is_empty());
        let mut site = Site::new(&name);
        match settings {
            Some(settings) => site.configure(settings),
            None => site.environment.clear(),
        }
        let origin = Origin::start();
        let configuration = if program == "nginx" { NGINX } else { HAPROXY };
        let address = origin.address.to_string();
        let configuration = configuration.replace("@ORIGIN@", &address);
        site.write("configuration", &configuration.replace("@MORE@", more));
        let file = site.shown("configuration");
        let arguments = if program == "nginx" { ["-c", &file] } else { ["-f", &file] };
        site.start(program, &arguments)?;
        Some(Self { site, origin })
    }

    /// A client that has a session.
    fn client(&self) -> Client {
        let client = self.site.client(Versions::Tls13);
        client.ask_early("/first");
        client
    }

    /// Sends a flight again, from several threads at the same time.
    fn replay(&self, flight: &Flight, times: usize) {
        let address = self.site.address();
        let again = |_| {
            let flight = flight.clone();
            thread::spawn(move || (0..times / 4).for_each(|_| flight.replay(address)))
        };
        let threads: Vec<_> = (0..4).map(again).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    }
}

fn store(site: &Site) -> Store {
    Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("the server's cache")
}

#[test]
fn no_copy_of_a_first_flight_is_accepted() {
    for program in ["nginx", "haproxy"] {
        let Some(server) = Server::start(program, Some("early_data = once")) else { continue };
        for turn in 0..10 {
            let path = format!("/{turn}");
            let flight = server.client().ask_early(&path);
            let counted = store(&server.site).cache().early_counters();
            assert!(
                flight.resumed && flight.accepted,
                "{program}: {path}: resumed {}, accepted {}, {} bytes, {counted:?}",
                flight.resumed,
                flight.accepted,
                flight.bytes.len()
            );
            server.replay(&flight, 20);
            assert_eq!(server.origin.requests(&path), 1, "{program}: {path}");
        }
    }
}

/// A client whose key share the server does not take sends a second ClientHello (RFC 8446, section 4.1.4). It resumes, as
/// without Rejoin, once, and its early data is rejected.
#[test]
fn a_session_resumes_over_a_second_client_hello() {
    for settings in [None, Some("early_data = once")] {
        let server = Server::start_with("nginx", settings, "ssl_ecdh_curve secp384r1;");
        let Some(Server { site, .. }) = server else { return };
        // The second group is the server's only one.
        let retried = |more: &[&str]| {
            let told = site.s_client("/again", &[&["-groups", "X25519:P-384"], more].concat());
            assert!(told.contains("secp384r1"), "{told}");
            let early = told.contains("Early data was accepted");
            assert!(!early, "{settings:?}: {told}");
            told.contains("Reused, TLSv1.3")
        };
        let again = ["-sess_in", "session", "-early_data", "request"];
        assert!(!retried(&["-sess_out", "session"]), "{settings:?}: there is no session yet");
        assert!(retried(&again), "{settings:?}");
        assert_eq!(retried(&again), settings.is_none(), "{settings:?}: the session is used up");
        if settings.is_some() {
            let store = store(&site);
            let Counters { full_handshakes, resumed_handshakes, .. } = store.cache().counters();
            assert_eq!([full_handshakes, resumed_handshakes], [2, 1], "each is counted once");
            let EarlyCounters { declined, unknown, accepted, .. } = store.cache().early_counters();
            assert_eq!([declined, unknown, accepted], [1, 1, 0]);
        }
    }
}

/// Shows that the danger is real.
#[test]
fn copies_are_accepted_without_rejoin() {
    let Some(server) = Server::start("nginx", None) else { return };
    // Without Rejoin, early data of a session that another worker made is rejected.
    let mut turns = 0..100;
    let accepted = turns.find_map(|turn| {
        let path = format!("/{turn}");
        let flight = server.client().ask_early(&path);
        flight.accepted.then_some((path, flight))
    });
    let (path, flight) = accepted.expect("the same worker at some time");
    server.replay(&flight, 40);
    assert!(server.origin.requests(&path) > 1);
}
