//! Where sessions and tickets belong, and are resumed alone.

use std::borrow::Cow;

use rejoin_cache::ContextTag;
use zeroize::Zeroizing;

/// A context: its session-id context, or what it trusts.
#[derive(Debug, Clone)]
pub(crate) struct ContextName(Cow<'static, [u8]>);

impl ContextName {
    /// At most 255 bytes.
    pub(crate) fn new(id_context: impl Into<Cow<'static, [u8]>>) -> Self {
        Self(id_context.into())
    }

    /// A context and the host that a client asks for there (RFC 6066, section 3: under another name a
    /// session must not be resumed). `host` is empty if it asked for none.
    pub(crate) fn label(&self, host: &[u8]) -> Vec<u8> {
        let Self(id_context) = self;
        let mut label = Vec::with_capacity(1 + id_context.len() + host.len());
        label.push(id_context.len() as u8);
        label.extend_from_slice(id_context);
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
