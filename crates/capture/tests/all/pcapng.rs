//! The blocks of a pcapng.

/// The link type of packets that begin with their IP header.
pub(crate) const RAW: u32 = 101;
/// The link type of Ethernet.
pub(crate) const ETHERNET: u32 = 1;

/// A block, padded to whole words.
pub(crate) fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = u32::try_from(12 + body.len() + padding.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
}

/// A section header and an interface.
pub(crate) fn section(link: u32) -> Vec<u8> {
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    [block(0x0a0d_0d0a, &header), interface(link, &[])].concat()
}

/// An interface with these options.
pub(crate) fn interface(link: u32, options: &[u8]) -> Vec<u8> {
    block(1, &[&link.to_le_bytes()[..], &[0; 4], options].concat())
}

/// An enhanced packet of an interface, at a time in the interface's own resolution.
pub(crate) fn packet(interface: u32, time: u64, frame: &[u8]) -> Vec<u8> {
    let [high, low] = [time >> 32, time & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    let length = u32::try_from(frame.len()).unwrap();
    let words = [interface, high, low, length, length].map(u32::to_le_bytes).concat();
    block(6, &[&words, frame].concat())
}
