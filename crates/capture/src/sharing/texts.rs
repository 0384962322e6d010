//! Texts and certificates, each kept once and known by its place.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// No certificate.
pub(super) const NONE: u32 = u32::MAX;

/// Texts, each kept once.
#[derive(Debug)]
pub(super) struct Texts {
    places: HashMap<Arc<str>, u32, FixedState>,
    texts: Vec<Arc<str>>,
    addresses: HashMap<IpAddr, u32, FixedState>,
}

impl Texts {
    pub(super) fn new(seed: impl Fn() -> FixedState) -> Self {
        let (places, addresses) = (HashMap::with_hasher(seed()), HashMap::with_hasher(seed()));
        Self { places, texts: Vec::new(), addresses }
    }

    pub(super) fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = u32::try_from(self.texts.len()).unwrap_or(NONE);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.places.insert(text, place);
        place
    }

    /// Names are the same in upper and lower case (RFC 4343).
    pub(super) fn name(&mut self, name: &str) -> u32 {
        match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.place(&name.to_ascii_lowercase()),
            false => self.place(name),
        }
    }

    pub(super) fn address(&mut self, address: IpAddr) -> u32 {
        if let Some(place) = self.addresses.get(&address) {
            return *place;
        }
        let place = self.place(&address.to_string());
        self.addresses.insert(address, place);
        place
    }

    pub(super) fn get(&self, place: u32) -> &str {
        self.texts.get(place as usize).map_or("", |text| text)
    }
}

/// Certificates, each kept once, and the names they are valid for.
#[derive(Debug)]
pub(super) struct Certificates {
    places: HashMap<[u8; 32], u32, FixedState>,
    names: Vec<Arc<[Box<str>]>>,
}

impl Certificates {
    pub(super) fn new(seed: FixedState) -> Self {
        Self { places: HashMap::with_hasher(seed), names: Vec::new() }
    }

    pub(super) fn place(&mut self, sha256: &[u8; 32], names: &Arc<[Box<str>]>) -> u32 {
        *self.places.entry(*sha256).or_insert_with(|| {
            self.names.push(Arc::clone(names));
            u32::try_from(self.names.len() - 1).unwrap_or(NONE)
        })
    }

    pub(super) fn names(&self, place: u32) -> &[Box<str>] {
        self.names.get(place as usize).map_or(&[], |names| names)
    }
}
