//! `librejoin.so`: Rejoin inside servers, compiled with it or not, and inside clients that are not.
//!
//! Those that are have [`api`], whose header is `include/rejoin.h`. Into the others there are two ways.
//! `librejoin_preload.so` is the second, and calls [`api::rejoin_attach_process`].
//!
//! The first: OpenSSL loads this library as a configuration module (config(5)) from a file that `OPENSSL_CONF` names:
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
//! `librejoin_preload.so` also asks for what clients' connections need ([`clients`]).
//!
//! Then every server context of the process keeps its sessions in the cache of that name, which all
//! processes of the machine share. Variables such as `REJOIN_CAPACITY` go before what the file says.
//! Whatever goes wrong is one line on standard error, and the program goes on without Rejoin.

pub mod api;
mod clients;
mod module;
mod process;
mod settings;
