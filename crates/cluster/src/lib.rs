//! Sessions and ticket keys that the servers of several machines share, over Valkey or Redis.
//!
//! Servers never speak to Valkey. On each machine an *agent* does: it keeps the ring of ticket keys in the
//! machine's shared memory ([`rejoin_store::Store`]) the same as everywhere, stores the sessions that
//! servers make, and fetches those that they miss. Without it, or without Valkey, servers go on with what
//! the machine has.
//!
//! Whatever leaves a machine is encrypted and authenticated before; Valkey holds no key and no id in clear.

#![forbid(unsafe_code)]

mod agent;
mod error;
mod key_files;
mod keys;
mod link;
mod name;
mod ring_place;
pub mod sessions;
mod settings;
mod wrapping_key;

pub use agent::{Agent, News};
pub use error::{Error, KeyFileFault};
pub use key_files::KeyFiles;
pub use keys::ClusterKeys;
pub use link::{Link, Servers, Tls};
pub use name::ClusterName;
pub use sessions::Sessions;
pub use settings::{SessionBounds, Settings, TlsFiles};
pub use wrapping_key::WrappingKey;
