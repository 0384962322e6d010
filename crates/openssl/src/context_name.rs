//! Where sessions and tickets belong, and are resumed alone.

use std::sync::Arc;

use rejoin_cache::ContextTag;
use zeroize::Zeroizing;

use crate::policy::Policy;

/// A context: its session-id context, or what it offers.
#[derive(Debug, Clone)]
pub(crate) struct ContextName(Arc<[u8]>);

impl ContextName {
    /// At most 255 bytes.
    pub(crate) fn new(id_context: &[u8]) -> Self {
        Self(id_context.into())
    }

    /// A context and the host that a client asks for there (RFC 6066, section 3: under another name a
    /// session must not be resumed), and what clients have to show. `host` is empty if it asked for
    /// none.
    pub(crate) fn label(&self, host: &[u8], policy: Policy) -> Vec<u8> {
        let Self(id_context) = self;
        let policy = policy.as_bytes();
        let mut label = Vec::with_capacity(2 + id_context.len() + policy.len() + host.len());
        label.extend_from_slice(&[id_context.len() as u8, policy.len() as u8]);
        label.extend_from_slice(id_context);
        label.extend_from_slice(policy);
        label.extend(host.iter().map(u8::to_ascii_lowercase));
        label
    }

    /// What the cache keeps of a label. Clients choose hosts, and the key keeps them from finding two
    /// that have one tag.
    pub(crate) fn tag(label: &[u8], id_key: &[u8; 16]) -> ContextTag {
        const FOR_TAGS: u8 = 0x5c;
        let key = Zeroizing::new(id_key.map(|byte| byte ^ FOR_TAGS));
        ContextTag::of(label, &key)
    }
}
