//! Self-signed certificates for the servers and clients of tests.

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::SslContextBuilder;
use openssl::x509::X509Builder;

/// Gives a context a certificate of its own, for today, and its key.
pub(crate) fn certify(context: &mut SslContextBuilder) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("P-256");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let mut certificate = X509Builder::new().expect("a certificate");
    certificate.set_pubkey(&key).expect("its key");
    certificate.set_not_before(&Asn1Time::days_from_now(0).expect("today")).expect("its start");
    certificate.set_not_after(&Asn1Time::days_from_now(1).expect("tomorrow")).expect("its end");
    certificate.sign(&key, MessageDigest::sha256()).expect("its signature");
    context.set_certificate(&certificate.build()).expect("a certificate");
    context.set_private_key(&key).expect("a key");
}
