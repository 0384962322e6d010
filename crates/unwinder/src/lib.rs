//! What a panic needs, within a library.
//!
//! Rust's standard library takes it from `libgcc_s.so.1`, which a program of C has no use for. Where a library of
//! ours is put into every program of a machine, the loader would bring that one along each time and look through it
//! for each name of each other library, which takes longer than all else (docs/benchmarks.md). GCC has the same as an
//! archive, which is linked in here; nothing of it is exported. Its licence, GPL-3.0 with the GCC Runtime Library
//! Exception, lets what a compiler made be linked with it under any terms.
//!
//! A library takes it with `use rejoin_unwinder as _;`.
