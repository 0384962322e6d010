//! The first bytes of an unchanged program, as the preload library reads them: facts that are in them, or nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the library asks more of it")]
#[path = "../../crates/hop/src/hello.rs"]
mod hello;

use hello::ClientHello;

fuzz_target!(|bytes: &[u8]| {
    let Some(hello) = ClientHello::read(bytes) else { return };
    assert!(ClientHello::may_begin(bytes));
    let within = |part: &[u8]| bytes.as_ptr_range().contains(&part.as_ptr());
    assert!(!hello.identity.is_empty() && within(hello.identity));
    assert!(hello.server_name.is_none_or(|name| name.is_empty() || within(name)));
    assert!(hello.protocols.iter().all(|name| name.is_empty() || within(name)));
    assert!(hello.wants_more.len() <= bytes.len());
    let _ = hello.takes_all_suites();
});
