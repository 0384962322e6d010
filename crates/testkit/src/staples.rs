//! OCSP responses (RFC 6960) about servers' certificates, which servers staple.

use std::path::Path;
use std::process::Command;

use crate::certificates::Authority;
use crate::certificates::rcgen::{ExtendedKeyUsagePurpose, KeyPair};

/// The line of `openssl ocsp`'s index that says a certificate is good, without its number.
pub const GOOD: &str = "V\t991231000000Z\t";
/// The same, that says it was revoked.
pub const REVOKED: &str = "R\t991231000000Z\t200101000000Z";

/// Writes a response about a certificate of this authority, and returns its path. `times` are options of `openssl ocsp`,
/// such as `-ndays 2`. Without them the response has no `nextUpdate`.
pub fn staple(
    folder: &Path,
    authority: &Authority,
    certificate: &str,
    (status, times): (&str, &[&str]),
) -> String {
    let pair = KeyPair::generate().expect("a key");
    let signer = authority.issue_for(&pair, &["responder"], |parameters| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    });
    signer.write(&folder.join("responder"));
    let file = |name: &str| folder.join(name).display().to_string();
    let [ca, index, request] = ["responders-ca.pem", "index.txt", "request.der"].map(file);
    let [signer, key] = ["responder.pem", "responder.key"].map(file);
    let response = format!("{certificate}.ocsp");
    std::fs::write(&ca, authority.pem()).expect("a file");
    let serial = openssl(&["x509", "-noout", "-serial", "-in", certificate]);
    let serial = serial.trim().trim_start_matches("serial=");
    std::fs::write(&index, format!("{status}\t{serial}\tunknown\t/CN=localhost\n"))
        .expect("a file");
    let asks = ["-issuer", &ca, "-cert", certificate, "-no_nonce", "-reqout", &request];
    openssl(&[&["ocsp"], &asks[..]].concat());
    let signs = ["-rsigner", &signer, "-rkey", &key, "-CA", &ca, "-index", &index];
    let answers = ["-reqin", &request, "-respout", &response];
    openssl(&[&["ocsp"], &signs[..], &answers[..], times].concat());
    response
}

fn openssl(words: &[&str]) -> String {
    let output = Command::new("openssl").args(words).output().expect("openssl is installed");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}
