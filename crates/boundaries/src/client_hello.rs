//! The preload library's parser of a program's first bytes: everything that it returns is in the input.

use rejoin_hop::ClientHello;

pub(crate) fn check(bytes: &[u8]) {
    let Some(hello) = ClientHello::read(bytes) else { return };
    assert!(ClientHello::may_begin(bytes));
    let within = |part: &[u8]| bytes.as_ptr_range().contains(&part.as_ptr());
    assert!(!hello.identity.is_empty() && within(hello.identity));
    assert!(hello.server_name.is_none_or(|name| name.is_empty() || within(name)));
    assert!(hello.protocols.iter().all(|name| name.is_empty() || within(name)));
    assert!(hello.wants_more.len() <= bytes.len());
    let _ = (hello.takes_hop_suite(), hello.has_hop_group(), hello.offers());
}
