//! The division of a shared cache's file.
//!
//! | part | bytes |
//! |---|---|
//! | head, and the figures of the whole | 4096 |
//! | a page for the caller | 4096 |
//! | locks: the page's, and one per shard | 128 each |
//! | ledger | of [`Ledger`] |
//! | regions of the shards | of [`Layout`] |
//! | a cluster's mailbox: lock, letters, desk | of [`crate::Mailbox`] |
//! | the mark of a whole file, its last word | 8 |
//!
//! It is computed from the settings, never read from the file. A capacity in bytes is all of this: the sessions get
//! what the other parts leave.

use rejoin_cache::{Capacity, Error, Layout, Ledger, Line, Settings};

use crate::desk::Desk;
use crate::figures::Figures;
use crate::letters;
use crate::lock::Lock;
use crate::mapping::Mapping;

/// The place of each part, in bytes from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Division {
    /// The locks of the page and of each shard.
    pub(crate) locks: Vec<usize>,
    pub(crate) ledger: usize,
    /// The start of each shard's region, and its number of lines.
    pub(crate) regions: Vec<(usize, usize)>,
    pub(crate) mailbox: Option<MailboxPlace>,
    /// The size of the file, in whole pages.
    pub(crate) bytes: usize,
    /// The size of a file that an older version made: it had no mark, and a page less where the other parts fill their
    /// pages.
    pub(crate) unmarked_bytes: usize,
}

/// The settings of a file, the cache that fits into it, and its division.
#[derive(Debug)]
pub(crate) struct Fit {
    /// The settings of the sessions alone.
    pub(crate) sessions: Settings,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) division: Division,
}

/// The place of a cluster's mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MailboxPlace {
    pub(crate) lock: usize,
    pub(crate) letters: usize,
    pub(crate) desk: usize,
}

impl Division {
    /// The size of a page, of the first part and of the second.
    pub(crate) const PAGE_BYTES: usize = 4096;
    /// The place of the figures, in the first part. The head is before them.
    pub(crate) const FIGURES: usize = 2048;
    /// The place of the page for the caller.
    pub(crate) const PAGE: usize = Self::PAGE_BYTES;
    const LOCKS: usize = Self::PAGE + Self::PAGE_BYTES;
    /// The alignment of each part: two cache lines.
    const STEP: usize = 128;

    /// Computes the division, which is the same in all processes.
    pub(crate) fn of(layouts: &[Layout], clustered: bool) -> Self {
        let mut end = Self::LOCKS;
        let mut next = |bytes: usize| {
            let start = end;
            end = (end + bytes).next_multiple_of(Self::STEP);
            start
        };
        let locks = (0..=layouts.len()).map(|_| next(size_of::<Lock>())).collect();
        let ledger = next(size_of::<Ledger>());
        let region = |layout: &Layout| (next(layout.region_bytes()), layout.region_lines());
        let regions = layouts.iter().map(region).collect();
        let mailbox = clustered.then(|| MailboxPlace {
            lock: next(size_of::<Lock>()),
            letters: next(letters::LINES * size_of::<Line>()),
            desk: next(size_of::<Desk>()),
        });
        let unmarked_bytes = end.next_multiple_of(Self::PAGE_BYTES);
        let bytes = (end + Mapping::MARK_BYTES).next_multiple_of(Self::PAGE_BYTES);
        Self { locks, ledger, regions, mailbox, bytes, unmarked_bytes }
    }

    /// Returns the most bytes that a file with so many shards has beside their regions, in whole pages.
    fn bytes_beside(shards: u64, clustered: bool) -> u64 {
        // Each shard adds a lock, and its region may end between two places where the next part can start.
        let of_shards = shards * (Self::STEP + size_of::<Lock>()) as u64;
        let page_bytes = Self::PAGE_BYTES as u64;
        // Every shard leaves the mark its room. Without it, because files of older versions must fit, too.
        (Self::of(&[], clustered).unmarked_bytes as u64 + of_shards).next_multiple_of(page_bytes)
    }
}

impl Fit {
    /// Divides a file of these settings. If their capacity is in bytes, the file takes no more than that.
    ///
    /// # Errors
    /// Settings that make no cache.
    pub(crate) fn of(settings: &Settings, clustered: bool) -> Result<Self, Error> {
        let capacity_bytes = match settings.capacity {
            Capacity::Bytes(bytes) => bytes,
            Capacity::Sessions(_) => {
                let layouts = Layout::for_cache(settings)?;
                return Ok(Self::with(settings.clone(), layouts, clustered));
            }
        };
        // With fewer bytes there are no more shards.
        let shards = match Layout::for_cache(settings) {
            Ok(layouts) => layouts.len() as u64,
            Err(Error::CapacityTooSmall { .. }) => settings.shards.unwrap_or(1).into(),
            Err(error) => return Err(error),
        };
        let beside = Division::bytes_beside(shards, clustered);
        let page_bytes = Division::PAGE_BYTES as u64;
        let left = (capacity_bytes / page_bytes * page_bytes).saturating_sub(beside);
        let sessions = Settings { capacity: Capacity::Bytes(left), ..settings.clone() };
        match Layout::for_cache(&sessions) {
            Ok(layouts) => Ok(Self::with(sessions, layouts, clustered)),
            Err(Error::CapacityTooSmall { needed_bytes, .. }) => {
                let needed_bytes = (beside + needed_bytes).next_multiple_of(page_bytes);
                Err(Error::CapacityTooSmall { capacity_bytes, needed_bytes })
            }
            Err(error) => Err(error),
        }
    }

    fn with(sessions: Settings, layouts: Vec<Layout>, clustered: bool) -> Self {
        let division = Division::of(&layouts, clustered);
        Self { sessions, layouts, division }
    }
}

const _: () = {
    assert!(align_of::<Lock>() <= Division::STEP);
    assert!(align_of::<Ledger>() <= Division::STEP);
    assert!(align_of::<Line>() <= Division::STEP);
    assert!(align_of::<Desk>() <= Division::STEP);
    assert!(Division::FIGURES + size_of::<Figures>() <= Division::PAGE);
};

#[cfg(test)]
mod tests {
    use rejoin_cache::{Capacity, Settings};

    use super::*;

    #[test]
    fn a_file_takes_no_more_than_its_bytes_and_most_of_them() {
        let sizes = (1..=256).flat_map(|mib| [mib << 20, (mib << 20) + mib * 4_093 - 1]);
        for bytes in sizes.chain([1 << 33]) {
            for (shards, clustered) in [(None, false), (None, true), (Some(16), true)] {
                let settings = Settings { shards, ..Settings::new(Capacity::Bytes(bytes)) };
                let Fit { layouts, division, .. } = Fit::of(&settings, clustered).expect("fits");
                let taken = division.bytes as u64;
                let of_sessions = layouts.iter().map(|of| of.region_bytes() as u64).sum::<u64>();
                assert!(taken <= bytes, "{bytes} bytes: {taken} taken");
                let is_small = bytes < 4 << 20;
                assert!(is_small || taken * 100 >= bytes * 95, "{bytes} bytes: {taken} taken");
                // Sixteen shards, and what is shared of a cluster, take a tenth of the smallest, and 1,434 bytes.
                let enough = is_small || of_sessions * 1_000 >= bytes * 899;
                assert!(enough, "{bytes} bytes: {of_sessions} for sessions");
            }
        }
    }

    #[test]
    fn no_two_parts_share_a_byte() {
        let settings = Settings { shards: Some(5), ..Settings::new(Capacity::Sessions(1_003)) };
        let layouts = Layout::for_cache(&settings).expect("settings make a cache");
        let Division { locks, ledger, regions, mailbox, bytes, .. } = Division::of(&layouts, true);
        let mut parts: Vec<(usize, usize)> = vec![(0, Division::LOCKS)];
        parts.extend(locks.iter().map(|lock| (*lock, size_of::<Lock>())));
        parts.push((ledger, size_of::<Ledger>()));
        parts.extend(regions.iter().map(|(start, lines)| (*start, lines * size_of::<Line>())));
        let MailboxPlace { lock, letters, desk } = mailbox.expect("of a cluster");
        parts.push((lock, size_of::<Lock>()));
        parts.push((letters, letters::LINES * size_of::<Line>()));
        parts.push((desk, size_of::<Desk>()));
        parts.push((bytes - Mapping::MARK_BYTES, Mapping::MARK_BYTES));
        assert_eq!((locks.len(), regions.len()), (6, 5));
        assert!(parts.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
        assert!(parts.last().is_some_and(|(start, of)| start + of <= bytes));
    }
}
