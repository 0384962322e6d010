//! Sessions and ticket keys that the servers of several machines share, over Valkey or Redis.
//!
//! Servers never connect to Valkey. An *agent* on each machine does: it keeps the ring of ticket keys in the
//! machine's shared memory ([`rejoin_store::Store`]) in step with the cluster, stores the sessions that
//! servers make, and fetches those that they miss. Without an agent, or without Valkey, servers continue with
//! the keys and sessions of their machine.
//!
//! All data is encrypted and authenticated before it leaves a machine. Valkey holds no key and no session id in clear.

#![forbid(unsafe_code)]

mod agent;
mod census;
mod error;
mod health;
mod key_file;
mod keys;
mod link;
mod machines;
mod name;
mod report;
mod ring_place;
mod ring_record;
mod secret;
pub mod sessions;
mod settings;
mod site_keys;
mod sites;
mod wrapping_key;

pub use agent::{Agent, News};
pub use census::{Census, Problem, Seen};
pub use error::{Error, KeyFileFault, without_numbers};
pub use health::{Health, HealthFacts, SoughtFacts};
pub use key_file::KeyFile;
pub use keys::ClusterKeys;
pub use link::{Link, Login, NodeAddress, Place, Sentinels, Servers, Tls};
pub use machines::{Listed, Machines};
pub use name::{ClusterName, MachineName, SiteName};
pub use report::Report;
pub use ring_place::Replicas;
pub use ring_record::RingRecord;
pub use secret::{ClusterSecret, RekeyStep, Turn};
pub use sessions::Sessions;
pub use settings::{SentinelSettings, SessionBounds, Settings, SiteSettings, TlsFiles};
pub use site_keys::{Answer, Followed, SiteKeys};
pub use sites::{Site, SiteLinks, Sites};
pub use wrapping_key::KeyName;
