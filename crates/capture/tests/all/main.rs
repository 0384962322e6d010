//! The tests of captures: made by hand, message by message, and real ones with a second tool's answers.

mod certainty;
mod damage;
mod dtls;
mod fields;
mod files;
mod live;
mod memory;
mod networks;
mod not_resumed;
mod openvpn;
mod oracle;
mod pcapng;
mod peers;
mod prepared;
mod programs;
mod quic;
mod sharing;
mod streams;
mod transforms;
mod tunnels;

use rejoin_testkit::memory::Counting;

/// Counts what each thread has in use, for the tests of [`memory`].
#[global_allocator]
static ALLOCATOR: Counting = Counting;
