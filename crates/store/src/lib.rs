//! A session cache in memory that the processes of one machine share.
//!
//! A [`Store`] is a file, by default in [`Store::FOLDER`], that every process of a server maps: its
//! workers, those that a reload adds, and those that come after a restart all find the sessions of
//! the others. The engine is [`rejoin_cache::Cache`], unchanged; here are the memory under it, the
//! locks, and the rules for opening and removing it. What is learned of return times is shared too, and so
//! are the keys of stateless tickets ([`SharedKeys`]).
//!
//! **Life.** Whoever comes first makes the file; it is complete before it has its name. It stays
//! until it is removed, or the machine is started again. A server that changes its user opens it
//! before, and its workers inherit it; or they open it themselves, as the user who made it.
//!
//! **Death.** A process killed in the middle of an operation costs the sessions of one shard. None
//! waits for another for longer than a tenth of a second: then the session is not found, and the
//! client makes a full handshake.
//!
//! **Secrets.** The file holds session secrets and keys. Only its owner and root may open it, and a
//! file that anybody else could have written is refused. It stays out of core dumps, and out of
//! the swap space where `RLIMIT_MEMLOCK` allows. It is wiped when it is removed, not when a process
//! ends.
//!
//! **What is not here.** Protection from other processes of the same user: whoever may write to the
//! file may also cut it short, or write over it. A file cut short is noticed at the next operation,
//! and the process goes on without the cache; cut in the middle of one, it stops the process
//! (SIGBUS). What is written over elsewhere can cost sessions, or keep others from a shard, and a session's
//! own bytes are as good as the memory they lie in, unless the caller seals them
//! ([`rejoin_cache::IdSeal::seal_value`]); but none is found under another id or in another context.

mod division;
mod error;
mod folder;
mod head;
mod key_file;
mod keys;
mod lock;
mod mailbox;
mod mapping;
mod name;
mod region;
mod store;
mod tiered;
mod trouble;

pub use error::{Error, Objection};
pub use keys::SharedKeys;
pub use mailbox::{Asker, Letter, Mailbox, MailboxFacts, Says};
pub use name::CacheName;
pub use region::{SharedLedger, SharedRegion};
pub use store::{Facts, Reset, Store, now_ms};
pub use tiered::Tiered;
pub use trouble::Trouble;

/// The page that ticket keys are on.
pub(crate) type Page = [u8; Store::PAGE_BYTES];

const _: () = assert!(Store::PAGE_BYTES == rejoin_tickets::PAGE_BYTES);
