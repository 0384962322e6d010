//! nginx that asks a responder about its clients (`ssl_ocsp`), also when they resume.

use std::fs;

use openssl::x509::X509;
use rejoin_testkit::certificates::{Authority, Pair};
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Client, Site, Versions};

use super::NGINX;

/// The answer: the client as nginx knows it, and `r` if the session was resumed, or else `.`.
const WHO: &str = r#"return 200 "$ssl_client_verify $ssl_session_reused\n";"#;

/// Makes a site whose client has a certificate of an intermediate authority, and another one with the responder of that.
fn sites(name: &str) -> [Site; 2] {
    let [site, mut responder] =
        ["", "-responder"].map(|more| Site::new(&format!("fault-ocsp-{name}{more}")));
    let root = Authority::new();
    let below = root.below();
    let Pair { certificate, key, .. } = below.issue(&["device"]);
    let of_client = X509::from_pem(certificate.as_bytes()).expect("a certificate");
    let serial = of_client.serial_number().to_bn().and_then(|number| number.to_hex_str());
    let serial = serial.expect("a number").to_string();
    site.write("root.pem", &root.pem());
    site.write("both-authorities.pem", &(root.pem() + &below.pem()));
    site.write("device.pem", &(certificate + &below.pem() + &key));
    responder.write("below.pem", &(below.pem() + &below.key_pem()));
    responder.write("index", &format!("V\t491231235959Z\t\t{serial}\tunknown\t/CN=device\n"));
    responder.environment.clear();
    let port = responder.port.to_string();
    let below = responder.shown("below.pem");
    let signed = ["-CA", &below, "-rsigner", &below, "-rkey", &below, "-index", "index"];
    let mut command = responder.command("openssl");
    // It waits for ever for the request of a client that only connects.
    let child = command.args(["ocsp", "-port", &port]).args(signed).spawn().expect("installed");
    responder.running.push(child);
    wait_until("the responder", || {
        fs::read_to_string(responder.file("stderr")).is_ok_and(|told| told.contains("waiting for"))
    });
    [site, responder]
}

/// Starts nginx again, and returns whether each of three visits resumed. `None`: it is not installed.
fn visits(site: &mut Site, program: &str, client: &mut Client, more: &str) -> Option<[bool; 3]> {
    let asks = format!("ssl_verify_client on; ssl_verify_depth 3; {more}");
    // Under another name its sessions resume in one worker alone.
    let one = NGINX.replace("worker_processes 2", "worker_processes 1");
    let configuration = one.replace("return 200 \"$pid\\n\";", WHO).replace("@MORE@", &asks);
    site.stop();
    site.write("nginx.conf", &configuration);
    let configuration = site.shown("nginx.conf");
    site.start(program, &["-c", &configuration])?;
    client.answers.clear();
    let resumed = [(); 3].map(|()| client.connect());
    let expected = resumed.map(|resumed| format!("SUCCESS {}", if resumed { "r" } else { "." }));
    let log = fs::read_to_string(site.file("error.log")).unwrap_or_default();
    assert_eq!(client.answers, expected, "{more}: {log}");
    Some(resumed)
}

/// A session does not hold the intermediate certificate that its client has sent, and nginx ends a resumed connection whose
/// chain it cannot build.
#[test]
fn who_was_verified_by_an_intermediate_that_the_store_lacks_is_not_cut_off() {
    // The name of its file says nothing.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("nginx"));
    let Some(nginx) = found.find(|nginx| nginx.exists()) else { return };
    for (tickets, is_renamed) in [("off", false), ("on", false), ("off", true)] {
        let [mut site, responder] = sites(&format!("{tickets}-{is_renamed}"));
        let renamed = site.file("web");
        std::os::unix::fs::symlink(&nginx, &renamed).expect("a link");
        let program = if is_renamed { renamed } else { nginx.clone() }.display().to_string();
        let ocsp =
            format!("ssl_ocsp leaf; ssl_ocsp_responder http://127.0.0.1:{}/;", responder.port);
        let more = |file: &str, ocsp: &str| {
            format!("ssl_session_tickets {tickets}; ssl_client_certificate FOLDER/{file}; {ocsp}")
        };
        for versions in [Versions::Tls12, Versions::Tls13] {
            let device = site.file("device.pem");
            let mut client = Client::presenting(site.address(), versions, Some(&device));
            let lacking = more("root.pem", "");
            let Some(resumed) = visits(&mut site, &program, &mut client, &lacking) else { return };
            assert_eq!(resumed, [false, true, true], "{versions:?}: nobody asks the responder");
            // The sessions from before are not resumed, either.
            let lacking = more("root.pem", &ocsp);
            let resumed = visits(&mut site, &program, &mut client, &lacking);
            assert_eq!(resumed, Some([false; 3]), "{versions:?}: the chain cannot be built");
            let complete = more("both-authorities.pem", &ocsp);
            let resumed = visits(&mut site, &program, &mut client, &complete);
            assert_eq!(resumed, Some([false, true, true]), "{versions:?}: it can");
        }
    }
}
