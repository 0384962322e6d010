//! Interned values: each is stored once and known by its ID.

use std::borrow::{Borrow, Cow};
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// The ID that stands for no certificate.
pub(super) const NONE: u32 = u32::MAX;

/// The distinct values of a kind, in the order in which they came. A value's ID is its place.
#[derive(Debug)]
pub(super) struct Interned<T> {
    hasher: FixedState,
    ids: HashTable<u32>,
    values: Vec<T>,
}

impl<T: Hash + Eq> Interned<T> {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { hasher, ids: HashTable::new(), values: Vec::new() }
    }

    /// Returns the value's ID. A new value is made by `own`.
    pub(super) fn id<Q: Hash + Eq + ?Sized>(&mut self, value: &Q, own: impl FnOnce() -> T) -> u32
    where
        T: Borrow<Q>,
    {
        let Self { hasher, ids, values } = self;
        let hash = hasher.hash_one(value);
        let found = ids.find(hash, |id| values[*id as usize].borrow() == value);
        if let Some(id) = found {
            return *id;
        }
        let id = u32::try_from(values.len()).unwrap_or(NONE);
        values.push(own());
        ids.insert_unique(hash, id, |id| hasher.hash_one(&values[*id as usize]));
        id
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)
    }
}

/// The interned names and addresses. A capture may have an address for each handshake: an address
/// stays one, and becomes text only where it is shown.
#[derive(Debug)]
pub(super) struct InternedTexts {
    names: Interned<Box<str>>,
    v4: Interned<Ipv4Addr>,
    v6: Interned<Ipv6Addr>,
}

/// The kinds of texts. An ID ends with its kind.
const NAME: u32 = 0;
const V4: u32 = 1;
const V6: u32 = 2;
const KIND_BITS: u32 = 2;

impl InternedTexts {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self {
            names: Interned::new(hasher.clone()),
            v4: Interned::new(hasher.clone()),
            v6: Interned::new(hasher),
        }
    }

    pub(super) fn intern(&mut self, name: &str) -> u32 {
        of_kind(NAME, self.names.id(name, || name.into()))
    }

    /// Interns a name; names are case-insensitive (RFC 4343).
    pub(super) fn name(&mut self, name: &str) -> u32 {
        match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.intern(&name.to_ascii_lowercase()),
            false => self.intern(name),
        }
    }

    pub(super) fn address(&mut self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(address) => of_kind(V4, self.v4.id(&address, || address)),
            IpAddr::V6(address) => of_kind(V6, self.v6.id(&address, || address)),
        }
    }

    pub(super) fn get(&self, id: u32) -> Cow<'_, str> {
        let place = id >> KIND_BITS;
        let text = match id & ((1 << KIND_BITS) - 1) {
            V4 => self.v4.get(place).map(|address| Cow::Owned(address.to_string())),
            V6 => self.v6.get(place).map(|address| Cow::Owned(address.to_string())),
            _ => self.names.get(place).map(|name| Cow::Borrowed(&**name)),
        };
        text.unwrap_or_default()
    }
}

fn of_kind(kind: u32, place: u32) -> u32 {
    (place << KIND_BITS) | kind
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
