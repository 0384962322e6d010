//! Verification of servers' certificates: the trust of programs, prepared once and cached.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Error;
use crate::protocol::{Fingerprint, Host, Trust};
use crate::trust::certificates::Chain;

/// One program's trust.
#[derive(Debug)]
pub(crate) struct Judge {
    /// A digest that is equal for judges with equal rules.
    sha256: Fingerprint,
    rule: Rule,
    revoked: Arc<HashSet<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Rule {
    Authorities(Arc<WebPkiServerVerifier>),
    Pins(Vec<Fingerprint>),
    /// The program's own rule, which it applies after the manager's handshake.
    Program,
    Nothing,
}

impl Judge {
    /// Returns true if the judge verifies anything at all.
    pub(crate) fn verifies(&self) -> bool {
        !matches!(self.rule, Rule::Nothing)
    }

    /// Returns true if the program verifies the server itself, perhaps by a rule that the manager does not know.
    pub(crate) fn is_programs(&self) -> bool {
        matches!(self.rule, Rule::Program)
    }

    /// Verifies a server's certificates for this name at this time.
    pub(crate) fn judge(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        unix_s: u64,
    ) -> Result<(), CertificateError> {
        if let Rule::Nothing | Rule::Program = self.rule {
            return Ok(());
        }
        self.none_revoked(own, others)?;
        match &self.rule {
            Rule::Authorities(verifier) => verify(verifier, own, others, name, unix_s),
            Rule::Pins(pins) => self.pinned(pins, own, others, name, unix_s),
            Rule::Program | Rule::Nothing => Ok(()),
        }
    }

    /// Verifies stored certificates like [`Self::judge`].
    pub(crate) fn judge_kept(
        &self,
        chain: &Chain,
        host: &Host,
        unix_s: u64,
    ) -> Result<(), CertificateError> {
        let mut ders =
            chain.certificates.iter().map(|certificate| CertificateDer::clone(certificate));
        let own = ders.next().ok_or(CertificateError::BadEncoding)?;
        if let Rule::Program = self.rule {
            // Checks revocation, name and validity; the program verifies the rest.
            self.none_revoked(&own, &ders.collect::<Vec<_>>())?;
            return valid_for(&own, &host.server_name(), unix_s);
        }
        self.judge(&own, &ders.collect::<Vec<_>>(), &host.server_name(), unix_s)
    }

    fn none_revoked(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<(), CertificateError> {
        let is_revoked =
            |der: &CertificateDer<'_>| prints(der).iter().any(|print| self.revoked.contains(print));
        match std::iter::once(own).chain(others).any(is_revoked) {
            true => Err(CertificateError::Revoked),
            false => Ok(()),
        }
    }

    fn pinned(
        &self,
        pins: &[Fingerprint],
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        unix_s: u64,
    ) -> Result<(), CertificateError> {
        let is_pinned = |der: &CertificateDer<'_>| prints(der).iter().any(|p| pins.contains(p));
        if is_pinned(own) {
            return valid_for(own, name, unix_s);
        }
        let mut roots = RootCertStore::empty();
        let mut wrong = CertificateError::ApplicationVerificationFailure;
        for issuer in others.iter().filter(|der| is_pinned(der)) {
            // One that is good is enough.
            match in_time(issuer, unix_s) {
                Ok(()) => roots
                    .add(issuer.clone().into_owned())
                    .map_err(|_| CertificateError::BadEncoding)?,
                Err(error) => wrong = error,
            }
        }
        if roots.is_empty() {
            return Err(wrong);
        }
        let verifier = authorities(roots, Vec::new(), &self.provider)
            .map_err(|_| CertificateError::BadEncoding)?;
        verify(&verifier, own, others, name, unix_s)
    }
}

/// The judges in use, and what they said of the certificates of stored sessions.
#[derive(Debug)]
pub(crate) struct Judges {
    provider: Arc<CryptoProvider>,
    revoked: Arc<HashSet<Fingerprint>>,
    system: Arc<Judge>,
    program: Arc<Judge>,
    nothing: Arc<Judge>,
    bundles: Mutex<HashMap<Fingerprint, Arc<Judge>>>,
    memory: Mutex<HashMap<Case, Verdict>>,
}

/// Chain, name and judge.
type Case = (Fingerprint, Host, Fingerprint);

/// Until when a favourable judgement holds.
#[derive(Debug)]
struct Verdict {
    until_ms: u64,
    not_before_s: u64,
    not_after_s: u64,
}

impl Judges {
    /// The bundles that are cached: each may be as long as a request.
    const BUNDLES: usize = 32;
    const VERDICTS: usize = 8_192;
    /// The time for which a verdict is remembered. It is short because a revocation list may expire.
    const VERDICT_MS: u64 = 10 * 60 * 1_000;

    pub(crate) fn new(
        provider: Arc<CryptoProvider>,
        system_bundle: Option<&Path>,
        revoked: &[Fingerprint],
    ) -> Result<Self, Error> {
        let revoked = Arc::new(revoked.iter().copied().collect());
        let roots = system_roots(system_bundle)?;
        let none = |what| Error::NoAuthorities { what };
        let verifier = authorities(roots, Vec::new(), &provider).map_err(none)?;
        let judge = |name: &[u8], rule| {
            let (revoked, provider) = (Arc::clone(&revoked), Arc::clone(&provider));
            Arc::new(Judge { sha256: Fingerprint::of(name), rule, revoked, provider })
        };
        Ok(Self {
            system: judge(b"system", Rule::Authorities(verifier)),
            program: judge(b"program", Rule::Program),
            nothing: judge(b"none", Rule::Nothing),
            revoked,
            provider,
            bundles: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    /// Returns the judge of programs that verify the server themselves afterwards.
    pub(crate) fn of_program(&self) -> Arc<Judge> {
        Arc::clone(&self.program)
    }

    /// Returns the judge for a program's trust.
    ///
    /// # Errors
    /// The bundle or the pins are invalid.
    pub(crate) fn of(&self, trust: &Trust) -> Result<Arc<Judge>, String> {
        let (sha256, rule) = match trust {
            Trust::System => return Ok(Arc::clone(&self.system)),
            Trust::None => return Ok(Arc::clone(&self.nothing)),
            Trust::Pins(pins) if pins.is_empty() => {
                return Err("pins: give at least one".to_owned());
            }
            Trust::Pins(pins) => {
                let mut pins = pins.clone();
                pins.sort_unstable();
                let all: Vec<u8> = pins.iter().flat_map(|pin| pin.0).collect();
                (Fingerprint::of(&[b"pins", &all[..]].concat()), Rule::Pins(pins))
            }
            Trust::Bundle(pem) => return self.bundle(pem),
        };
        let (revoked, provider) = (Arc::clone(&self.revoked), Arc::clone(&self.provider));
        Ok(Arc::new(Judge { sha256, rule, revoked, provider }))
    }

    fn bundle(&self, pem: &str) -> Result<Arc<Judge>, String> {
        let sha256 = Fingerprint::of(&[b"bundle", pem.as_bytes()].concat());
        let bundles = || self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judge) = bundles().get(&sha256) {
            return Ok(Arc::clone(judge));
        }
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let der = der.map_err(|error| format!("bundle: {error}"))?;
            roots.add(der).map_err(|error| format!("bundle: {error}"))?;
        }
        let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes());
        let lists = lists.collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| format!("bundle: {error}"))?;
        let verifier = authorities(roots, lists, &self.provider);
        let rule = Rule::Authorities(verifier.map_err(|error| format!("bundle: {error}"))?);
        let (revoked, provider) = (Arc::clone(&self.revoked), Arc::clone(&self.provider));
        let judge = Arc::new(Judge { sha256, rule, revoked, provider });
        let mut bundles = bundles();
        if bundles.len() >= Self::BUNDLES {
            bundles.clear();
        }
        bundles.insert(sha256, Arc::clone(&judge));
        Ok(judge)
    }

    /// Returns true if this judge accepts a stored session's certificates for this name now. Called before every
    /// resumption; recent verdicts are cached.
    pub(crate) fn still_stands(
        &self,
        judge: &Judge,
        chain: &Chain,
        host: &Host,
        now_ms: u64,
        unix_s: u64,
    ) -> bool {
        let case = (chain.sha256, host.clone(), judge.sha256);
        let memory = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let stands = memory().get(&case).is_some_and(|verdict| {
            let Verdict { until_ms, not_before_s, not_after_s } = *verdict;
            now_ms < until_ms && (not_before_s..=not_after_s).contains(&unix_s)
        });
        if stands {
            return true;
        }
        if judge.judge_kept(chain, host, unix_s).is_err() {
            return false;
        }
        let mut memory = memory();
        if memory.len() >= Self::VERDICTS {
            memory.clear();
        }
        let until_ms = now_ms + Self::VERDICT_MS;
        let not_after_s = chain.not_after_s;
        memory.insert(case, Verdict { until_ms, not_before_s: unix_s, not_after_s });
        true
    }
}

/// Returns the digests under which a certificate may be pinned or revoked: its own, and its public key's.
fn prints(der: &[u8]) -> [Fingerprint; 2] {
    let own = Fingerprint::of(der);
    let parsed = X509Certificate::from_der(der);
    let key = parsed.map_or(own, |(_, parsed)| Fingerprint::of(parsed.public_key().raw));
    [own, key]
}

/// Checks that a certificate covers this name and is within its validity.
pub(crate) fn valid_for(
    own: &CertificateDer<'_>,
    name: &ServerName<'_>,
    unix_s: u64,
) -> Result<(), CertificateError> {
    in_time(own, unix_s)?;
    let parsed = ParsedCertificate::try_from(own).map_err(|_| CertificateError::BadEncoding)?;
    match rustls::client::verify_server_name(&parsed, name) {
        Ok(()) => Ok(()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(error),
        Err(_) => Err(CertificateError::NotValidForName),
    }
}

fn in_time(der: &[u8], unix_s: u64) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
    let (now, validity) = (unix_s as i64, parsed.validity());
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

fn verify(
    verifier: &WebPkiServerVerifier,
    own: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    unix_s: u64,
) -> Result<(), CertificateError> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
    match verifier.verify_server_cert(own, others, name, &[], now) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(error),
        Err(_) => Err(CertificateError::BadEncoding),
    }
}

fn authorities(
    roots: RootCertStore,
    lists: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .with_crls(lists)
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| error.to_string())
}

fn system_roots(bundle: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = bundle {
        let pem = std::fs::read(path);
        let pem = pem.map_err(|cause| Error::Unreadable { path: path.into(), cause })?;
        let wrong = |what: String| Error::BadSettings { path: path.into(), what };
        for der in CertificateDer::pem_slice_iter(&pem) {
            let der = der.map_err(|error| wrong(error.to_string()))?;
            roots.add(der).map_err(|error| wrong(error.to_string()))?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    if roots.is_empty() {
        return Err(Error::NoAuthorities { what: "no certificate authorities found".to_owned() });
    }
    Ok(roots)
}
