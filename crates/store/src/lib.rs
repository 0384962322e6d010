//! A session cache in memory that the processes of one machine share.
//!
//! A [`Store`] is a file, by default in [`Store::FOLDER`], that every process of a server maps. Its
//! workers, the workers after a reload, and those after a restart all find the sessions of
//! the others. The engine is [`rejoin_cache::Cache`], unchanged. This crate has the memory under it, the
//! locks, and the rules for opening and removing it. The learned return times are shared, too, and so
//! are the keys of stateless tickets ([`SharedKeys`]).
//!
//! **Life.** The first process makes the file, which is complete before it has its name. It stays
//! until it is removed, or the machine restarts. A server that changes its user opens it
//! before that, and its workers inherit it; or they open it themselves, as the user who made it.
//!
//! **Death.** A process killed in the middle of an operation costs the sessions of one shard. No process
//! waits for another for longer than a tenth of a second, nor for more than a hundredth of its time
//! after the first fifth of a second: then the session is not found, and the client makes a full handshake.
//!
//! **Size.** A capacity in bytes is all that the file takes, tables and learning included.
//!
//! **Secrets.** The file holds session secrets and keys. Only its owner and root may open it, and a
//! file that any other user could have written is refused. It stays out of core dumps, and out of
//! the swap space where `RLIMIT_MEMLOCK` allows. It is wiped when it is removed, not when a process
//! ends.
//!
//! **Not here.** Protection from other processes of the same user: a process that may write to the
//! file may also cut it short, or write over it. A file cut short is noticed at the next operation,
//! and the process goes on without the cache; cut in the middle of an operation, it stops the process
//! (SIGBUS). Overwritten data elsewhere can cost sessions, or make a shard unusable. A session's
//! own bytes are as trustworthy as the memory they lie in, unless the caller seals them
//! ([`rejoin_cache::IdSeal::seal_value`]); but none is found under another id or in another context.

mod answer_time;
mod certainty;
mod clock;
mod desk;
mod division;
mod error;
mod figures;
mod folder;
mod head;
mod key_file;
mod keys;
mod letters;
mod lock;
mod mailbox;
mod mapping;
mod name;
mod new_file;
mod own_folder;
mod own_ring;
mod patience;
mod random;
mod region;
mod ring_file;
mod store;
mod tiered;
mod trouble;
mod turned_away;

pub use certainty::EARLY_WINDOW;
pub use clock::now_ms;
pub use desk::Asker;
pub use error::{Error, Objection};
pub use keys::SharedKeys;
pub use letters::{Letter, Says};
pub use mailbox::{Asked, Mailbox, MailboxFacts};
pub use name::CacheName;
pub use new_file::NewFile;
pub use own_folder::OwnFolder;
pub use random::fill_at_random;
pub use region::{SharedLedger, SharedRegion};
pub use ring_file::RingFile;
pub use store::{Facts, Reset, Store};
pub use tiered::Tiered;
pub use trouble::Trouble;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
