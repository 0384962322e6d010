//! TLS with a Valkey that requires a client certificate and a password.

use rcgen::{DistinguishedName, DnType};
use rejoin_cluster::{Link, Login, NodeAddress, Place, Servers, TlsFiles};
use rejoin_testkit::certificates::Authority;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::port;
use rejoin_testkit::valkey::Valkey;
use zeroize::Zeroizing;

const PASSWORD: &str = "correct horse battery staple";

/// Writes an authority's certificate, and a pair that it signed, as files that begin with `name`. All authorities have
/// the same subject.
fn write_files(folder: &Folder, name: &str) {
    let authority = Authority::with(|params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "authority");
    });
    folder.write(&format!("{name}-ca.pem"), authority.pem());
    authority.issue(&["localhost"]).write(&folder.join(name));
}

#[tokio::test]
async fn who_has_certificate_and_password_is_let_in_and_nobody_else() {
    let folder = Folder::new();
    write_files(&folder, "ours");
    write_files(&folder, "theirs");
    let file = |name: &str| folder.join(name);
    let port = port::reserve();
    let user =
        format!("on >{} ~rejoin:* resetchannels -@all +@connection", PASSWORD.replace(' ', "-"));
    let mut arguments: Vec<String> =
        ["--tls-port", &port.to_string(), "--tls-auth-clients", "yes"].map(str::to_owned).into();
    for (option, name) in [
        ("--tls-cert-file", "ours.pem"),
        ("--tls-key-file", "ours.key"),
        ("--tls-ca-cert-file", "ours-ca.pem"),
    ] {
        arguments.extend([option.to_owned(), folder.file(name)]);
    }
    arguments.extend(["--user".to_owned(), "agent".to_owned()]);
    arguments.extend(user.split(' ').map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _valkey = Valkey::start(&arguments);

    let tls = |ca: &str, whose: Option<&str>| {
        let [certificate, key] =
            ["pem", "key"].map(|ending| Some(file(&format!("{}.{ending}", whose?))));
        TlsFiles { ca: Some(file(ca)), certificate, key }.read().expect("files")
    };
    let at = |host| Place::Primary(vec![NodeAddress::new(host, port).expect("a host")]);
    let agent =
        |password: String| Login::new(Some("agent".to_owned()), Some(Zeroizing::new(password)));
    let right = Servers {
        place: at("localhost"),
        login: agent(PASSWORD.replace(' ', "-")),
        tls: Some(tls("ours-ca.pem", Some("ours"))),
    };
    let mut link = Link::connect(&right).await.expect("let in");
    let who: String =
        redis::cmd("ACL").arg("WHOAMI").query_async(&mut link).await.unwrap_or_default();
    let pong: String = redis::cmd("PING").query_async(&mut link).await.expect("an answer");
    assert!(pong == "PONG" && (who.is_empty() || who == "agent"));

    let other_authority = tls("theirs-ca.pem", Some("ours"));
    let nobody = tls("ours-ca.pem", None);
    let stranger = tls("ours-ca.pem", Some("theirs"));
    let wrong = [
        Servers { tls: Some(other_authority), ..right.clone() },
        Servers { tls: Some(nobody), ..right.clone() },
        Servers { tls: Some(stranger), ..right.clone() },
        Servers { tls: None, ..right.clone() },
        Servers { login: agent("wrong-password".to_owned()), ..right.clone() },
        Servers { place: at("127.0.0.1"), ..right.clone() },
    ];
    for servers in wrong {
        let error = Link::connect(&servers).await.expect_err("kept out");
        let told = format!("{error} {error:?} {servers:?}");
        assert!(!told.contains("wrong-password") && !told.contains("battery"), "{told}");
    }
}
