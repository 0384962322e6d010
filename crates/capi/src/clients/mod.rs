//! Programs that do their own TLS by libssl go through the manager, and are not changed.
//!
//! The program's libssl is the client of a *hop* ([`rejoin_hop`]). A connection's way:
//!
//! - `SSL_do_handshake` begins: [`allowed`] says whether the program would see no difference, and then
//!   [`connection`] adds the key to its ClientHello, which otherwise is what it would have been;
//! - the handshake is over: [`judge`] has the program's own verification decide on the certificates that the
//!   server has, and from then on the program sees the server where it asks ([`shown`]).

mod allowed;
mod connection;
mod ffi;
mod hooks;
mod judge;
mod shown;

/// Asked for by `librejoin_preload.so` of the same version alone, and in no header.
#[unsafe(no_mangle)]
extern "C" fn rejoin_client_hooks() -> *const rejoin_abi::Hooks {
    &raw const hooks::HOOKS
}
