//! TCP segments, and the byte stream they carry in one direction.
//!
//! A [`Flow`] puts segments in order and emits each byte once; bytes that were never captured are a
//! gap. The first copy of a byte wins. The segments that wait for an earlier one are bounded in
//! bytes and in number.

use crate::bytes::Bytes;
use crate::limits::Limits;
use crate::observation::At;

/// A forward jump beyond any TCP window: such a segment does not belong to this stream.
const LARGEST_JUMP: u32 = 1 << 27;

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// The captured part of the payload.
    pub(crate) payload: &'a [u8],
    /// The payload's length on the wire, in bytes.
    pub(crate) length: u32,
}

/// Reads a segment of which `length` bytes were on the wire.
pub(crate) fn parse(segment: &[u8], length: usize) -> Option<Segment<'_>> {
    let mut bytes = Bytes(segment);
    let source_port = bytes.u16()?;
    let destination_port = bytes.u16()?;
    let sequence = bytes.u32()?;
    bytes.take(4)?;
    let [offset, flags] = bytes.array()?;
    let header_length = usize::from(offset >> 4) * 4;
    let payload_length = length.checked_sub(header_length.max(20))?;
    Some(Segment {
        source_port,
        destination_port,
        sequence,
        syn: flags & 2 != 0,
        ack: flags & 16 != 0,
        fin: flags & 1 != 0,
        rst: flags & 4 != 0,
        payload: segment.get(header_length..).unwrap_or(&[]),
        length: u32::try_from(payload_length).ok()?,
    })
}

/// The next piece of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// This many bytes are missing because their segments were not captured.
    Gap(u32),
    /// This many bytes are missing because the capture truncated their segment.
    Cut(u32),
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    next: Option<u32>,
    /// At least one byte was emitted.
    has_begun: bool,
    /// Sorted by position in the stream.
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    sequence: u32,
    length: u32,
    bytes: Box<[u8]>,
    at: At,
}

impl Flow {
    /// Sets the sequence number of the SYN that begins the stream. Until the first byte is emitted,
    /// the last SYN counts.
    pub(crate) fn begin(&mut self, syn: u32) {
        if !self.has_begun {
            self.next = Some(syn.wrapping_add(1));
        }
    }

    /// Returns true if the bytes emitted so far can follow this SYN.
    pub(crate) fn may_begin(&self, syn: u32) -> bool {
        const NEAR: u32 = 1 << 16;
        self.next.is_none_or(|next| next.wrapping_sub(syn) <= NEAR)
    }

    /// Returns true if this segment ends the stream, and nothing before it is missing. A RST may follow a FIN.
    pub(crate) fn is_ended_by(&self, segment: &Segment<'_>) -> bool {
        let end = segment.sequence.wrapping_add(segment.length);
        let Some(next) = self.next else { return segment.rst };
        segment.fin && end == next || segment.rst && end.wrapping_sub(next) <= 1
    }

    /// The heap memory in use, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes + self.waiting.capacity() * size_of::<Waiting>()
    }

    /// Takes a segment and emits the pieces that are now in order.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        at: At,
        limits: &Limits,
        give: &mut impl FnMut(Piece<'_>, At),
    ) {
        let sequence = segment.sequence.wrapping_add(u32::from(segment.syn));
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead == 0 || ahead > u32::MAX / 2 {
            self.give(sequence, segment.payload, segment.length, at, give);
            self.drain(at, give);
            return;
        }
        if ahead > LARGEST_JUMP || segment.length == 0 {
            return;
        }
        let place = self.waiting.partition_point(|waiting| {
            waiting.sequence.wrapping_sub(next) <= sequence.wrapping_sub(next)
        });
        let bytes: Box<[u8]> = segment.payload.into();
        self.waiting_bytes += bytes.len();
        self.waiting.insert(place, Waiting { sequence, length: segment.length, bytes, at });
        if self.waiting.len() > limits.waiting_segments || self.waiting_bytes > limits.waiting_bytes
        {
            self.skip_gap(give);
        }
    }

    /// Emits all waiting segments, with the gaps between them.
    pub(crate) fn flush(&mut self, give: &mut impl FnMut(Piece<'_>, At)) {
        while !self.waiting.is_empty() {
            self.skip_gap(give);
        }
        self.waiting = Vec::new();
    }

    fn skip_gap(&mut self, give: &mut impl FnMut(Piece<'_>, At)) {
        let (Some(first), Some(next)) = (self.waiting.first(), self.next) else { return };
        let (at, missing) = (first.at, first.sequence.wrapping_sub(next));
        if missing > 0 && missing <= LARGEST_JUMP {
            give(Piece::Gap(missing), at);
            self.next = Some(first.sequence);
        }
        self.drain(at, give);
    }

    fn drain(&mut self, at: At, give: &mut impl FnMut(Piece<'_>, At)) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut given = 0;
        for segment in &waiting {
            let ahead = segment.sequence.wrapping_sub(self.next.unwrap_or(segment.sequence));
            if ahead != 0 && ahead <= u32::MAX / 2 {
                break;
            }
            let at = at.max(segment.at);
            self.give(segment.sequence, &segment.bytes, segment.length, at, give);
            self.waiting_bytes -= segment.bytes.len();
            given += 1;
        }
        waiting.drain(..given);
        self.waiting = waiting;
    }

    /// Emits the new part of a segment, which must not begin beyond the known part of the stream.
    fn give(
        &mut self,
        sequence: u32,
        bytes: &[u8],
        length: u32,
        at: At,
        give: &mut impl FnMut(Piece<'_>, At),
    ) {
        self.has_begun = true;
        let next = self.next.unwrap_or(sequence);
        let known = next.wrapping_sub(sequence);
        if known >= length {
            return;
        }
        let news = bytes.get(known as usize..).unwrap_or(&[]);
        let news_length = length - known;
        let news = news.get(..news_length as usize).unwrap_or(news);
        if !news.is_empty() {
            give(Piece::Bytes(news), at);
        }
        let cut = news_length - u32::try_from(news.len()).unwrap_or(news_length);
        if cut > 0 {
            give(Piece::Cut(cut), at);
        }
        self.next = Some(next.wrapping_add(news_length));
    }
}
