//! Prepared servers on loopback, and what the doctor says of each.

mod apart;
mod odd;
mod others;
mod replay;
mod single;
mod site;
