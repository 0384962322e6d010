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
#[cfg(test)]
mod tests;

use std::sync::Once;

use rejoin_abi::gate;
use rejoin_openssl::watch_forks;

/// Returns the hooks to `librejoin_preload.so` of the same version. No header declares it.
#[unsafe(no_mangle)]
extern "C" fn rejoin_client_hooks() -> *const rejoin_abi::Hooks {
    static IS_WATCHED: Once = Once::new();
    // Values of SSLs are put and found inside the gate, so that fork(2) must wait at the gate first.
    IS_WATCHED.call_once(|| {
        watch_forks();
        gate::enclose();
    });
    &raw const hooks::HOOKS
}
