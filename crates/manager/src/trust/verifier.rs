//! The certificate verifier that rustls sees: one object for all connections.
//!
//! rustls resumes a session only under the verifier object that made it. Programs share sessions although they
//! trust different authorities, so one verifier serves them all and takes the judge and the policy of the current
//! connection from the [`context`]. Without a context it accepts no certificate and no signature.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, NamedGroup, PeerIncompatible, PeerMisbehaved,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::trust::context::{self, HandshakeContext};
use crate::upstream::policy::Terms;

/// The verifier of all connections.
#[derive(Debug)]
pub(crate) struct Verifier {
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
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
        let Some(HandshakeContext { judge, unix_s, .. }) = context::current() else {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        };
        context::note_staple(staple);
        judge.judge(own, others, name, unix_s)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let curve = curve(certificate);
        let HandshakeContext { policy, .. } = accepting(signature.scheme)?;
        if curve.is_some_and(|curve| !policy.takes_curve(curve)) {
            return Err(PeerIncompatible::NoKxGroupsInCommon.into());
        }
        context::note_signed(
            Terms::scheme(signature.scheme).and(curve.map_or(Terms::NONE, Terms::group)),
        );
        verify_tls12_signature(message, certificate, signature, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        accepting(signature.scheme)?;
        context::note_signed(Terms::scheme(signature.scheme));
        verify_tls13_signature(message, certificate, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let own = self.algorithms().supported_schemes();
        context::current().map_or_else(Vec::new, |context| context.policy.schemes(own))
    }
}

/// Returns the current context if its program accepts this scheme.
fn accepting(scheme: SignatureScheme) -> Result<HandshakeContext, Error> {
    let context = context::current().filter(|context| context.policy.takes_scheme(scheme));
    context.ok_or_else(|| PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
}

/// Returns the curve of a certificate's key. `None`: it is of another kind, or the certificate does not parse.
fn curve(certificate: &CertificateDer<'_>) -> Option<NamedGroup> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let algorithm = &parsed.public_key().algorithm;
    let curve = algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
    Some(match curve.as_str() {
        "1.2.840.10045.3.1.7" => NamedGroup::secp256r1,
        "1.3.132.0.34" => NamedGroup::secp384r1,
        "1.3.132.0.35" => NamedGroup::secp521r1,
        _ => return None,
    })
}
