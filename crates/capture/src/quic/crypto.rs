//! CRYPTO frames, and the stream of handshake messages in them.

use std::collections::BTreeMap;

use super::packet::variable;
use crate::bytes::Bytes;
use crate::connections::Listener;
use crate::limits::LONGEST_HELLO_BYTES;
use crate::tls::Message;

const MOST_CRYPTO_FRAMES: usize = 512;
/// The memory of a kept frame besides its bytes, and of the first kept frame.
const FRAME_BYTES: usize = 96;
const FIRST_FRAME_BYTES: usize = 512;

/// The stream of CRYPTO frames in one direction.
#[derive(Debug, Default)]
pub(super) struct Crypto {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
    message: Message,
}

impl Crypto {
    pub(super) fn held_bytes(&self) -> usize {
        let first_bytes = if self.waiting.is_empty() { 0 } else { FIRST_FRAME_BYTES };
        self.waiting_bytes
            + first_bytes
            + self.waiting.len() * FRAME_BYTES
            + self.message.held_bytes()
    }

    pub(super) fn add(&mut self, offset: u64, data: &[u8], listener: &mut Listener<'_>) {
        let is_new = offset.saturating_add(data.len() as u64) > self.next;
        let fits = self.waiting_bytes + data.len() <= LONGEST_HELLO_BYTES
            && self.waiting.len() < MOST_CRYPTO_FRAMES;
        if !is_new || !fits {
            return;
        }
        if self.waiting.get(&offset).is_some_and(|before| before.len() >= data.len()) {
            return;
        }
        self.waiting_bytes += data.len();
        if let Some(before) = self.waiting.insert(offset, data.to_vec()) {
            self.waiting_bytes -= before.len();
        }
        while let Some(first) = self.waiting.first_entry() {
            let Some(known) = self.next.checked_sub(*first.key()) else { return };
            let data = first.remove();
            self.waiting_bytes -= data.len();
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            let news = data.get(known..).unwrap_or_default();
            self.next += news.len() as u64;
            self.message.feed(news, listener);
        }
    }

    /// Tells what is known of a message that is not whole.
    pub(super) fn finish(&mut self, listener: &mut Listener<'_>) {
        self.message.cut(u32::MAX, listener);
    }
}

/// Calls `each` with every CRYPTO frame of an Initial packet (RFC 9000, 17.2.2 forbids most other
/// frames).
pub(super) fn crypto_frames(plain: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let mut bytes = Bytes(plain);
    loop {
        match bytes.u8()? {
            // PADDING, PING.
            0 | 1 => {}
            kind @ (2 | 3) => acknowledgement(&mut bytes, kind == 3)?,
            6 => crypto_frame(&mut bytes, &mut each)?,
            _ => return None,
        }
    }
}

fn crypto_frame(bytes: &mut Bytes<'_>, each: &mut impl FnMut(u64, &[u8])) -> Option<()> {
    let offset = variable(bytes)?;
    let length = usize::try_from(variable(bytes)?).ok()?;
    each(offset, bytes.take(length)?);
    Some(())
}

/// Does the same for Google's frame format (version T051).
pub(super) fn google_crypto_frames(plain: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let mut bytes = Bytes(plain);
    loop {
        match bytes.u8()? {
            // PADDING, PING.
            0 | 7 => {}
            8 => crypto_frame(&mut bytes, &mut each)?,
            kind @ 0x40..=0x7f => google_acknowledgement(&mut bytes, kind)?,
            _ => return None,
        }
    }
}

/// Skips the largest packet number, delay, blocks and timestamps, whose widths the type gives.
fn google_acknowledgement(bytes: &mut Bytes<'_>, kind: u8) -> Option<()> {
    const WIDTHS: [usize; 4] = [1, 2, 4, 6];
    let largest_width = WIDTHS[usize::from(kind >> 2 & 3)];
    let block_width = WIDTHS[usize::from(kind & 3)];
    bytes.take(largest_width + 2)?;
    let blocks = if kind & 0x20 != 0 { usize::from(bytes.u8()?) } else { 0 };
    bytes.take(block_width + blocks * (1 + block_width))?;
    match usize::from(bytes.u8()?) {
        0 => Some(()),
        timestamps => bytes.take(5 + (timestamps - 1) * 3).map(|_| ()),
    }
}

fn acknowledgement(bytes: &mut Bytes<'_>, has_counts: bool) -> Option<()> {
    variable(bytes)?;
    variable(bytes)?;
    let ranges = variable(bytes)?;
    variable(bytes)?;
    for _ in 0..ranges {
        variable(bytes)?;
        variable(bytes)?;
    }
    for _ in 0..if has_counts { 3 } else { 0 } {
        variable(bytes)?;
    }
    Some(())
}
