//! Clients' own certificates. Who sends one proves that it has the key; sessions made with it are
//! found by those alone who prove it again.

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
use crate::trust::verifier;

/// What one kind of client answers to a server that wants a certificate: with none, or with one.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The digest of its certificates. `None`: it has none.
    pub(crate) sha256: Option<Fingerprint>,
    key: Option<Arc<CertifiedKey>>,
}

impl ResolvesClientCert for Identity {
    fn resolve(
        &self,
        _issuers: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        verifier::note_certificate_wanted();
        let key = self.key.as_ref()?;
        key.key.choose_scheme(schemes).is_some().then(|| Arc::clone(key))
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

/// The identities in use. rustls resumes a session only under the object that it began with, so
/// each is one object for as long as somebody uses it: a connection, or a session.
#[derive(Debug)]
pub(crate) struct Identities {
    provider: Arc<CryptoProvider>,
    nobody: Arc<Identity>,
    known: Mutex<HashMap<Fingerprint, Weak<Identity>>>,
}

impl Identities {
    /// So many are remembered before those that nobody uses any more are looked for.
    const SWEEP_AT: usize = 256;

    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        let nobody = Arc::new(Identity { sha256: None, key: None });
        Self { provider, nobody, known: Mutex::default() }
    }

    /// The identity that a program presents.
    ///
    /// # Errors
    /// What is wrong with it; also if the key is not known to be the certificate's.
    pub(crate) fn of(
        &self,
        presented: Option<&protocol::Identity>,
    ) -> Result<Arc<Identity>, String> {
        let Some(protocol::Identity { chain, key }) = presented else {
            return Ok(Arc::clone(&self.nobody));
        };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("identity: chain: {error}"))?;
        let key = private_key(key.expose());
        let key = key.ok_or_else(|| "identity: key: no private key in PEM".to_owned())?;
        let key = self.provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| "identity: key: of no kind that is known".to_owned())?;
        let certified = CertifiedKey::new(chain, key);
        if certified.cert.is_empty() {
            return Err("identity: chain: no certificate in PEM".to_owned());
        }
        // The proof of possession.
        certified.keys_match().map_err(|_| "identity: not the certificate's key".to_owned())?;
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

/// The first private key in PEM. Parsers of PEM leave its lines behind in memory, this one does not.
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
