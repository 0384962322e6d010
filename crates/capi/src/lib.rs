//! `librejoin.so`: Rejoin inside servers that were not compiled with it.
//!
//! OpenSSL loads it as a configuration module (config(5)) from a file that `OPENSSL_CONF` names:
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
//! Then every server context of the process keeps its sessions in the cache of that name, which all
//! processes of the machine share. Variables such as `REJOIN_CAPACITY` go before what the file says.
//! Whatever goes wrong is one line on standard error, and the program goes on without Rejoin.

mod module;
mod settings;
