//! A server's certificate and key, which are read from files or newly made.

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use openssl::pkey::{PKey, Private};
use openssl::ssl::SslContextBuilder;
use openssl::x509::X509;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Error;
use crate::Versions;

/// The type of the key of a new certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyType {
    /// ECDSA on P-256.
    #[default]
    P256,
    /// RSA with 2,048 bits.
    Rsa2048,
    /// ML-DSA-65 (FIPS 204), which no quantum computer is known to break. It works in TLS 1.3 only
    /// (draft-ietf-tls-mldsa) and needs OpenSSL 3.5 or later.
    MlDsa65,
}

impl KeyType {
    /// Returns the name for tables; the command line uses it in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::Rsa2048 => "RSA-2048",
            Self::MlDsa65 => "ML-DSA-65",
        }
    }

    /// Checks that certificates with this type of key work in these TLS versions.
    ///
    /// # Errors
    /// Fails for ML-DSA, unless TLS 1.3 is the only version.
    pub fn check(self, versions: Versions) -> Result<(), Error> {
        match self {
            Self::MlDsa65 if versions != Versions::Tls13 => Err(Error::Settings(
                "ML-DSA works in TLS 1.3 only: give --tls 1.3, or another type of key",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the system's OpenSSL can use the type of key, too.
    ///
    /// # Errors
    /// Fails like [`KeyType::check`], and for ML-DSA if OpenSSL is older than 3.5.
    pub fn check_openssl(self, versions: Versions) -> Result<(), Error> {
        self.check(versions)?;
        match self {
            Self::MlDsa65 => Identity::made(self)?.openssl_key().map(drop),
            _ => Ok(()),
        }
    }

    fn algorithm(self) -> &'static rcgen::SignatureAlgorithm {
        match self {
            Self::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::Rsa2048 => &rcgen::PKCS_RSA_SHA256,
            Self::MlDsa65 => &rcgen::PKCS_ML_DSA_65,
        }
    }

    /// Makes a new key.
    ///
    /// # Errors
    /// Fails if the library cannot make the key.
    pub fn generate(self) -> Result<KeyPair, Error> {
        Ok(KeyPair::generate_for(self.algorithm())?)
    }
}

/// A certificate chain and its key. The key is not printed.
#[derive(Clone)]
pub struct Identity {
    chain: Vec<X509>,
    key: Key,
}

#[derive(Clone)]
enum Key {
    Known(PKey<Private>),
    /// A key of a type that the system's OpenSSL cannot read.
    Unknown(std::sync::Arc<PrivatePkcs8KeyDer<'static>>),
}

impl Identity {
    /// Makes a self-signed certificate for `localhost`, 127.0.0.1 and ::1, valid for a month. It is not an
    /// authority's: webpki refuses an authority's certificate as a server's, even where it is trusted.
    ///
    /// # Errors
    /// Fails if the library cannot make the key or the certificate.
    pub fn made(key_type: KeyType) -> Result<Self, Error> {
        let key = key_type.generate()?;
        let mut parameters =
            certificate_parameters("localhost", &["localhost", "127.0.0.1", "::1"])?;
        parameters.is_ca = IsCa::ExplicitNoCa;
        let certificate = parameters.self_signed(&key)?;
        Self::of(&[certificate.der().as_ref()], &key)
    }

    /// Returns the identity of certificates in DER, the end certificate first, and their key.
    ///
    /// # Errors
    /// A certificate that OpenSSL cannot read.
    pub fn of(chain: &[&[u8]], key: &KeyPair) -> Result<Self, Error> {
        let chain = chain.iter().map(|der| X509::from_der(der)).collect::<Result<_, _>>()?;
        let der = key.serialize_der();
        let key = match PKey::private_key_from_pkcs8(&der) {
            Ok(key) => Key::Known(key),
            Err(_) => Key::Unknown(std::sync::Arc::new(PrivatePkcs8KeyDer::from(der))),
        };
        Ok(Self { chain, key })
    }

    /// Reads a chain and a key from PEM files.
    ///
    /// # Errors
    /// A file that cannot be read, holds something else, or is another certificate's key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let chain =
            X509::stack_from_pem(&read(certificate)?).ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| not_pem(certificate, "certificate"))?;
        // Without a callback OpenSSL would prompt for the passphrase of an encrypted key.
        let private = PKey::private_key_from_pem_callback(&read(key)?, |_| Ok(0));
        let private = private.map_err(|_| not_pem(key, "unencrypted private key"))?;
        if !chain[0].public_key()?.public_eq(&private) {
            let (key, certificate) = (key.to_owned(), certificate.to_owned());
            return Err(Error::Mismatch { key, certificate });
        }
        Ok(Self { chain, key: Key::Known(private) })
    }

    /// Writes chain and key as PEM, the key readable by its owner only.
    ///
    /// # Errors
    /// A file that cannot be written, or a key of a type that the system's OpenSSL does not support.
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<(), Error> {
        self.write_certificate(certificate)?;
        write_private(key, &self.openssl_key()?.private_key_to_pem_pkcs8()?)
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

    /// Returns the certificates, the end certificate first.
    pub fn certificates(&self) -> &[X509] {
        &self.chain
    }

    /// Sets chain and key of a context.
    ///
    /// # Errors
    /// An empty chain, a key of a type that the system's OpenSSL does not support, or an error of
    /// OpenSSL.
    pub fn install(&self, context: &mut SslContextBuilder) -> Result<(), Error> {
        let key = self.openssl_key()?;
        let (leaf, issuers) = self
            .chain
            .split_first()
            .ok_or(Error::Settings("the certificate chain is empty: give a certificate"))?;
        context.set_certificate(leaf)?;
        for issuer in issuers {
            context.add_extra_chain_cert(issuer.clone())?;
        }
        Ok(context.set_private_key(key)?)
    }

    /// Returns the chain and key for rustls.
    ///
    /// # Errors
    /// A certificate or key that OpenSSL cannot write.
    pub fn for_rustls(&self) -> Result<RustlsIdentity, Error> {
        let mut chain = Vec::new();
        for link in &self.chain {
            chain.push(CertificateDer::from(link.to_der()?));
        }
        let key = match &self.key {
            Key::Known(key) => PrivatePkcs8KeyDer::from(key.private_key_to_pkcs8()?),
            Key::Unknown(key) => key.clone_key(),
        };
        Ok((chain, PrivateKeyDer::from(key)))
    }

    /// Returns the key for OpenSSL.
    ///
    /// # Errors
    /// A key of a type that the system's OpenSSL does not support.
    pub fn openssl_key(&self) -> Result<&PKey<Private>, Error> {
        match &self.key {
            Key::Known(key) => Ok(key),
            Key::Unknown(_) => Err(Error::UnknownKeyType {
                why: format!(
                    "{} does not support it: ML-DSA needs OpenSSL 3.5, or rustls",
                    openssl::version::version()
                ),
            }),
        }
    }
}

/// A chain and its key, in the types of rustls.
pub type RustlsIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the parameters of a certificate that is valid for a month from now.
///
/// # Errors
/// A name that cannot be in a certificate.
pub fn certificate_parameters(name: &str, names: &[&str]) -> Result<CertificateParams, Error> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    // A clock before 1970 counts as 1970.
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970;
    parameters.not_after = parameters.not_before + MONTH;
    Ok(parameters)
}

const MONTH: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

/// Returns the parameters of a certificate that may sign others, valid for a month from now.
///
/// # Errors
/// A name that cannot be in a certificate.
pub fn authority_parameters(name: &str, names: &[&str]) -> Result<CertificateParams, Error> {
    let mut parameters = certificate_parameters(name, names)?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(parameters)
}

/// Reads the certificates of a PEM file, at least one.
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
