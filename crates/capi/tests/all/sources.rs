//! The share of a cache that the clients of one source can have, in a real nginx.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use rejoin_cache::Counters;
use rejoin_store::Store;
use rejoin_testkit::site::{Client, Site, Versions};

use crate::faults::NGINX;

const FLOOD: u8 = 60;

/// The clients of one network come first, and as many as they like. Then one comes from another.
#[test]
fn a_network_that_floods_nginx_gets_its_share_and_nobody_elses() {
    for (share, is_bounded) in [("", false), ("source_share = 1%", true)] {
        for versions in [Versions::Tls12, Versions::Tls13] {
            let mut site = Site::new(&format!("sources-{is_bounded}-{versions:?}"));
            site.configure(&format!("{share}\nstateful = yes"));
            site.write("configuration", &NGINX.replace("@MORE@", ""));
            let configuration = site.shown("configuration");
            let Some(()) = site.start("nginx", &["-c", &configuration]) else { return };
            let mut flood: Vec<Client> = (0..FLOOD).map(|_| site.client(versions)).collect();
            for (number, client) in (1..).zip(&mut flood) {
                assert!(!client.connect_from(Ipv4Addr::new(127, 0, 0, number)));
            }
            let mut honest = site.client(versions);
            let elsewhere = Ipv4Addr::new(127, 9, 9, 1);
            assert!(!honest.connect_from(elsewhere) && honest.connect_from(elsewhere));
            let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("there");
            // A client of TLS 1.3 has two sessions. Each shard has a share of its own.
            let sessions = store.cache().counters().sessions;
            let places = store.cache().capacity_sessions();
            let Counters { evicted_source_share, refused_source_share, .. } =
                store.cache().counters();
            let bounded = evicted_source_share + refused_source_share;
            if is_bounded {
                assert!(sessions <= places / 100 + 3, "{versions:?}: {sessions} of {places}");
                assert!(bounded >= u64::from(FLOOD) - places / 100, "{versions:?}: {bounded}");
            } else {
                assert!(sessions >= u64::from(FLOOD), "{versions:?}: {sessions}");
                assert_eq!(bounded, 0);
            }
            let resumed = flood.iter_mut().filter_map(|client| client.try_connect().ok());
            let resumed = resumed.filter(|resumed| *resumed).count();
            assert_eq!(resumed == usize::from(FLOOD), !is_bounded, "{versions:?}: {resumed}");
            assert!(honest.connect_from(elsewhere), "{versions:?}: it lost its place");
        }
    }
}

/// A program that moves the bytes itself tells libssl no socket.
#[test]
fn it_is_said_where_a_source_is_not_known() {
    let mut site = Site::new("sourceless");
    site.configure("source_share = 10%\nsource_by = certificate\nstateful = yes");
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let server = ["s_server", "-accept", &port, "-www", "-cert", &pair, "-key", &pair];
    site.start("openssl", &server).expect("it is installed");
    let mut client = site.client(Versions::Tls13);
    assert!(!client.connect() && client.connect());
    site.stop();
    let told = fs::read_to_string(site.file("stderr")).expect("text");
    let about = "source_share does not bound clients without a certificate";
    assert_eq!(told.matches(about).count(), 1, "{told}");
}
