//! The one verifier that rustls sees, whoever asks.
//!
//! rustls resumes a session only under the verifier object that it began with. Programs trust
//! different things and share sessions nevertheless, so there is one object for all, and the judge
//! of the connection at hand is told to it for the time of a call ([`scope`]). Without a judge
//! nothing is believed.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use crate::trust::identity::Identity;
use crate::trust::judge::Judge;

/// What rustls asks about belongs to a connection.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) judge: Arc<Judge>,
    pub(crate) identity: Arc<Identity>,
    /// What the calendar says.
    pub(crate) unix_s: u64,
    /// Whether the server wanted a certificate of the client.
    pub(crate) wanted_certificate: bool,
    /// What the server stapled, where that is wanted. Nobody has looked at it.
    pub(crate) staple: Option<Vec<u8>>,
}

thread_local! {
    static ASKER: RefCell<Option<Asker>> = const { RefCell::new(None) };
}

/// Runs `work`, in which rustls asks for `asker`.
pub(crate) fn scope<T>(asker: &mut Asker, work: impl FnOnce() -> T) -> T {
    struct Outer<'a>(&'a mut Asker, Option<Asker>);
    impl Drop for Outer<'_> {
        fn drop(&mut self) {
            if let Some(asker) = ASKER.replace(self.1.take()) {
                *self.0 = asker;
            }
        }
    }
    let inner = asker.clone();
    let _outer = Outer(asker, ASKER.replace(Some(inner)));
    work()
}

/// The server of the connection at hand wants a certificate.
pub(crate) fn note_certificate_wanted() {
    ASKER.with_borrow_mut(|asker| {
        if let Some(asker) = asker {
            asker.wanted_certificate = true;
        }
    });
}

/// The server of the connection at hand staples something.
fn note_staple(staple: &[u8]) {
    ASKER.with_borrow_mut(|asker| {
        if let Some(wanted) = asker.as_mut().and_then(|asker| asker.staple.as_mut()) {
            *wanted = staple.to_vec();
        }
    });
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Verifier {
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        staple: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let asker = ASKER.with_borrow(Clone::clone);
        let Some(Asker { judge, unix_s, .. }) = asker else {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        };
        note_staple(staple);
        judge.judge(own, others, name, unix_s)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
