//! Client certificates. A program that presents one proves that it has the private key. Only a program that proves
//! it again finds the sessions made with that certificate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::protocol::{self, Fingerprint};
use crate::trust::context;

/// A client certificate with its key, or the absence of one.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The digest of the certificates. `None`: there are none.
    pub(crate) sha256: Option<Fingerprint>,
    key: Option<Arc<CertifiedKey>>,
}

impl ResolvesClientCert for Identity {
    fn resolve(
        &self,
        _issuers: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        context::note_certificate_requested();
        let key = self.key.as_ref()?;
        key.key.choose_scheme(schemes).is_some().then(|| Arc::clone(key))
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

/// The identities in use. rustls resumes a session only under the resolver object that made it, so each identity
/// is one object for as long as a connection or a session uses it.
#[derive(Debug)]
pub(crate) struct Identities {
    provider: Arc<CryptoProvider>,
    anonymous: Arc<Identity>,
    known: Mutex<HashMap<Fingerprint, Weak<Identity>>>,
}

impl Identities {
    /// The number of identities at which unused ones are removed.
    const SWEEP_AT: usize = 256;

    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        let anonymous = Arc::new(Identity { sha256: None, key: None });
        Self { provider, anonymous, known: Mutex::default() }
    }

    /// Returns the identity that a program presents.
    ///
    /// # Errors
    /// The identity is malformed, or the key does not match the certificate.
    pub(crate) fn of(
        &self,
        presented: Option<&protocol::Identity>,
    ) -> Result<Arc<Identity>, String> {
        let Some(protocol::Identity { chain, key }) = presented else {
            return Ok(Arc::clone(&self.anonymous));
        };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("identity: chain: {error}"))?;
        let key = private_key(key.expose());
        let key = key.ok_or_else(|| "identity: key: no private key in the PEM".to_owned())?;
        let key = self.provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| "identity: key: unsupported key type".to_owned())?;
        let certified = CertifiedKey::new(chain, key);
        if certified.cert.is_empty() {
            return Err("identity: chain: no certificate in the PEM".to_owned());
        }
        // The proof of possession.
        certified
            .keys_match()
            .map_err(|_| "identity: the key does not match the certificate".to_owned())?;
        let digests: Vec<u8> =
            certified.cert.iter().flat_map(|der| Fingerprint::of(der).0).collect();
        let sha256 = Fingerprint::of(&digests);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = known.get(&sha256).and_then(Weak::upgrade) {
            return Ok(identity);
        }
        if known.len() >= Self::SWEEP_AT {
            known.retain(|_, identity| identity.strong_count() > 0);
        }
        let own = Arc::new(Identity { sha256: Some(sha256), key: Some(Arc::new(certified)) });
        known.insert(sha256, Arc::downgrade(&own));
        Ok(own)
    }
}

/// Reads the first private key in the PEM. Other PEM parsers leave copies of the lines in memory; this one does not.
fn private_key(pem: &str) -> Option<PrivateKeyDer<'static>> {
    let mut parts = pem.split("-----BEGIN ").skip(1);
    parts.find_map(|part| {
        let (kind, rest) = part.split_once("-----")?;
        let (lines, _) = rest.split_once("-----END ")?;
        let mut text = Zeroizing::new(String::with_capacity(lines.len()));
        text.extend(lines.chars().filter(|character| !character.is_ascii_whitespace()));
        let der = || STANDARD.decode(text.as_bytes()).ok();
        Some(match kind {
            "PRIVATE KEY" => PrivatePkcs8KeyDer::from(der()?).into(),
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der()?).into(),
            "EC PRIVATE KEY" => PrivateSec1KeyDer::from(der()?).into(),
            _ => return None,
        })
    })
}
