//! Programs on `java.net.http` and on engines of their own, which carry the records: with the provider they say what
//! they say without it.

use rejoin_testkit::port::reserve;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rejoin_manager::client::Manager;

use super::start;
use rejoin_testkit::jvm::{Believes, Jvm};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::programs::twenty;
use rejoin_testkit::stacks::{Counted, Stack, Tls, nginx_listening};

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 4096; }
http {
  access_log off; ssl_protocols PROTOCOL; ssl_session_cache shared:tls:1m;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  root FOLDER/www; client_max_body_size 64m; ssl_certificate CERTIFICATE; ssl_certificate_key KEY;
  server { listen 127.0.0.1:PORT ssl http2; location /up { dav_methods PUT; create_full_put_path on; }
           location = /session { return 200 \"session $ssl_session_reused\\n\"; } }
  server { listen 127.0.0.1:OLD ssl; ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES128-SHA; }
}
";
const BYTES: usize = 10_000_000;
const AT_ONCE: u32 = 60;

/// nginx with a large page and room for uploads.
struct Pages {
    folder: String,
    port: u16,
    /// Here it has a suite alone that Java has, and the manager has not.
    old: u16,
    _nginx: Process,
}

impl Pages {
    /// `None` where nginx is not installed.
    fn start(managed: &Managed, tls: Tls) -> Option<Self> {
        let folder = managed.file("pages");
        std::fs::create_dir_all(format!("{folder}/www")).expect("a folder");
        let big: Vec<u8> = (0..BYTES).map(|at| ((at * at) >> 7) as u8).collect();
        std::fs::write(format!("{folder}/www/big"), big).expect("a file");
        std::fs::write(format!("{folder}/www/small"), "a page\n").expect("a file");
        let (certificate, key) = managed.certify(&["localhost"]);
        let [port, old] = [reserve(), reserve()];
        let mut text = NGINX.to_owned();
        for (word, value) in [
            ("FOLDER", folder.as_str()),
            ("PROTOCOL", &format!("TLSv{}", tls.number())),
            ("PORT", &port.to_string()),
            ("OLD", &old.to_string()),
            ("CERTIFICATE", &certificate),
            ("KEY", &key),
        ] {
            text = text.replace(word, value);
        }
        let configuration = format!("{folder}/nginx.conf");
        std::fs::write(&configuration, text).expect("a file");
        let _nginx = nginx_listening(Path::new(&configuration), port)?;
        Some(Self { folder, port, old, _nginx })
    }

    fn url(&self, page: &str) -> String {
        format!("https://localhost:{}/{page}", self.port)
    }

    /// The size of what was uploaded last, which is forgotten.
    fn uploaded(&self) -> u64 {
        let file = format!("{}/www/up/file", self.folder);
        let bytes = std::fs::metadata(&file).map_or(0, |file| file.len());
        let _ = std::fs::remove_file(file);
        bytes
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_share_sessions_with_all_others() {
    for tls in Tls::ALL {
        let name = format!("http-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let Some(pages) = Pages::start(&managed, tls) else { return };
        let url = pages.url("session");
        let ask = |version| jvm.ask(true, Believes::TheAuthority, &[&url, version]);
        // The manager itself has had the server issue a session.
        assert_eq!(ask("2"), ("200; HTTP_2; session r; CN=localhost".to_owned(), true));
        assert_eq!(ask("1.1"), ("200; HTTP_1_1; session r; CN=localhost".to_owned(), true));
        let fetched = jvm.fetch(true, Believes::TheAuthority, &url);
        assert_eq!(fetched, ("200; session r; CN=localhost".to_owned(), true));
        assert_eq!(ask("2").0, "200; HTTP_2; session r; CN=localhost");
        assert_eq!(handshakes(&managed), Counted { full: 1, resumed: 4 }, "{tls:?}");
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn the_server_counts_the_sessions_of_java_http_clients_alike() {
    for tls in Tls::ALL {
        let name = format!("http-count-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let server = Stack::Rustls.start(&managed, tls).expect("it is ours");
        let url = format!("https://localhost:{}/", server.port);
        assert!(jvm.fetch(true, Believes::TheAuthority, &url).1);
        assert!(jvm.ask(true, Believes::TheAuthority, &[&url]).1);
        assert!(twenty::begin(&managed, &server, "").finish().0, "rejoin connect");
        assert!(jvm.ask(true, Believes::TheAuthority, &[&url, "1.1"]).1);
        let counted = Counted { full: 1, resumed: 3 };
        assert_eq!((handshakes(&managed), server.counted(&[])), (counted, counted), "{tls:?}");
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_decide_themselves_whom_they_believe() {
    let managed = start("http-trust");
    let Some(jvm) = Jvm::new(&managed, "http-trust") else { return };
    for tls in Tls::ALL {
        let Some(pages) = Pages::start(&managed, tls) else { return };
        for (believes, host) in [
            (Believes::TheAuthority, "localhost"),
            (Believes::AnotherOne, "localhost"),
            (Believes::TheAuthority, "127.0.0.1"),
            (Believes::Nobody, "localhost"),
        ] {
            let url = pages.url("session").replace("localhost", host);
            let [without, with] = [false, true].map(|with| {
                // Now and then the JDK's client loses the reason, also without us.
                let mut asked = (0..5).map(|_| jvm.ask(with, believes, &[&url]));
                let (said, is_well) =
                    asked.find(|(said, _)| said != "java.io.IOException").expect("a reason");
                (said.replace("session r", "session ."), is_well)
            });
            assert_eq!(with, without, "{tls:?}, {believes:?}, {host}");
        }
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_carry_large_bodies_and_many_at_once() {
    for tls in Tls::ALL {
        let name = format!("http-much-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let Some(pages) = Pages::start(&managed, tls) else { return };
        let [big, small, up] = ["big", "small", "up/file"].map(|page| pages.url(page));
        let (put, at_once) = (format!("put={BYTES}"), format!("at-once={AT_ONCE}"));
        let other = if tls == Tls::V12 { "1.1" } else { "2" };
        for words in [
            [&big, "", "2"],
            [&big, "", "1.1"],
            [&up, &put, other],
            [&small, &at_once, other],
            [&small, &at_once, "1.1"],
        ] {
            let [without, with] = [false, true].map(|with| {
                let said = jvm.ask(with, Believes::TheAuthority, &words);
                (said, pages.uploaded())
            });
            let expected = if words[0] == up { BYTES as u64 } else { 0 };
            assert!(without.0.1 && without.1 == expected, "{tls:?} {words:?}: {without:?}");
            assert_eq!(with, without, "{tls:?} {words:?}");
        }
        assert!(handshakes(&managed).resumed > 4, "{tls:?}");
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_engines_are_driven_like_the_jdks() {
    for tls in Tls::ALL {
        let name = format!("http-engine-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let Some(pages) = Pages::start(&managed, tls) else { return };
        let without = jvm.drive(false, pages.port);
        assert!(without.1, "{tls:?}: {}", without.0);
        assert_eq!(jvm.drive(true, pages.port), without, "{tls:?}");
        // Of two engines.
        assert_eq!(handshakes(&managed), Counted { full: 1, resumed: 2 }, "{tls:?}");
    }
}

/// The manager has nothing to offer there, and the server's own word counts.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_reach_servers_that_the_manager_does_not() {
    let managed = start("http-foreign");
    let Some(jvm) = Jvm::new(&managed, "http-foreign") else { return };
    let Some(pages) = Pages::start(&managed, Tls::V13) else { return };
    let old = format!("https://localhost:{}/big", pages.old);
    let nobody = format!("https://localhost:{}/", reserve());
    for url in [&old, &nobody] {
        let without = jvm.ask(false, Believes::TheAuthority, &[url]);
        assert_eq!(without.1, url == &old, "{without:?}");
        for _ in 0..2 {
            assert_eq!(jvm.ask(true, Believes::TheAuthority, &[url]), without, "{url}");
        }
    }
}

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_do_without_a_manager() {
    let mut managed = start("http-gone");
    managed.kill();
    let Some(jvm) = Jvm::new(&managed, "http-gone") else { return };
    let Some(pages) = Pages::start(&managed, Tls::V13) else { return };
    let [without, with] =
        [false, true].map(|with| jvm.ask(with, Believes::TheAuthority, &[&pages.url("session")]));
    assert!(without.1 && with == without, "{with:?}, {without:?}");
}

/// The first waits for it, and the others do not.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_http_clients_ask_a_silent_manager_once() {
    let mut managed = start("http-silent");
    managed.kill();
    std::fs::remove_file(managed.socket()).expect("it leaves its socket behind");
    let Some(jvm) = Jvm::new(&managed, "http-silent") else { return };
    let Some(pages) = Pages::start(&managed, Tls::V13) else { return };
    // Who connects to it need not be accepted to be connected.
    let silent = UnixListener::bind(managed.socket()).expect("a socket");
    silent.set_nonblocking(true).expect("a socket can");
    let [without, with] = [false, true]
        .map(|with| jvm.ask(with, Believes::TheAuthority, &[&pages.url("small"), "in-turn=3"]));
    let asked = silent.incoming().take_while(Result::is_ok).count();
    assert_eq!(without, ("3 of 3".to_owned(), true));
    assert_eq!(with, without);
    // On a machine that takes five seconds for a connection it is asked again.
    assert!(asked == 1 || asked == 2, "{asked}");
}

/// None of them failed.
fn handshakes(managed: &Managed) -> Counted {
    let counted = Manager::at(managed.socket()).stats().expect("it counts").handshakes;
    assert_eq!(counted.failed, 0, "{counted:?}");
    Counted { full: counted.full, resumed: counted.resumed }
}
