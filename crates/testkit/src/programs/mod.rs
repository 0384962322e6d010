//! Many programs and one manager: the sessions that they share, and the secrets that only the manager holds.

pub mod hidden;
pub mod once;
pub mod process_memory;
pub mod secrets;
pub mod twenty;
