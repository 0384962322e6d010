//! See `boundary` in rejoin-gnutls.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = rejoin_gnutls::boundary::gnutls_shadow(bytes);
});
