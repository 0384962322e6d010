//! An authority, and what it issues.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rejoin_manager::protocol::Fingerprint;

pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) der: Vec<u8>,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        // No two have one name: who is not known is told by it.
        let name = format!("Authority {}", Fingerprint::of(key.public_key_raw()));
        params.distinguished_name.push(rcgen::DnType::CommonName, &name[..32]);
        change(&mut params);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn sha256(&self) -> Fingerprint {
        Fingerprint::of(self.certificate.der())
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Pair {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        self.issue_for(&KeyPair::generate().expect("a key"), names, change)
    }

    pub(crate) fn issue_for(
        &self,
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).expect("a certificate");
        Pair {
            certificate: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn expired(&self, names: &[&str]) -> Pair {
        self.issue_with(names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }
}

impl Pair {
    pub(crate) fn sha256(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// As `STEM.pem` and `STEM.key`.
    pub(crate) fn write(&self, stem: &Path) {
        std::fs::write(stem.with_extension("pem"), &self.certificate).expect("a file");
        self.write_key(stem);
    }

    pub(crate) fn write_key(&self, stem: &Path) {
        std::fs::write(stem.with_extension("key"), &self.key).expect("a file");
    }
}
