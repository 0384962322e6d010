//! Certificates: authorities, what they issue, and self-signed ones.

use std::path::Path;
use std::time::Duration;

pub use rcgen;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

/// A certificate authority that signs what a test asks for.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate, PEM.
    pub certificate: String,
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// The private key, PEM of PKCS #8.
    pub key: String,
    /// The private key, DER of PKCS #8.
    pub key_der: Vec<u8>,
}

impl Authority {
    /// An authority whose name no other has: OpenSSL and others look an issuer up by its name.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, with its parameters changed.
    pub fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (mut parameters, key) = authority();
        change(&mut parameters);
        Self { issuer: CertifiedIssuer::self_signed(parameters, key).expect("a certificate") }
    }

    /// The same, with this key.
    pub fn with_key(key: KeyPair) -> Self {
        let (parameters, _) = authority();
        Self { issuer: CertifiedIssuer::self_signed(parameters, key).expect("a certificate") }
    }

    /// An authority that this one has certified.
    pub fn below(&self) -> Self {
        self.below_with(|_| {})
    }

    /// The same, with its parameters changed.
    pub fn below_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (mut parameters, key) = authority();
        change(&mut parameters);
        let issuer = CertifiedIssuer::signed_by(parameters, key, &self.issuer);
        Self { issuer: issuer.expect("a certificate") }
    }

    /// A list of the certificates with these numbers as revoked, PEM, which holds for as long as anybody tests.
    pub fn revocation_list(&self, revoked_numbers: &[u64]) -> String {
        self.revocation_list_until(revoked_numbers, Duration::from_secs(4_733_510_400))
    }

    /// The same, which holds until this Unix time.
    pub fn revocation_list_until(&self, revoked_numbers: &[u64], until: Duration) -> String {
        let since = date_time_ymd(2020, 1, 1);
        let until = date_time_ymd(1970, 1, 1) + until;
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: since,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: since,
            next_update: until,
            crl_number: SerialNumber::from(revoked_numbers.len() as u64 + 1),
            issuing_distribution_point: None,
            revoked_certs: revoked_numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its private key, PEM of PKCS #8.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Its certificate, DER.
    pub fn der(&self) -> &[u8] {
        self.issuer.der()
    }

    /// A certificate for servers and clients of these names, the first of which is its subject,
    /// and a new P-256 key.
    pub fn issue(&self, names: &[&str]) -> Pair {
        self.issue_with(names, |_| {})
    }

    /// The same, with its parameters changed.
    pub fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        self.issue_for(&new_key(), names, change)
    }

    /// The same, for this key.
    pub fn issue_for(
        &self,
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let mut parameters = leaf(names);
        // Python 3.13 demands it.
        parameters.use_authority_key_identifier_extension = true;
        change(&mut parameters);
        Pair::of(&parameters.signed_by(key, &self.issuer).expect("a certificate"), key)
    }

    /// A certificate that was valid in 2020.
    pub fn expired(&self, names: &[&str]) -> Pair {
        self.issue_with(names, |parameters| {
            parameters.not_before = date_time_ymd(2020, 1, 1);
            parameters.not_after = date_time_ymd(2021, 1, 1);
        })
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// A self-signed certificate for these names, and a new P-256 key.
    pub fn self_signed(names: &[&str]) -> Self {
        Self::self_signed_for(&new_key(), names, |_| {})
    }

    /// The same, for this key and with its parameters changed.
    pub fn self_signed_for(
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut parameters = leaf(names);
        change(&mut parameters);
        Self::of(&parameters.self_signed(key).expect("a certificate"), key)
    }

    /// An authority of its own for this machine, as `rejoin serve` makes: clients may be told to trust it.
    pub fn of_localhost() -> Self {
        Self::self_signed_for(&new_key(), &["localhost", "127.0.0.1", "::1"], |parameters| {
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        })
    }

    /// Writes `STEM.pem` and `STEM.key`.
    pub fn write(&self, stem: &Path) {
        self.write_certificate(stem);
        self.write_key(stem);
    }

    /// Writes the certificate as `STEM.pem`.
    pub fn write_certificate(&self, stem: &Path) {
        std::fs::write(with_ending(stem, "pem"), &self.certificate).expect("a file");
    }

    /// Writes the key as `STEM.key`.
    pub fn write_key(&self, stem: &Path) {
        std::fs::write(with_ending(stem, "key"), &self.key).expect("a file");
    }

    fn of(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        Self {
            certificate: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
            key_der: key.serialize_der(),
        }
    }
}

/// The parameters of an authority of a new name, and its key.
fn authority() -> (CertificateParams, KeyPair) {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key");
    let tail = key.public_key_raw().iter().rev().take(8);
    let number: String = tail.map(|byte| format!("{byte:02x}")).collect();
    parameters.distinguished_name.push(DnType::CommonName, format!("Authority {number}"));
    (parameters, key)
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn leaf(names: &[&str]) -> CertificateParams {
    let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(all).expect("names");
    if let Some(first) = names.first() {
        parameters.distinguished_name.push(DnType::CommonName, *first);
    }
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    parameters
}

/// `STEM.ENDING`; the stem may have dots of its own, as names of hosts have.
fn with_ending(stem: &Path, ending: &str) -> std::path::PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(".");
    path.push(ending);
    path.into()
}
