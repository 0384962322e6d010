//! Valkey over TLS, which asks for a certificate and a password.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rejoin_cluster::{Link, Servers, TlsFiles};
use zeroize::Zeroizing;

mod valkey;

use valkey::{Valkey, free_port};

const PASSWORD: &str = "correct horse battery staple";

/// An authority's certificate, and a pair that it signed, as files that begin with `name`.
fn write_files(folder: &Path, name: &str) {
    let mut params = CertificateParams::new([]).expect("names");
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("signed");
    let write = |what, text: &str| fs::write(folder.join(format!("{name}-{what}")), text);
    write("ca.pem", &authority.pem()).expect("written");
    write("cert.pem", &certificate.pem()).expect("written");
    write("key.pem", &key.serialize_pem()).expect("written");
}

#[tokio::test]
async fn who_has_certificate_and_password_is_let_in_and_nobody_else() {
    let folder = std::env::temp_dir().join(format!("test-of-rejoin-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    write_files(&folder, "ours");
    write_files(&folder, "theirs");
    let file = |name: &str| folder.join(name);
    let shown = |name: &str| file(name).display().to_string();
    let port = free_port();
    let user =
        format!("on >{} ~rejoin:* resetchannels -@all +@connection", PASSWORD.replace(' ', "-"));
    let mut arguments: Vec<String> =
        ["--tls-port", &port.to_string(), "--tls-auth-clients", "yes"].map(str::to_owned).into();
    for (option, name) in [
        ("--tls-cert-file", "ours-cert.pem"),
        ("--tls-key-file", "ours-key.pem"),
        ("--tls-ca-cert-file", "ours-ca.pem"),
    ] {
        arguments.extend([option.to_owned(), shown(name)]);
    }
    arguments.extend(["--user".to_owned(), "agent".to_owned()]);
    arguments.extend(user.split(' ').map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _valkey = Valkey::start(&arguments).await;

    let tls = |ca: &str, whose: Option<&str>| {
        let [certificate, key] =
            ["cert", "key"].map(|what| Some(file(&format!("{}-{what}.pem", whose?))));
        TlsFiles { ca: Some(file(ca)), certificate, key }.read().expect("files")
    };
    let right = Servers {
        addresses: vec![("localhost".to_owned(), port)],
        clustered: false,
        user: Some("agent".to_owned()),
        password: Some(Zeroizing::new(PASSWORD.replace(' ', "-"))),
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
        Servers { password: Some(Zeroizing::new("wrong-password".to_owned())), ..right.clone() },
        Servers { addresses: vec![("127.0.0.1".to_owned(), port)], ..right.clone() },
    ];
    for servers in wrong {
        let error = Link::connect(&servers).await.expect_err("kept out");
        let told = format!("{error} {error:?} {servers:?}");
        assert!(!told.contains("wrong-password") && !told.contains("battery"), "{told}");
    }
    fs::remove_dir_all(&folder).expect("ours");
}
