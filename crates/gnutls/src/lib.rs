//! `librejoin_gnutls.so`: programs that do their own TLS by GnuTLS go through the manager, and are not
//! changed.
//!
//! The program's GnuTLS is the client of a *hop* ([`rejoin_hop`]). A connection's way:
//!
//! - the program sets its priorities, and [`priorities`] adds that a key is taken, which shows nowhere while there
//!   is none;
//! - `gnutls_handshake` begins: [`allowed`] says whether the program would see no difference, and then
//!   [`connection`] adds the key to its ClientHello, which otherwise is what it would have been;
//! - the handshake is over: GnuTLS verifies no certificates where a key was agreed on, so that [`judge`] has the
//!   program's own verification decide. What it is asked about is a *shadow* ([`shadow`]): a session in memory
//!   that has got the server's certificates;
//! - from then on the program sees the server where it asks ([`shown`]).
//!
//! What is not here: anything of libgnutls. Its functions are found in the one that the program has
//! ([`ffi`]).

mod allowed;
mod connection;
mod ffi;
mod hooks;
mod judge;
mod priorities;
mod records;
mod shadow;
mod shown;

/// Asked for by `librejoin_preload.so` of the same version alone. Null: this libgnutls lacks something.
#[unsafe(no_mangle)]
extern "C" fn rejoin_gnutls_hooks() -> *const rejoin_abi::Hooks {
    match ffi::Gnutls::get() {
        Some(_) => &raw const hooks::HOOKS,
        None => std::ptr::null(),
    }
}
