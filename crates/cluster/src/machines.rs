//! The reports of a cluster's machines in Valkey: a hash from each machine's id to its report, and a sorted set of the times
//! at which Valkey got them.
//!
//! An id is a keyed hash of the machine's name, under the part of the cluster's secret that is never replaced. A report is
//! encrypted under a key that is derived for its id alone, so it is none in the place of another machine, and random nonces
//! are safe however many machines there are. While the cluster's key is being replaced, reports under either key are read.
//!
//! The times are Valkey's, because machines' clocks differ. They are not authenticated; each report has the time of its
//! machine in it, by which one that was put back shows ([`crate::Seen::clock_ahead_ms`]).

use std::time::Duration;

use aws_lc_rs::hmac;
use redis::Script;

use crate::wrapping_key::WrappingKey;
use crate::{ClusterName, ClusterSecret, Error, Link, Report};

/// The place of the reports in a Valkey, for holders of the cluster's secret.
pub struct Machines {
    machines: String,
    reported: String,
    ids: hmac::Key,
    /// One for each key that is accepted; the first is used.
    keys: Vec<WrappingKey>,
    report: Script,
    list: Script,
}

/// The reports of a cluster's machines that a Valkey has.
#[derive(Debug, Default)]
pub struct Listed {
    /// The reports, and the time since Valkey got each, in milliseconds by its clock.
    pub reports: Vec<(Report, u64)>,
    /// The values that are no report of the machine in whose place they are: altered, forged, of a later version, or under
    /// a key that is not accepted.
    pub unopened: usize,
}

type Id = [u8; Machines::ID_BYTES];

impl Machines {
    /// The most machines that report.
    pub const MOST: usize = 10_000;
    /// The time after which a silent machine is forgotten, once another one reports.
    pub const STAYS: Duration = Duration::from_secs(24 * 3_600);
    /// The reports that are read at once, which keeps others waiting for less than a millisecond.
    const AT_ONCE: usize = 256;
    const ID_BYTES: usize = 16;

    /// The reports of the cluster of this name, whose machines all have this secret.
    pub fn new(name: &ClusterName, secret: &ClusterSecret) -> Self {
        let purpose = |what: &str| format!("rejoin cluster {what} {name}").into_bytes();
        let ids = hmac::Key::new(hmac::HMAC_SHA256, secret.ids());
        let ids = hmac::sign(&ids, &purpose("machine ids"));
        let of_reports = purpose("machine reports");
        Self {
            machines: name.valkey_key("machines"),
            reported: name.valkey_key("reported"),
            ids: hmac::Key::new(hmac::HMAC_SHA256, ids.as_ref()),
            keys: secret.keys().map(|key| key.subkey(&of_reports)).collect(),
            report: Script::new(include_str!("scripts/report.lua")),
            list: Script::new(include_str!("scripts/machines.lua")),
        }
    }

    /// Stores a machine's report in place of its last one, which is returned if it was there.
    ///
    /// # Errors
    /// [`Error::TooManyMachines`], and those of Valkey.
    pub async fn put(&self, link: &mut Link, report: &Report) -> Result<Option<Report>, Error> {
        let id = self.id(report);
        let sealed = self.keys[0].wrapping(&id).wrap(&id, &report.to_bytes())?;
        let mut put = self.report.prepare_invoke();
        put.key(&self.machines).key(&self.reported);
        put.arg(&id[..]).arg(sealed).arg(Self::STAYS.as_millis() as u64).arg(Self::MOST);
        put.arg(Report::LONGEST + 1);
        let before: Option<Vec<u8>> = put.invoke_async(link).await?;
        let before = before.ok_or(Error::TooManyMachines { most: Self::MOST })?;
        Ok(self.open(&id, &before))
    }

    /// Reads all reports.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn read(&self, link: &mut Link) -> Result<Listed, Error> {
        let mut list = self.list.prepare_invoke();
        list.key(&self.reported).arg(Self::MOST);
        let (now_ms, places): (u64, Vec<Vec<u8>>) = list.invoke_async(link).await?;
        let mut listed = Listed::default();
        let (places, _) = places.as_chunks::<2>();
        for places in places.chunks(Self::AT_ONCE) {
            let mut read = redis::cmd("HMGET");
            read.arg(&self.machines);
            for [id, _] in places {
                read.arg(id);
            }
            let sealed: Vec<Option<Vec<u8>>> = read.query_async(link).await?;
            // One that was forgotten meanwhile is not there.
            let there =
                places.iter().zip(sealed).filter_map(|(place, sealed)| Some((place, sealed?)));
            for ([id, at_ms], sealed) in there {
                let at_ms = str::from_utf8(at_ms).ok().and_then(|text| text.parse::<u64>().ok());
                let id = id.as_slice().try_into().ok();
                match id.and_then(|id| self.open(id, &sealed)).zip(at_ms) {
                    Some((report, at_ms)) => {
                        listed.reports.push((report, now_ms.saturating_sub(at_ms)));
                    }
                    None => listed.unopened += 1,
                }
            }
        }
        Ok(listed)
    }

    /// `None`: it is no report of the machine with this id.
    fn open(&self, id: &Id, sealed: &[u8]) -> Option<Report> {
        if sealed.len() > Report::LONGEST {
            return None;
        }
        let report = self.keys.iter().find_map(|key| key.wrapping(id).unwrap(id, sealed))?;
        Report::parse(&report).filter(|report| self.id(report) == *id)
    }

    fn id(&self, report: &Report) -> Id {
        let tag = hmac::sign(&self.ids, report.machine.as_str().as_bytes());
        *tag.as_ref().first_chunk().expect("HMAC-SHA-256 has 32 bytes")
    }
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machines").field("machines", &self.machines).finish_non_exhaustive()
    }
}
