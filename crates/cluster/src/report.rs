//! The report of a machine about itself, as it is before it is sealed.

use rejoin_store::MailboxFacts;

use crate::wrapping_key::KeyName;
use crate::{ClusterName, HealthFacts, MachineName, SiteName};

/// An agent's report of its machine. Anyone with the cluster's key can write any report. All counts are since the
/// agent was started, but for those of servers, which are since the cache was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The machine's name.
    pub machine: MachineName,
    /// The name of its site, if there are several.
    pub site: Option<SiteName>,
    /// A random number by which this agent is told from any other.
    pub agent: u64,
    /// The time of the report by the machine's clock, in milliseconds of Unix time.
    pub at_ms: u64,
    /// The time at which the agent was started, by the same clock.
    pub since_ms: u64,
    /// The version of the ring of ticket keys that the machine's servers use.
    pub ring_version: u64,
    /// The key of the cluster that is used.
    pub key: KeyName,
    /// The steps of [`RekeyStep`](crate::RekeyStep) that the agent has taken: none, one or two; none again after the third.
    pub rekey_step: u64,
    /// True if the site that is the ring's home answered the last time. `None` if that is the machine's own site.
    pub is_home_linked: Option<bool>,
    /// True if another agent reports under the same name.
    pub is_name_shared: bool,
    /// True if Valkey answered in the last five minutes that it does not store a session, or does not find one. Agents of
    /// earlier versions do not say so.
    pub is_refused: bool,
    /// Times that Valkey answered when the agent read the ring, once a second.
    pub answered: u64,
    /// The time that these answers took, in microseconds.
    pub answered_us: u64,
    /// Times that it did not answer.
    pub unanswered: u64,
    /// Sessions sent to Valkey and stored there.
    pub stored: u64,
    /// Sessions sent and not stored, because all others return sooner, or because they expire or are too large.
    pub refused: u64,
    /// Sessions that Valkey did not take, because it did not answer or is full.
    pub unsent: u64,
    /// Fetches that Valkey did not answer in time.
    pub unfetched: u64,
    /// Sessions that servers of the machine asked for.
    pub asked: u64,
    /// Sessions that they got in time.
    pub fetched: u64,
    /// Sessions that they did not get in time.
    pub late: u64,
    /// Sessions that they did not ask for, because Valkey or the agent had not answered.
    pub skipped: u64,
    /// Messages of servers to the agent that found no room.
    pub dropped: u64,
}

impl Report {
    /// The length of every report of this version, in bytes.
    pub(crate) const BYTES: usize = 1 + 2 * NAME_BYTES + 8 * NUMBERS;
    /// The length of the longest report: that of a later version is read as far as it is known.
    pub(crate) const LONGEST: usize = 1_024;
    const VERSION: u8 = 1;

    /// The report of a machine of which nothing else is known.
    pub fn new(machine: MachineName, site: Option<SiteName>, key: KeyName) -> Self {
        Self {
            machine,
            site,
            key,
            agent: 0,
            at_ms: 0,
            since_ms: 0,
            ring_version: 0,
            rekey_step: 0,
            is_home_linked: None,
            is_name_shared: false,
            is_refused: false,
            answered: 0,
            answered_us: 0,
            unanswered: 0,
            stored: 0,
            refused: 0,
            unsent: 0,
            unfetched: 0,
            asked: 0,
            fetched: 0,
            late: 0,
            skipped: 0,
            dropped: 0,
        }
    }

    /// Takes over the counts of the agent and of the machine's servers.
    pub(crate) fn count(&mut self, health: &HealthFacts, servers: &MailboxFacts) {
        let HealthFacts { rekey_step, is_home_linked, answered, unanswered, .. } = *health;
        self.is_refused = health.is_refused;
        let HealthFacts { answered_within, stored, refused, unsent, unfetched, .. } = *health;
        let MailboxFacts { asked, fetched, late, skipped, dropped, .. } = *servers;
        let answered_us = answered_within.as_micros() as u64;
        (self.rekey_step, self.is_home_linked) = (rekey_step, is_home_linked);
        (self.answered, self.answered_us, self.unanswered) = (answered, answered_us, unanswered);
        (self.stored, self.refused) = (stored, refused);
        (self.unsent, self.unfetched) = (unsent, unfetched);
        (self.asked, self.fetched, self.late) = (asked, fetched, late);
        (self.skipped, self.dropped) = (skipped, dropped);
    }

    /// Returns true if this machine's state is another one than in an earlier report. Counts are no state.
    pub(crate) fn is_news_after(&self, earlier: &Self) -> bool {
        let state =
            |of: &Self| (of.ring_version, of.key, of.rekey_step, of.is_home_linked, of.is_refused);
        state(self) != state(earlier)
    }

    /// The version, the two names, each with its length and room for the longest one, and the numbers: all reports are
    /// equally long, and tell nothing by that.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.push(Self::VERSION);
        push_name(self.machine.as_str(), &mut bytes);
        push_name(self.site.as_ref().map_or("", SiteName::as_str), &mut bytes);
        bytes.extend(self.numbers().iter().flat_map(|number| number.to_be_bytes()));
        bytes
    }

    /// `None`: these bytes are no report of this version or a compatible later one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (Self::VERSION, rest) = bytes.split_first().map(|(version, rest)| (*version, rest))?
        else {
            return None;
        };
        let (machine, rest) = rest.split_first_chunk::<NAME_BYTES>()?;
        let (site, rest) = rest.split_first_chunk::<NAME_BYTES>()?;
        let (numbers, _) = rest.as_chunks::<8>();
        let is_refused = numbers.get(FIRST_NUMBERS).is_some_and(|number| *number != [0; 8]);
        let numbers = numbers.first_chunk::<FIRST_NUMBERS>()?.map(u64::from_be_bytes);
        let [agent, at_ms, since_ms, ring_version, key, rekey_step, home, shared, counts @ ..] =
            numbers;
        let [answered, answered_us, unanswered, stored, refused, unsent, unfetched, servers @ ..] =
            counts;
        let [asked, fetched, late, skipped, dropped] = servers;
        let site = match name(site)? {
            "" => None,
            site => Some(site.parse().ok()?),
        };
        Some(Self {
            machine: name(machine)?.parse().ok()?,
            site,
            agent,
            at_ms,
            since_ms,
            ring_version,
            key: KeyName::from_bytes(key.to_be_bytes()),
            rekey_step,
            is_home_linked: HOME.iter().find(|(_, number)| *number == home)?.0,
            is_name_shared: shared != 0,
            is_refused,
            answered,
            answered_us,
            unanswered,
            stored,
            refused,
            unsent,
            unfetched,
            asked,
            fetched,
            late,
            skipped,
            dropped,
        })
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        let home = HOME.iter().find(|(is_linked, _)| *is_linked == self.is_home_linked);
        [
            self.agent,
            self.at_ms,
            self.since_ms,
            self.ring_version,
            u64::from_be_bytes(self.key.to_bytes()),
            self.rekey_step,
            home.expect("each is listed").1,
            self.is_name_shared.into(),
            self.answered,
            self.answered_us,
            self.unanswered,
            self.stored,
            self.refused,
            self.unsent,
            self.unfetched,
            self.asked,
            self.fetched,
            self.late,
            self.skipped,
            self.dropped,
            self.is_refused.into(),
        ]
    }
}

const NAME_BYTES: usize = 1 + ClusterName::LONGEST;
/// The numbers that reports of every version have.
const FIRST_NUMBERS: usize = 20;
const NUMBERS: usize = FIRST_NUMBERS + 1;
const HOME: [(Option<bool>, u64); 3] = [(None, 0), (Some(false), 1), (Some(true), 2)];

fn push_name(name: &str, bytes: &mut Vec<u8>) {
    let end = bytes.len() + NAME_BYTES;
    bytes.push(u8::try_from(name.len()).expect("names are short"));
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(end, 0);
}

fn name(bytes: &[u8; NAME_BYTES]) -> Option<&str> {
    let [length, name @ ..] = bytes;
    str::from_utf8(name.get(..usize::from(*length))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let numbers: Vec<u8> =
            [7, 1_800_000_000_000, 1_700_000_000_000, 41, u64::MAX, 2, 1, 1, 9, 10, 11]
                .into_iter()
                .chain(12..=20)
                .flat_map(u64::to_be_bytes)
                .collect();
        let mut bytes = vec![Report::VERSION];
        push_name("web-1", &mut bytes);
        push_name("berlin", &mut bytes);
        Report::parse(&[bytes, numbers].concat()).expect("a report")
    }

    #[test]
    fn reports_are_read_as_they_were_written() {
        let report = report();
        assert_eq!((report.machine.as_str(), report.unanswered), ("web-1", 11));
        assert_eq!((report.is_home_linked, report.dropped), (Some(false), 20));
        assert!(!report.is_refused, "an earlier version does not say so");
        let refused = Report { is_refused: true, ..report.clone() };
        let long = Report { machine: "x".repeat(64).parse().expect("a name"), ..report.clone() };
        let alone = Report { site: None, is_home_linked: None, ..report.clone() };
        for report in [report, refused, long, alone] {
            let bytes = report.to_bytes();
            assert_eq!(bytes.len(), Report::BYTES);
            assert_eq!(Report::parse(&bytes).as_ref(), Some(&report));
            // A later version may say more.
            assert_eq!(Report::parse(&[&bytes[..], &[9; 12]].concat()), Some(report));
        }
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let bytes = report().to_bytes();
        let earlier = Report::BYTES - 8 * (NUMBERS - FIRST_NUMBERS);
        for length in 0..earlier {
            assert_eq!(Report::parse(&bytes[..length]), None, "{length} bytes");
        }
        for length in earlier..bytes.len() {
            assert_eq!(Report::parse(&bytes[..length]), Some(report()), "{length} bytes");
        }
        let home = 1 + 2 * NAME_BYTES + 6 * 8 + 7;
        for (at, byte) in [(0, 2), (1, 0), (1, 65), (1, 255), (2, b'\x1b'), (3, 0xff), (home, 3)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(Report::parse(&bytes), None, "{byte} at {at}");
        }
    }
}
