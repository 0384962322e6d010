//! `librejoin.so`: Rejoin inside servers, compiled with it or unmodified, and inside unmodified clients.
//!
//! A program that is compiled with Rejoin calls [`api`], whose header is `include/rejoin.h`. There are two ways into an
//! unmodified server. In the first, OpenSSL loads this library as a configuration module (config(5)) from a file that
//! `OPENSSL_CONF` names:
//!
//! ```text
//! .include /etc/ssl/openssl.cnf
//! [openssl_init]
//! rejoin = rejoin
//! [rejoin]
//! path = /usr/lib/librejoin.so
//! cache = web
//! capacity = 64MiB
//! ```
//!
//! In the second, `librejoin_preload.so` calls [`api::rejoin_attach_process`]. It also gets the functions for the
//! connections of clients ([`clients`]).
//!
//! Every server context of the process then keeps its sessions in the cache of that name, which all processes of the
//! machine share. Variables such as `REJOIN_CAPACITY` take precedence over the file. A failure is one line on standard
//! error, and the program goes on without Rejoin. Success is one line for each start of a server.

pub mod api;
mod clients;
mod module;
mod posts;
mod process;
mod settings;
mod start;
