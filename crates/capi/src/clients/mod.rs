//! Lets unmodified programs that use libssl connect through the manager.
//!
//! The program's libssl is the client of a *hop* ([`rejoin_hop`]). A connection takes these steps:
//!
//! - `SSL_do_handshake` begins. If the program would see no difference ([`allowed`]), [`connection`] adds the key to the
//!   ClientHello, and changes nothing else in it.
//! - The handshake is over. [`judge`] runs the program's own verification on the server's certificates. From then on the
//!   program's questions about the connection are answered with the server's properties ([`shown`]).

mod allowed;
mod connection;
mod ffi;
mod hooks;
mod judge;
mod shown;

/// Returns the hooks to `librejoin_preload.so` of the same version. No header declares it.
#[unsafe(no_mangle)]
extern "C" fn rejoin_client_hooks() -> *const rejoin_abi::Hooks {
    &raw const hooks::HOOKS
}
