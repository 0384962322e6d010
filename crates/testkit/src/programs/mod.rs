//! Many programs and one manager: the sessions that they share, and the secrets that only the manager holds.

#![expect(missing_docs, reason = "tests are its only users, and the names say it")]

pub mod hidden;
pub mod once;
pub mod process_memory;
pub mod secrets;
pub mod twenty;
