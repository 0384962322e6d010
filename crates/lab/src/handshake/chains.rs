//! The certificates of a pair: an authority, an issuer, a server and a client, all with keys of one type.

use openssl::x509::X509;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use rcgen::CertifiedIssuer;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::Error;
use rejoin_serve::{Identity, KeyType, authority_parameters, certificate_parameters};

/// The server's name.
pub(super) const NAME: &str = "localhost";

/// The chains of both sides, each with its issuer's certificate, and the authority that both trust.
pub(super) struct Chains {
    pub(super) server: Identity,
    pub(super) client: Identity,
    authority: X509,
}

impl Chains {
    pub(super) fn made(key: KeyType) -> Result<Self, Error> {
        let authority = authority_parameters("Rejoin's measuring authority", &[])?;
        let authority = CertifiedIssuer::self_signed(authority, key.generate()?)?;
        let issuer = authority_parameters("Rejoin's measuring issuer", &[])?;
        let issuer = CertifiedIssuer::signed_by(issuer, key.generate()?, &authority)?;
        let leaf = |name| -> Result<Identity, Error> {
            let leaf_key = key.generate()?;
            let leaf = certificate_parameters(name, &[name])?.signed_by(&leaf_key, &issuer)?;
            Ok(Identity::of(&[leaf.der().as_ref(), issuer.der().as_ref()], &leaf_key)?)
        };
        let (server, client) = (leaf(NAME)?, leaf("client")?);
        Ok(Self { server, client, authority: X509::from_der(authority.der())? })
    }

    /// Returns the authority that both trust, as OpenSSL takes it.
    pub(super) fn store(&self) -> Result<X509Store, Error> {
        let mut store = X509StoreBuilder::new()?;
        store.add_cert(self.authority.clone())?;
        Ok(store.build())
    }

    /// The same for rustls.
    pub(super) fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.authority.to_der()?))?;
        Ok(roots)
    }

    /// The same in PEM.
    pub(super) fn authority_pem(&self) -> Result<Vec<u8>, Error> {
        Ok(self.authority.to_pem()?)
    }
}
