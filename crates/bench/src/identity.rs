//! A server's certificate and key: read, or made on the spot.

use std::fmt;
use std::path::Path;

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};

use crate::Error;

/// What a certificate made on the spot signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyType {
    /// ECDSA on P-256.
    #[default]
    P256,
    /// RSA with 2,048 bits.
    Rsa2048,
}

/// A certificate chain and its key. The key is not printed.
#[derive(Clone)]
pub struct Identity {
    pub(crate) chain: Vec<X509>,
    pub(crate) key: PKey<Private>,
}

impl Identity {
    /// A self-signed certificate for `localhost`, 127.0.0.1 and ::1, good for a month.
    ///
    /// # Errors
    /// OpenSSL's.
    pub fn made(key_type: KeyType) -> Result<Self, ErrorStack> {
        let key = match key_type {
            KeyType::P256 => {
                let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
                PKey::from_ec_key(EcKey::generate(&group)?)?
            }
            KeyType::Rsa2048 => PKey::from_rsa(Rsa::generate(2_048)?)?,
        };
        Ok(Self { chain: vec![self_signed(&key)?], key })
    }

    /// A chain and a key from PEM files.
    ///
    /// # Errors
    /// A file that cannot be read, holds something else, or is another certificate's key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let chain =
            X509::stack_from_pem(&read(certificate)?).ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| not_pem(certificate, "certificate"))?;
        // Without a callback OpenSSL would ask on the terminal for the phrase of an encrypted key.
        let private = PKey::private_key_from_pem_callback(&read(key)?, |_| Ok(0));
        let private = private.map_err(|_| not_pem(key, "unencrypted private key"))?;
        if !chain[0].public_key()?.public_eq(&private) {
            let (key, certificate) = (key.to_owned(), certificate.to_owned());
            return Err(Error::Mismatch { key, certificate });
        }
        Ok(Self { chain, key: private })
    }

    /// Writes chain and key as PEM, the key readable by its owner only.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<(), Error> {
        self.write_certificate(certificate)?;
        write_private(key, &self.key.private_key_to_pem_pkcs8()?)
    }

    /// Writes the chain as PEM.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_certificate(&self, certificate: &Path) -> Result<(), Error> {
        let mut chain = Vec::new();
        for link in &self.chain {
            chain.extend(link.to_pem()?);
        }
        write_private(certificate, &chain)
    }
}

/// The certificates of a PEM file: at least one.
///
/// # Errors
/// A file that cannot be read, or that holds none.
pub fn read_certificates(path: &Path) -> Result<Vec<X509>, Error> {
    let certificates = X509::stack_from_pem(&read(path)?).ok();
    certificates.filter(|all| !all.is_empty()).ok_or_else(|| not_pem(path, "certificate"))
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

fn self_signed(key: &PKey<Private>) -> Result<X509, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, "localhost")?;
    let name = name.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
    let mut certificate = X509Builder::new()?;
    certificate.set_version(2)?;
    certificate.set_serial_number(&*serial.to_asn1_integer()?)?;
    certificate.set_subject_name(&name)?;
    certificate.set_issuer_name(&name)?;
    certificate.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    certificate.set_not_after(&*Asn1Time::days_from_now(30)?)?;
    certificate.set_pubkey(key)?;
    certificate.append_extension(BasicConstraints::new().critical().ca().build()?)?;
    let names = SubjectAlternativeName::new()
        .dns("localhost")
        .ip("127.0.0.1")
        .ip("::1")
        .build(&certificate.x509v3_context(None, None))?;
    certificate.append_extension(names)?;
    certificate.sign(key, MessageDigest::sha256())?;
    Ok(certificate.build())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn not_pem(path: &Path, what: &'static str) -> Error {
    Error::NotPem { path: path.to_owned(), what }
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .map_err(|source| Error::File { path: path.to_owned(), source })
}
