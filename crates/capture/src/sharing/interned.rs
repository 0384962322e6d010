//! Interned texts and certificates: each is stored once and known by its ID.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The ID that stands for no certificate.
pub(super) const NONE: u32 = u32::MAX;

/// The interned texts.
#[derive(Debug)]
pub(super) struct InternedTexts {
    ids: HashMap<Arc<str>, u32, FixedState>,
    texts: Vec<Arc<str>>,
    addresses: HashMap<IpAddr, u32, FixedState>,
}

impl InternedTexts {
    pub(super) fn new(seed: impl Fn() -> FixedState) -> Self {
        let (ids, addresses) = (HashMap::with_hasher(seed()), HashMap::with_hasher(seed()));
        Self { ids, texts: Vec::new(), addresses }
    }

    pub(super) fn intern(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = u32::try_from(self.texts.len()).unwrap_or(NONE);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// Interns a name; names are case-insensitive (RFC 4343).
    pub(super) fn name(&mut self, name: &str) -> u32 {
        match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.intern(&name.to_ascii_lowercase()),
            false => self.intern(name),
        }
    }

    pub(super) fn address(&mut self, address: IpAddr) -> u32 {
        if let Some(id) = self.addresses.get(&address) {
            return *id;
        }
        let id = self.intern(&address.to_string());
        self.addresses.insert(address, id);
        id
    }

    pub(super) fn get(&self, id: u32) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }
}

/// The interned certificates, with the names they are valid for.
#[derive(Debug)]
pub(super) struct InternedCertificates {
    ids: HashMap<[u8; 32], u32, FixedState>,
    names: Vec<Arc<[Box<str>]>>,
}

impl InternedCertificates {
    pub(super) fn new(seed: FixedState) -> Self {
        Self { ids: HashMap::with_hasher(seed), names: Vec::new() }
    }

    pub(super) fn intern(&mut self, sha256: &[u8; 32], names: &Arc<[Box<str>]>) -> u32 {
        *self.ids.entry(*sha256).or_insert_with(|| {
            self.names.push(Arc::clone(names));
            u32::try_from(self.names.len() - 1).unwrap_or(NONE)
        })
    }

    pub(super) fn names(&self, id: u32) -> &[Box<str>] {
        self.names.get(id as usize).map_or(&[], |names| names)
    }
}
