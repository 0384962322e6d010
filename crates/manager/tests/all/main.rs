//! The manager, and real servers: OpenSSL's `s_server` and nginx of Debian's packages, and rustls.

mod carrier;
mod clients;
mod faults;
mod hostile;
mod limits;
mod others;
mod records;
mod relaying;
mod rules;
mod sandboxes;
mod server;
