//! An SSL that a program uses again, by `SSL_clear`.

use super::{certified, lines_of_ours, make_client};
use crate::ways::compile;
use rejoin_testkit::site::{Site, Versions};

#[test]
fn an_ssl_that_is_used_again_knows_nothing_of_the_client_before() {
    for stateful in ["no", "yes"] {
        let mut site = Site::new(&format!("fault-again-{stateful}"));
        site.configure(&format!("stateful = {stateful}"));
        make_client(&site);
        let program = compile(&site, "again.c", "again", &["-lssl", "-lcrypto"]);
        let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
        let authority = site.shown("client.pem");
        site.start(&program, &[&port, &pair, &authority]).expect("compiled");
        for versions in [Versions::Tls12, Versions::Tls13] {
            let what = format!("{stateful} {versions:?}");
            let mut known = certified(&site, versions);
            known.name = "secure.example";
            assert!(!known.connect() && known.connect(), "{what}");
            let mut nobody = site.client(versions);
            assert!(!nobody.connect() && nobody.connect() && nobody.connect(), "{what}");
            assert!(known.connect(), "{what}");
            nobody.name = "secure.example";
            assert!(!nobody.connect() && nobody.connect(), "{what}");
            nobody.name = "localhost";
            assert!(!nobody.connect(), "{what}");
            let secure = ["secure.example somebody"; 3];
            assert_eq!(known.answers, secure, "{what}");
            let (open, secure) = ("localhost nobody", "secure.example nobody");
            assert_eq!(nobody.answers, [open, open, open, secure, secure, open], "{what}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}
