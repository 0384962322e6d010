//! Programs hear nothing of what does not concern them.

use std::process::Command;

use rejoin_testkit::manager::Managed;
use rejoin_testkit::shipped::library;

use crate::program::text;

/// A context that could serve, as Perl, Ruby and psql make one, and a connection.
const CLIENT: &str = "\
import ssl, warnings
warnings.simplefilter('ignore')
context = ssl.SSLContext(ssl.PROTOCOL_TLS)
context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())
";

#[test]
fn a_client_hears_nothing_of_a_cache_that_nobody_named() {
    let managed = Managed::start("quiet");
    let run = |named: Option<&str>| {
        let mut client = Command::new("/usr/bin/python3");
        client.args(["-c", CLIENT]).env("LD_PRELOAD", library("librejoin_preload.so"));
        client.env("REJOIN_MANAGER", managed.socket());
        if let Some(named) = named {
            client.env("REJOIN_CACHE", named);
        }
        text(&client.output().expect("it runs").stderr)
    };
    assert_eq!(run(None), "");
    // A process of root's opens a cache that is named at once.
    if rustix::process::geteuid().is_root() {
        assert!(run(Some("nobody-makes-this")).contains("no cache nobody-makes-this"));
    }
}
