//! The TLS parameters that a program accepts. The manager offers no others to a server for it, and uses no session that
//! was made with others.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, NamedGroup, SignatureScheme};

use crate::protocol::Offers;

/// A set of cipher suites, groups and signature schemes, one bit each. The last bit stands for all that are not in the
/// tables below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Terms(u64);

/// The suites of TLS 1.3 come first.
const SUITES: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];
const SUITES_OF_TLS13: usize = 3;
/// P-521 only as the curve of a certificate's key.
const GROUPS: [NamedGroup; 5] = [
    NamedGroup::X25519MLKEM768,
    NamedGroup::X25519,
    NamedGroup::secp256r1,
    NamedGroup::secp384r1,
    NamedGroup::secp521r1,
];
const SCHEMES: [SignatureScheme; 13] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::ML_DSA_44,
    SignatureScheme::ML_DSA_65,
    SignatureScheme::ML_DSA_87,
];
const OTHER: u32 = u64::BITS - 1;

const _: () = assert!(SUITES.len() + GROUPS.len() + SCHEMES.len() <= OTHER as usize);

impl Terms {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn suite(suite: CipherSuite) -> Self {
        Self::at(SUITES.iter().position(|own| *own == suite), 0)
    }

    pub(crate) fn group(group: NamedGroup) -> Self {
        Self::at(GROUPS.iter().position(|own| *own == group), SUITES.len())
    }

    pub(crate) fn scheme(scheme: SignatureScheme) -> Self {
        Self::at(SCHEMES.iter().position(|own| *own == scheme), SUITES.len() + GROUPS.len())
    }

    fn at(place: Option<usize>, first: usize) -> Self {
        Self(1 << place.map_or(OTHER, |place| (first + place) as u32))
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Returns true if all of `other` are among these.
    pub(crate) fn cover(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns these without the suites of TLS 1.2.
    pub(crate) fn of_tls13(self) -> Self {
        let (all, newest) = ((1_u64 << SUITES.len()) - 1, (1 << SUITES_OF_TLS13) - 1);
        Self(self.0 & !(all & !newest))
    }

    /// Returns true if a suite of TLS 1.2 is among these.
    pub(crate) fn have_tls12(self) -> bool {
        self != self.of_tls13()
    }
}

/// A program's preferences, the most preferred parameters first.
#[derive(Debug)]
pub(crate) struct Policy {
    /// `None`: the manager's own preferences.
    offers: Option<Offers>,
    accepts: Terms,
}

impl Policy {
    /// Makes the policy of a program that offers these, or that leaves all but the lowest version to the manager.
    pub(crate) fn new(offers: Option<&Offers>, is_tls13_only: bool) -> Self {
        let all = offers.map_or(Terms::ALL, accepted);
        let accepts = if is_tls13_only { all.of_tls13() } else { all };
        Self { offers: offers.cloned(), accepts }
    }

    /// Returns the terms of the sessions that the program accepts.
    pub(crate) fn accepts(&self) -> Terms {
        self.accepts
    }

    /// Returns the part of the manager's cryptography that the program accepts, in the program's order.
    pub(crate) fn provider(&self, own: &CryptoProvider) -> CryptoProvider {
        let mut provider = own.clone();
        provider.cipher_suites.retain(|own| self.accepts.cover(Terms::suite(own.suite())));
        let Some(Offers { suites, groups, .. }) = &self.offers else { return provider };
        sort(&mut provider.cipher_suites, suites, |own| own.suite().into());
        provider.kx_groups.retain(|own| groups.contains(&own.name().into()));
        sort(&mut provider.kx_groups, groups, |own| own.name().into());
        provider
    }

    /// Returns the signature schemes that the program accepts, in the program's order.
    pub(crate) fn schemes(&self, mut own: Vec<SignatureScheme>) -> Vec<SignatureScheme> {
        if let Some(Offers { signatures, .. }) = &self.offers {
            own.retain(|own| signatures.contains(&(*own).into()));
            sort(&mut own, signatures, |own| (*own).into());
        }
        own
    }

    pub(crate) fn takes_scheme(&self, scheme: SignatureScheme) -> bool {
        self.takes(scheme.into(), |offers| &offers.signatures)
    }

    /// Returns true if the program accepts a certificate's key on this curve over TLS 1.2 (RFC 8422, section 5.1).
    pub(crate) fn takes_curve(&self, curve: NamedGroup) -> bool {
        self.takes(curve.into(), |offers| &offers.groups)
    }

    fn takes(&self, number: u16, list: fn(&Offers) -> &Vec<u16>) -> bool {
        self.offers.as_ref().is_none_or(|offers| list(offers).contains(&number))
    }
}

/// Returns the terms of the sessions that a program with these offers accepts. A key exchange of two groups is no worse
/// than that of one of them.
fn accepted(Offers { suites, groups, signatures }: &Offers) -> Terms {
    let suites = suites.iter().map(|number| Terms::suite((*number).into()));
    let schemes = signatures.iter().map(|number| Terms::scheme((*number).into()));
    let exchanges = groups.iter().map(|number| Terms::group((*number).into()));
    let is_x25519 = groups.contains(&NamedGroup::X25519.into());
    let both = is_x25519.then(|| Terms::group(NamedGroup::X25519MLKEM768));
    let all = suites.chain(schemes).chain(exchanges).chain(both);
    let Terms(known) = all.fold(Terms::NONE, Terms::and);
    // A program's unknown parameters are others than the manager's.
    Terms(known & !(1 << OTHER))
}

fn sort<T>(own: &mut [T], wanted: &[u16], number: impl Fn(&T) -> u16) {
    own.sort_by_key(|own| wanted.iter().position(|wanted| *wanted == number(own)));
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    fn offers(suites: &[u16], groups: &[u16], signatures: &[u16]) -> Offers {
        let [suites, groups, signatures] = [suites, groups, signatures].map(<[u16]>::to_vec);
        Offers { suites, groups, signatures }
    }

    #[test]
    fn nothing_is_offered_that_the_program_does_not_offer() {
        let offers =
            offers(&[0x009d, 0x1303, 0xc02b], &[0x001e, 0x0018, 0x0017], &[0x0804, 0x0403]);
        let policy = Policy::new(Some(&offers), false);
        let provider = policy.provider(&default_provider());
        let suites: Vec<u16> =
            provider.cipher_suites.iter().map(|own| own.suite().into()).collect();
        let groups: Vec<u16> = provider.kx_groups.iter().map(|own| own.name().into()).collect();
        assert_eq!((suites, groups), (vec![0x1303, 0xc02b], vec![0x18, 0x17]));
        let own = default_provider().signature_verification_algorithms.supported_schemes();
        let schemes: Vec<u16> = policy.schemes(own).into_iter().map(u16::from).collect();
        assert_eq!(schemes, [0x0804, 0x0403]);
        let only = Policy::new(Some(&offers), true).provider(&default_provider());
        assert_eq!(only.cipher_suites.len(), 1);
    }

    #[test]
    fn the_managers_own_preferences_are_all_that_it_supports() {
        let (policy, own) = (Policy::new(None, false), default_provider());
        let provider = policy.provider(&own);
        assert_eq!(provider.cipher_suites.len(), own.cipher_suites.len());
        assert_eq!(provider.kx_groups.len(), own.kx_groups.len());
        assert!(policy.takes_scheme(SignatureScheme::Unknown(1)));
    }

    #[test]
    fn a_session_is_for_those_who_accept_all_of_its_terms() {
        let suite = Terms::suite(CipherSuite::TLS13_AES_128_GCM_SHA256);
        let older = Terms::suite(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
        let scheme = Terms::scheme(SignatureScheme::RSA_PSS_SHA256);
        let accepts = |groups: &[u16], only| {
            Policy::new(Some(&offers(&[0x1301, 0xc02f], groups, &[0x0804])), only).accepts()
        };
        let hybrid = Terms::group(NamedGroup::X25519MLKEM768);
        assert!(accepts(&[0x1d], false).cover(suite.and(scheme).and(hybrid)));
        assert!(!accepts(&[0x11ec], false).cover(Terms::group(NamedGroup::X25519)));
        assert!(!accepts(&[0x17], false).cover(hybrid));
        assert!(!accepts(&[0x1d], false).cover(Terms::scheme(SignatureScheme::RSA_PSS_SHA384)));
        assert!(accepts(&[0x1d], false).cover(older) && !accepts(&[0x1d], true).cover(older));
        assert!(accepts(&[0x1d], false).have_tls12() && !accepts(&[0x1d], true).have_tls12());
        // What is in no table is for nobody who says what it accepts.
        let unknown = Terms::group(NamedGroup::Unknown(0x1234));
        assert!(Terms::ALL.cover(unknown) && !accepts(&[0x1234, 0x1d], false).cover(unknown));
    }
}
