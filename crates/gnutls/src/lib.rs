//! `librejoin_gnutls.so`: lets unmodified programs that use GnuTLS connect through the manager.
//!
//! The program's GnuTLS is the client of a *hop* ([`rejoin_hop`]). A connection takes these steps:
//!
//! - The program sets its priorities. [`priorities`] adds PSK key exchange, which changes nothing in a ClientHello
//!   until there is a key. [`settings`] records what libgnutls cannot be asked for later.
//! - `gnutls_handshake` begins. If the program would see no difference ([`allowed`]), [`connection`] adds the key to
//!   the ClientHello, and changes nothing else in it.
//! - The handshake is over. GnuTLS verifies no certificates after a PSK handshake, so [`judge`] runs the program's own
//!   verification, on a *shadow* ([`shadow`]): a session in memory that has received the server's certificates.
//! - From then on the program's questions about the connection are answered with the server's properties ([`shown`]).
//!
//! Not here: any code of libgnutls. This library calls the libgnutls that the program has loaded ([`ffi`]).

mod allowed;
#[cfg(any(test, fuzzing))]
pub mod boundary;
mod connection;
mod ffi;
mod hooks;
mod judge;
mod priorities;
mod records;
mod settings;
mod shadow;
mod shown;
mod within;

/// Returns the hooks to `librejoin_preload.so` of the same version. Null: the loaded libgnutls lacks a function.
#[unsafe(no_mangle)]
extern "C" fn rejoin_gnutls_hooks() -> *const rejoin_abi::Hooks {
    match ffi::Gnutls::get() {
        Some(_) => &raw const hooks::HOOKS,
        None => std::ptr::null(),
    }
}
