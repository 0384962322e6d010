//! Clients that have certificates of one authority, as devices of one maker have.

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder, X509Ref};

use crate::Error;
use rejoin_serve::{Identity, KeyType, authority_parameters};

/// The authority that signs the clients' certificates, and the key that all of them share: a key for each would take
/// long to make and change nothing for the server that decodes.
pub(super) struct Authority {
    identity: Identity,
    key: PKey<Private>,
}

/// The certificate and key that a client shows.
pub(super) struct Shown<'a> {
    pub(super) certificate: X509,
    pub(super) key: &'a PKey<Private>,
}

impl Authority {
    pub(super) fn new(key_type: KeyType) -> Result<Self, Error> {
        let key = Identity::made(key_type)?.openssl_key()?.to_owned();
        let own = key_type.generate()?;
        let parameters = authority_parameters("Rejoin's measuring authority", &[])?;
        let certificate = parameters.self_signed(&own)?;
        Ok(Self { identity: Identity::of(&[certificate.der().as_ref()], &own)?, key })
    }

    pub(super) fn certificate(&self) -> &X509Ref {
        &self.identity.certificates()[0]
    }

    /// The certificate of one client, different from those of all others.
    pub(super) fn client(&self, number: usize) -> Result<Shown<'_>, Error> {
        let issuer = self.certificate();
        let host = format!("device-{number:06}.clients.example.com");
        let mut certificate = X509Builder::new()?;
        certificate.set_version(2)?;
        let serial = BigNum::from_dec_str(&format!("7{number:030}"))?;
        certificate.set_serial_number(&*serial.to_asn1_integer()?)?;
        certificate.set_subject_name(&*subject(&host)?)?;
        certificate.set_issuer_name(issuer.subject_name())?;
        certificate.set_not_before(&*Asn1Time::days_from_now(0)?)?;
        certificate.set_not_after(&*Asn1Time::days_from_now(30)?)?;
        certificate.set_pubkey(&self.key)?;
        certificate.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
        certificate.append_extension(ExtendedKeyUsage::new().client_auth().build()?)?;
        let names = SubjectAlternativeName::new()
            .dns(&host)
            .build(&certificate.x509v3_context(Some(issuer), None))?;
        certificate.append_extension(names)?;
        certificate.sign(self.identity.openssl_key()?, MessageDigest::sha256())?;
        Ok(Shown { certificate: certificate.build(), key: &self.key })
    }
}

fn subject(host: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_text("O", "An example")?;
    name.append_entry_by_text("CN", host)?;
    Ok(name.build())
}
