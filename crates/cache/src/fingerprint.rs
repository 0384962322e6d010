//! A fingerprint of layouts, on which two programs must agree before they use the same regions.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::ghosts::GhostSet;
use crate::index::Group;
use crate::layout::{Header, Layout};
use crate::ledger::Ledger;
use crate::order::List;
use crate::region::Line;
use crate::slots::Slot;

impl Layout {
    /// The version, which goes up when the data in regions or ledgers change their place or meaning.
    pub const VERSION: u32 = 11;

    /// Returns the fingerprint of a cache's layouts. Two programs get the same one if they divide
    /// regions in the same way and give the parts the same meaning, as far as sizes and
    /// [`Self::VERSION`] tell.
    pub fn fingerprint(layouts: &[Self]) -> u64 {
        let mut hasher = SipHasher13::new();
        let sizes = [
            size_of::<Line>(),
            size_of::<Header>(),
            size_of::<List>(),
            size_of::<Group>(),
            size_of::<GhostSet>(),
            size_of::<Slot>(),
            size_of::<Ledger>(),
        ];
        hasher.write(&Self::VERSION.to_le_bytes());
        // Bytes of the machine's own order: another order is another layout.
        sizes.iter().for_each(|size| hasher.write(&(*size as u64).to_ne_bytes()));
        layouts.iter().flat_map(|layout| layout.parts).for_each(|lines| {
            hasher.write(&(lines as u64).to_ne_bytes());
        });
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capacity, Fairness, Settings, SourceBy};

    #[test]
    fn another_division_is_another_layout() {
        let of = |settings: &Settings| {
            Layout::fingerprint(&Layout::for_cache(settings).expect("settings make a cache"))
        };
        let settings = Settings::new(Capacity::Sessions(5_000));
        assert_eq!(of(&settings), of(&settings.clone()));
        for other in [
            Settings::new(Capacity::Sessions(5_001)),
            Settings { block_bytes: 200, ..settings.clone() },
            Settings { ghosts_percent: 50, ..settings.clone() },
            Settings { shards: Some(2), ..settings.clone() },
            Settings {
                fairness: Some(Fairness { by: SourceBy::Name, percent: 9 }),
                ..settings.clone()
            },
        ] {
            assert_ne!(of(&settings), of(&other), "{other:?}");
        }
    }
}
