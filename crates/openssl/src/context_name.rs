//! The context that sessions and tickets belong to, outside of which they never resume.

use std::sync::Arc;

use rejoin_cache::ContextTag;
use smallvec::SmallVec;
use zeroize::Zeroizing;

use crate::policy::Policy;

/// The length of labels that need no memory of their own.
const SHORT: usize = 96;

/// The name of a context: its session-id context, or a hash of the ciphers that it offers.
#[derive(Debug, Clone)]
pub(crate) struct ContextName(Arc<[u8]>);

impl ContextName {
    /// Makes a name of at most 255 bytes.
    pub(crate) fn new(id_context: &[u8]) -> Self {
        Self(id_context.into())
    }

    /// Returns the label of a context, of the host that a client asks for there (RFC 6066, section 3: under another
    /// name a session must not be resumed), and of the certificate policy. `host` is empty if the client asked for
    /// none.
    pub(crate) fn label(&self, host: &[u8], policy: Policy) -> SmallVec<[u8; SHORT]> {
        let Self(id_context) = self;
        let policy = policy.as_bytes();
        let mut label = SmallVec::from_slice(&[id_context.len() as u8, policy.len() as u8]);
        label.extend_from_slice(id_context);
        label.extend_from_slice(policy);
        let before = label.len();
        label.extend_from_slice(host);
        label[before..].make_ascii_lowercase();
        label
    }

    /// Returns the tag that the cache keeps of a label. Clients choose hosts; the key prevents them from finding two
    /// hosts with the same tag.
    pub(crate) fn tag(label: &[u8], id_key: &[u8; 16]) -> ContextTag {
        const FOR_TAGS: u8 = 0x5c;
        let key = Zeroizing::new(id_key.map(|byte| byte ^ FOR_TAGS));
        ContextTag::of(label, &key)
    }
}
