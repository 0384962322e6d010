//! Interned texts and certificates: each is stored once and known by its ID.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// The ID that stands for no certificate.
pub(super) const NONE: u32 = u32::MAX;

/// The interned texts. A capture may have an address for each handshake: an address stays one, and
/// becomes text only where it is shown.
#[derive(Debug)]
pub(super) struct InternedTexts {
    hasher: FixedState,
    ids: HashTable<u32>,
    texts: Vec<Text>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Text {
    Name(Box<str>),
    Address(IpAddr),
}

impl InternedTexts {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { hasher, ids: HashTable::new(), texts: Vec::new() }
    }

    pub(super) fn intern(&mut self, name: &str) -> u32 {
        self.id(Text::Name(name.into()))
    }

    /// Interns a name; names are case-insensitive (RFC 4343).
    pub(super) fn name(&mut self, name: &str) -> u32 {
        match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.intern(&name.to_ascii_lowercase()),
            false => self.intern(name),
        }
    }

    pub(super) fn address(&mut self, address: IpAddr) -> u32 {
        self.id(Text::Address(address))
    }

    pub(super) fn get(&self, id: u32) -> Cow<'_, str> {
        match self.texts.get(id as usize) {
            Some(Text::Name(name)) => Cow::Borrowed(name),
            Some(Text::Address(address)) => Cow::Owned(address.to_string()),
            None => Cow::Borrowed(""),
        }
    }

    fn id(&mut self, text: Text) -> u32 {
        let Self { hasher, ids, texts } = self;
        let hash = hasher.hash_one(&text);
        let found = ids.find(hash, |id| texts[*id as usize] == text);
        if let Some(id) = found {
            return *id;
        }
        let id = u32::try_from(texts.len()).unwrap_or(NONE);
        texts.push(text);
        ids.insert_unique(hash, id, |id| hasher.hash_one(&texts[*id as usize]));
        id
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
