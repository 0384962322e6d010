//! Clients by number: a trace's clients have any 64-bit numbers; a pass numbers them from 0 in the
//! order in which they come.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rejoin_trace::{group_of, member_of};

use crate::error::Error;
use crate::policy::nodes::hash;

/// The clients seen so far.
///
/// Clients that are numbered from 0, such as a population's, are in pages: 4 bytes each, one access
/// to memory. The rest are in a hash table, 17 to 39 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    seen: u32,
    /// The pages, by group and page. An entry is a number plus 1, or 0.
    pages: Vec<Vec<Option<Box<[u32; PAGE]>>>>,
    pages_made: usize,
    others: HashTable<(u64, u32)>,
}

/// The number of clients in a page.
const PAGE: usize = 1_024;
/// The largest number in pages. Clients beyond are taken not to be numbered from 0.
const MOST_COUNTED: u64 = 1 << 32;
/// The most entries for each client, if few of them are used.
const ENTRIES_A_CLIENT: usize = 64;
/// The number of pages that are made in any case.
const FEW_PAGES: usize = 256;

impl Clients {
    /// Returns the number of a client, and whether it appears for the first time.
    #[inline]
    pub(crate) fn number(&mut self, client: u64) -> Result<(u32, bool), Error> {
        if let Some(entry) = self.entry(client)
            && *entry > 0
        {
            return Ok((*entry - 1, false));
        }
        self.find_or_add(client)
    }

    #[inline]
    fn entry(&mut self, client: u64) -> Option<&mut u32> {
        let (page, at) = place(client);
        let page = self.pages.get_mut(group_of(client))?.get_mut(page)?.as_mut()?;
        Some(&mut page[at])
    }

    fn find_or_add(&mut self, client: u64) -> Result<(u32, bool), Error> {
        self.make_page(client);
        let number = self.seen;
        let in_table =
            self.others.entry(hash(client), |other| other.0 == client, |other| hash(other.0));
        let vacant = match in_table {
            Entry::Occupied(entry) => return Ok((entry.get().1, false)),
            Entry::Vacant(vacant) => vacant,
        };
        if number == u32::MAX {
            return Err(Error::TooManyClients { most: u32::MAX });
        }
        self.seen += 1;
        let (page, at) = place(client);
        let page = self.pages.get_mut(group_of(client)).and_then(|pages| pages.get_mut(page));
        match page.and_then(Option::as_mut) {
            Some(page) => page[at] = number + 1,
            None => {
                vacant.insert((client, number));
            }
        }
        Ok((number, true))
    }

    /// Returns the client's entry, if its number is small enough and pages are used well enough.
    fn make_page(&mut self, client: u64) {
        let entries = (self.pages_made + 1) * PAGE;
        let worth_it = entries <= self.seen as usize * ENTRIES_A_CLIENT + FEW_PAGES * PAGE;
        if member_of(client) >= MOST_COUNTED || !worth_it {
            return;
        }
        let (group, (page, _)) = (group_of(client), place(client));
        if self.pages.len() <= group {
            self.pages.resize_with(group + 1, Vec::new);
        }
        let pages = &mut self.pages[group];
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        if pages[page].is_none() {
            pages[page] = Some(Box::new([0; PAGE]));
            self.pages_made += 1;
        }
    }
}

#[inline]
fn place(client: u64) -> (usize, usize) {
    let member = member_of(client);
    ((member / PAGE as u64) as usize, (member % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rejoin_testkit::random::Random;

    use super::*;

    #[test]
    fn numbers_are_as_a_map_gives_them() {
        let mut random = Random::new(1);
        let mut draw = || random.next();
        let (mut clients, mut map) = (Clients::default(), HashMap::new());
        for _ in 0..200_000 {
            let member = match draw() % 4 {
                0 => draw() % 50_000,
                1 => draw() % 40_000_000 * 100,
                2 => (1 << 32) + draw() % 10_000,
                _ => draw() >> 8,
            };
            let client = (draw() % 3) << 56 | member;
            let next = map.len() as u32;
            let expected = *map.entry(client).or_insert(next);
            let found = clients.number(client).expect("few clients");
            assert_eq!(found, (expected, expected == next));
        }
        assert!(clients.pages_made > FEW_PAGES && clients.others.len() > 10_000);
    }
}
