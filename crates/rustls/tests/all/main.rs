//! The tests of the session store for rustls, each thing in a module.

mod store;
