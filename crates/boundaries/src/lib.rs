//! The places where bytes of others come in, and the properties that hold there for any bytes.
//!
//! A target is a function that takes bytes, and panics if a property does not hold. The programs in `fuzz` call the
//! targets with a fuzzer's bytes, and a test of this crate with the inputs that are kept in `fuzz/corpus`. The target
//! `gnutls_shadow` is in `rejoin-gnutls`, whose code no other crate can link.

#![forbid(unsafe_code)]

mod access_logs;
mod cache;
mod capture;
mod client_hello;
mod cluster;
mod http;
mod key_page;
mod manager;
mod plans;
mod server_messages;
mod session_parts;
mod share;
mod shared_memory;
mod traces;

use arbitrary::{Arbitrary, Unstructured};
use rejoin_testkit::memory::Counting;

/// Counts the bytes of each thread, for the targets that bound memory.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes each target a public function, and lists all of them.
macro_rules! targets {
    ($($(#[$says:meta])+ $name:ident: $check:path;)+) => {
        $(
            $(#[$says])+
            pub fn $name(bytes: &[u8]) {
                $check(bytes);
            }
        )+

        /// All targets with their names.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name)),+];
    };
}

targets! {
    /// Checks access logs of all formats.
    access_logs: access_logs::check;
    /// Checks the cache's engine against a naive model.
    cache_model: cache::model::check;
    /// Checks properties of the cache's engine after any operations.
    cache_ops: cache::operations::check;
    /// Checks how the packet analyser reads datagrams of DTLS.
    capture_dtls: capture::dtls::check;
    /// Checks how it reads any file.
    capture_file: capture::wire::check;
    /// Checks how it tells QUIC connections by their ids.
    capture_ids: capture::ids::check;
    /// Checks how it reads datagrams of QUIC.
    capture_quic: capture::quic::check;
    /// Checks how it reads segments of TCP in any order.
    capture_stream: capture::stream::check;
    /// Checks how it reads streams of TLS.
    capture_tls: capture::tls::check;
    /// Checks how it reads frames of any link layer.
    capture_wire: capture::frames::check;
    /// Checks the parser of a program's ClientHello.
    client_hello: client_hello::check;
    /// Checks the settings, the key file and the record of a cluster's machine.
    cluster_files: cluster::files::check;
    /// Checks what a machine believes of Valkey's answers.
    cluster_replies: cluster::replies::check;
    /// Checks the parser of HTTP requests.
    http: http::check;
    /// Checks pages of ticket keys, and key files.
    key_page: key_page::check;
    /// Checks the division of a cache of any settings.
    layouts: cache::layouts::check;
    /// Checks the messages of the manager's protocol.
    manager_protocol: manager::protocol::check;
    /// Checks both ends of the manager's socket.
    manager_socket: manager::socket::check;
    /// Checks plans of simulations.
    plans: plans::check;
    /// Checks the doctor's parser of a server's handshake messages.
    server_messages: server_messages::check;
    /// Checks session ids.
    session_id: cache::session_id::check;
    /// Checks the decoding of serialised sessions against OpenSSL's own.
    session_parts: session_parts::check;
    /// Checks the messages of programs that use a share.
    share_messages: share::check;
    /// Checks a cache and its mailbox in memory that another process writes to.
    shared_memory: shared_memory::check;
    /// Checks traces in all formats.
    traces: traces::check;
    /// Checks connections that use the cache.
    visits: cache::visits::check;
}

/// Reads a structured input as `libfuzzer_sys::fuzz_target!` does, so that inputs found with either fit both. `None`:
/// there are too few bytes.
fn structured<'b, T: Arbitrary<'b>>(bytes: &'b [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}
