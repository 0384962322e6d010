//! The future accesses that the clairvoyant knows.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::nodes::hash;

/// Returns, for each access to a key, the position of the next access to the same key;
/// [`u64::MAX`] if there is none.
///
/// It goes through the keys from the last to the first, and takes 8 bytes per access, and up to 40
/// per key while it runs.
pub fn next_accesses(keys: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator) -> Vec<u64> {
    let mut next = vec![u64::MAX; keys.len()];
    let mut seen: HashTable<(u64, u64)> = HashTable::new();
    for (at, key) in keys.enumerate().rev() {
        match seen.entry(hash(key), |seen| seen.0 == key, |seen| hash(seen.0)) {
            Entry::Occupied(mut entry) => {
                next[at] = std::mem::replace(&mut entry.get_mut().1, at as u64);
            }
            Entry::Vacant(entry) => {
                entry.insert((key, at as u64));
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_knows_the_next() {
        const NEVER: u64 = u64::MAX;
        let keys = [7, 8, 7, 7, 9, 8];
        assert_eq!(next_accesses(keys.into_iter()), [2, 5, 3, NEVER, NEVER, NEVER]);
        assert!(next_accesses(std::iter::empty()).is_empty());
    }
}
