//! Servers' certificates, interned: one copy of each, shared by all sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::protocol::{Fingerprint, Host};

/// A server's certificate chain as presented, its own certificate first. It is never empty.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) certificates: Vec<Arc<CertificateDer<'static>>>,
    /// The digest of all certificates' digests.
    pub(crate) sha256: Fingerprint,
    /// The time at which the first of them expires.
    pub(crate) not_after_s: u64,
    /// The memory of the certificates.
    pub(crate) bytes: u64,
    /// True if the server's own certificate lists TLS features (RFC 7633), of which stapling is the only one in use.
    pub(crate) demands_staple: bool,
    /// The DNS names of the server's own certificate.
    names: Vec<String>,
}

impl Chain {
    /// Returns the DNS names of the server's own certificate, which may begin with `*.`.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns true if the server's own certificate lists a name that matches this host. This is a filter, not a
    /// verification.
    pub(crate) fn may_cover(&self, host: &Host) -> bool {
        let host = host.as_str();
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

/// The extension that lists the TLS features which a certificate demands (`id-pe-tlsfeature`).
const TLS_FEATURES: &str = "1.3.6.1.5.5.7.1.24";

/// All chains in use.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    certificates: HashMap<Fingerprint, Weak<CertificateDer<'static>>>,
    chains: HashMap<Fingerprint, Weak<Chain>>,
    /// The number of entries at which unused ones are removed.
    sweep_at: usize,
}

impl Known {
    const LEAST_SWEEP: usize = 256;

    fn sweep(&mut self) {
        if self.certificates.len() + self.chains.len() < self.sweep_at.max(Self::LEAST_SWEEP) {
            return;
        }
        self.certificates.retain(|_, certificate| certificate.strong_count() > 0);
        self.chains.retain(|_, chain| chain.strong_count() > 0);
        self.sweep_at = 2 * (self.certificates.len() + self.chains.len());
    }
}

impl Certificates {
    /// Returns the one copy of this chain. `None`: it is empty, or does not parse.
    pub(crate) fn intern(&self, presented: &[CertificateDer<'_>]) -> Option<Arc<Chain>> {
        let digests: Vec<_> = presented.iter().map(|der| Fingerprint::of(der)).collect();
        let all: Vec<u8> = digests.iter().flat_map(|digest| digest.0).collect();
        let sha256 = Fingerprint::of(&all);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chain) = known.chains.get(&sha256).and_then(Weak::upgrade) {
            return Some(chain);
        }
        let not_after_s = presented.iter().map(|der| not_after_s(der)).min()??;
        known.sweep();
        let own = |(der, sha256): (&CertificateDer<'_>, &Fingerprint)| {
            let kept = known.certificates.get(sha256).and_then(Weak::upgrade);
            kept.unwrap_or_else(|| {
                let own = Arc::new(der.clone().into_owned());
                known.certificates.insert(*sha256, Arc::downgrade(&own));
                own
            })
        };
        let certificates: Vec<_> = presented.iter().zip(&digests).map(own).collect();
        let names = dns_names(presented.first()?);
        let demands_staple = has_tls_features(presented.first()?);
        let bytes = presented.iter().map(|der| der.len() as u64).sum();
        let chain =
            Arc::new(Chain { certificates, sha256, not_after_s, bytes, demands_staple, names });
        known.chains.insert(sha256, Arc::downgrade(&chain));
        Some(chain)
    }
}

fn not_after_s(der: &[u8]) -> Option<u64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    u64::try_from(certificate.validity().not_after.timestamp()).ok()
}

fn has_tls_features(der: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    certificate.extensions().iter().any(|of| of.oid.to_id_string() == TLS_FEATURES)
}

fn dns_names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).collect()
}
