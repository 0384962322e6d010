//! The server's certificate, where it is visible: its names and the end of its validity.
//!
//! Only the leaf is read, and nothing is verified. A certificate that cannot be parsed has a hash
//! and no names. A remembered certificate is not parsed again.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Serialize, Serializer};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::extensions::{GeneralName, SubjectAlternativeName};
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::FromDer as _;

use crate::bytes::Bytes;
use crate::digest::{hex, sha256};
use crate::limits::{LONGEST_NAME_BYTES, Limits, MOST_NAMES};

/// The memory of a certificate's entry besides its names, in bytes.
const ENTRY_BYTES: usize = 256;

/// A server's certificate (the leaf of its chain), sent in the clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// SHA-256 of the certificate.
    #[serde(serialize_with = "as_hex")]
    pub sha256: [u8; 32],
    /// Length of the Certificate message with its header and the whole chain, in bytes.
    pub message_bytes: u32,
    /// The names it is valid for, in lower case: its `dNSName`s (RFC 5280, 4.2.1.6), or else its
    /// common name. At most 1,024.
    #[serde(serialize_with = "as_list")]
    pub names: Arc<[Box<str>]>,
    /// The end of its validity, in seconds since 1970.
    pub not_after_s: Option<i64>,
}

impl Certificate {
    /// The memory used, in bytes, counted as if no other handshake shared it.
    pub(crate) fn held_bytes(&self) -> usize {
        names_bytes(&self.names)
    }
}

fn as_hex<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

fn as_list<S: Serializer>(names: &Arc<[Box<str>]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter())
}

fn names_bytes(names: &[Box<str>]) -> usize {
    names.iter().map(|name| name.len() + size_of::<Box<str>>()).sum()
}

/// The parsed certificates, within a bound; the oldest entry is evicted first.
#[derive(Debug)]
pub(crate) struct Certificates {
    limit_bytes: usize,
    held_bytes: usize,
    known: HashMap<[u8; 32], Parsed, FixedState>,
    /// Oldest first.
    order: VecDeque<[u8; 32]>,
}

#[derive(Debug, Clone, Default)]
struct Parsed {
    names: Arc<[Box<str>]>,
    not_after_s: Option<i64>,
}

impl Certificates {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limit_bytes: limits.certificate_bytes,
            held_bytes: 0,
            known: HashMap::with_hasher(FixedState::with_seed(limits.hash_seed)),
            order: VecDeque::new(),
        }
    }

    /// Returns the leaf in the body of a Certificate message of `length` bytes, if it is complete.
    pub(crate) fn leaf(&mut self, body: &[u8], length: u32) -> Option<Certificate> {
        let mut bytes = Bytes(body);
        bytes.take(3)?;
        let [high, middle, low] = bytes.array()?;
        let leaf = bytes.take(u32::from_be_bytes([0, high, middle, low]) as usize)?;
        if leaf.is_empty() {
            return None;
        }
        let sha256 = sha256(leaf);
        let Parsed { names, not_after_s } = self.parsed(sha256, leaf);
        Some(Certificate { sha256, message_bytes: length.saturating_add(4), names, not_after_s })
    }

    fn parsed(&mut self, sha256: [u8; 32], leaf: &[u8]) -> Parsed {
        if let Some(parsed) = self.known.get(&sha256) {
            return parsed.clone();
        }
        let parsed = parse(leaf).unwrap_or_default();
        self.held_bytes += ENTRY_BYTES + names_bytes(&parsed.names);
        self.known.insert(sha256, parsed.clone());
        self.order.push_back(sha256);
        while self.held_bytes > self.limit_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            let Some(forgotten) = self.known.remove(&oldest) else { break };
            self.held_bytes -= ENTRY_BYTES + names_bytes(&forgotten.names);
        }
        parsed
    }
}

fn parse(leaf: &[u8]) -> Option<Parsed> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (_, certificate) = parser.parse(leaf).ok()?;
    let mut names = alternative_names(&certificate);
    if names.is_empty() {
        let mut common_names = certificate.subject().iter_common_name();
        names.extend(common_names.find_map(|name| {
            // Old certificates encode it in one of ASN.1's older string types.
            bounded_name(str::from_utf8(name.attr_value().data).ok()?)
        }));
    }
    let not_after_s = Some(certificate.validity().not_after.timestamp());
    Some(Parsed { names: names.into(), not_after_s })
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<Box<str>> {
    let mut extensions = certificate.extensions().iter();
    let value = extensions.find(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
    let parsed = value.and_then(|value| SubjectAlternativeName::from_der(value.value).ok());
    let Some((_, parsed)) = parsed else { return Vec::new() };
    let names = parsed.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => bounded_name(name),
        _ => None,
    });
    names.take(MOST_NAMES).collect()
}

fn bounded_name(name: &str) -> Option<Box<str>> {
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME_BYTES;
    fits.then(|| name.to_ascii_lowercase().into())
}
