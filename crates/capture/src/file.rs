//! The frames of a capture file: pcap in its variants, pcapng, several of these one behind the other, and gzip
//! or zstd of them.
//!
//! `pcap-parser` parses the records. The buffer is our own, so that a record that never becomes
//! complete ends the capture with a reason instead of being requested again.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;
use pcap_parser::nom::{Err as NomError, IResult};
use pcap_parser::{
    Block, InterfaceDescriptionBlock, LegacyPcapBlock, PcapError, PcapNGOption, parse_block_be,
    parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};

use rejoin_trace::{Zstd, begins_zstd};

use crate::error::{Error, Stop};
use crate::limits::{LARGEST_BLOCK_BYTES, LARGEST_ZSTD_WINDOW_BYTES, MOST_INTERFACES};
use crate::observation::NO_TIME;
use crate::program::{self, MOST_PROCESSES, Named, Process, option};

const CHUNK_BYTES: usize = 1 << 18;
const PCAP_HEADER_BYTES: usize = 24;
/// Nested compression is refused: a few bytes of it can expand to any size.
const DEEPEST_COMPRESSION: u8 = 1;

/// One captured packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// The frame's number, counted from 1.
    pub(crate) number: u64,
    /// The time since 1970, in nanoseconds, or [`NO_TIME`].
    pub(crate) time_ns: u64,
    /// The link layer, as a LINKTYPE number.
    pub(crate) link: i32,
    /// The program that the file names beside the packet.
    pub(crate) program: Option<Named<'a>>,
    pub(crate) data: &'a [u8],
}

/// The result of reading a capture.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) counted: Counted,
    pub(crate) stop: Option<Stop>,
}

/// The counts of a capture so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) frames: u64,
    /// Those of interfaces that the file does not describe, so that their link layer is not known.
    pub(crate) of_no_interface: u64,
    /// The packets that were dropped before they came into the file, as far as it tells.
    pub(crate) dropped: u64,
}

/// Calls `each` with every frame of a capture.
pub(crate) fn frames(
    reader: &mut dyn Read,
    each: &mut dyn FnMut(Frame<'_>),
) -> Result<Ended, Error> {
    frames_of(reader, each, DEEPEST_COMPRESSION)
}

fn frames_of(
    reader: &mut dyn Read,
    each: &mut dyn FnMut(Frame<'_>),
    compression: u8,
) -> Result<Ended, Error> {
    let mut magic = Vec::new();
    Read::take(&mut *reader, 4).read_to_end(&mut magic)?;
    match magic[..] {
        [] => return Err(Error::Empty),
        [0x1f, 0x8b, ..] if compression > 0 => {
            let mut plain = MultiGzDecoder::new(Cursor::new(magic).chain(reader));
            return frames_of(&mut plain, each, compression - 1);
        }
        _ if compression > 0 && begins_zstd(&magic) => {
            let plain = Zstd::new(Cursor::new(magic).chain(reader));
            let mut plain = plain.with_largest_window(LARGEST_ZSTD_WINDOW_BYTES);
            return frames_of(&mut plain, each, compression - 1);
        }
        _ => {}
    }
    let mut form = Form::of(&magic).ok_or(Error::NotACapture)?;
    let mut window = Window::new(&magic, reader);
    let mut counted = Counted::default();
    let result = loop {
        let read = match form {
            Form::Pcapng => pcapng(&mut window, each, &mut counted),
            Form::Pcap => pcap(&mut window, each, &mut counted.frames),
        };
        match read {
            Ok(Some(another)) => form = another,
            Ok(None) => break Ok(()),
            Err(fault) => break Err(fault),
        }
    };
    let stop = result.err().map(|fault| fault.after(counted.frames));
    Ok(Ended { counted, stop })
}

/// The form of a capture.
#[derive(Debug, Clone, Copy)]
enum Form {
    Pcap,
    Pcapng,
}

impl Form {
    fn of(start: &[u8]) -> Option<Self> {
        match number(start, 0, false)? {
            0x0a0d_0d0a => Some(Self::Pcapng),
            0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34 | 0xd4c3_b2a1 | 0x4d3c_b2a1 | 0x34cd_b2a1 => {
                Some(Self::Pcap)
            }
            _ => None,
        }
    }

    /// The form of a capture that begins where a record of another one could.
    fn of_another(window: &mut Window<'_>) -> Result<Option<Self>, Fault> {
        const DECIDING_BYTES: usize = 12;
        let Some(form) = Self::of(window.data()) else { return Ok(None) };
        if !window.fill(DECIDING_BYTES)? {
            return Ok(None);
        }
        let start = window.data();
        let is_another = match form {
            // The order of bytes.
            Self::Pcapng => {
                matches!(start[8..12], [0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a])
            }
            // Version 2.4.
            Self::Pcap => matches!(start[4..8], [2, 0, 4, 0] | [0, 2, 0, 4]),
        };
        Ok(is_another.then_some(form))
    }
}

fn number(bytes: &[u8], at: usize, big_endian: bool) -> Option<u32> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn short_number(bytes: &[u8], at: usize, big_endian: bool) -> Option<u16> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

fn long_number(bytes: &[u8], big_endian: bool) -> Option<u64> {
    let bytes = *bytes.first_chunk()?;
    Some(if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
}

enum Fault {
    Truncated,
    Corrupt,
    TooLong,
    Read(io::Error),
}

impl Fault {
    fn after(self, frames: u64) -> Stop {
        match self {
            Self::Truncated => Stop::Truncated { frames },
            Self::Corrupt => Stop::Corrupt { frames },
            Self::TooLong => Stop::TooLong { frames, limit: LARGEST_BLOCK_BYTES },
            Self::Read(cause) => Stop::Read { frames, cause },
        }
    }
}

/// The bytes that are read but not yet parsed.
struct Window<'r> {
    reader: &'r mut dyn Read,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<'r> Window<'r> {
    fn new(first: &[u8], reader: &'r mut dyn Read) -> Self {
        let mut buffer = vec![0; CHUNK_BYTES];
        let end = first.len().min(CHUNK_BYTES);
        buffer[..end].copy_from_slice(&first[..end]);
        Self { reader, buffer, start: 0, end }
    }

    fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, length: usize) {
        self.start = (self.start + length).min(self.end);
    }

    /// Reads more bytes. Returns false at the end of the source.
    fn more(&mut self) -> Result<bool, Fault> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end >= LARGEST_BLOCK_BYTES {
                return Err(Fault::TooLong);
            }
            self.buffer.resize(self.end * 2, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(Fault::Read(cause)),
            }
        }
    }

    /// Reads until `length` bytes are available. Returns false if the source ends first.
    fn fill(&mut self, length: usize) -> Result<bool, Fault> {
        while self.end - self.start < length {
            if !self.more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles a record that does not parse. Returns true after reading more, false at the end.
    fn after<I>(&mut self, error: NomErrorKind<I>) -> Result<bool, Fault> {
        match error {
            NomError::Incomplete(_) => {
                let empty = self.start == self.end;
                match self.more()? {
                    true => Ok(true),
                    false if empty => Ok(false),
                    false => Err(Fault::Truncated),
                }
            }
            NomError::Error(_) | NomError::Failure(_) => Err(Fault::Corrupt),
        }
    }
}

type NomErrorKind<I> = NomError<PcapError<I>>;
type ParseRecord = fn(&[u8]) -> IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

/// Parses a big-endian "modified" record, which `pcap-parser` does not support.
fn parse_modified_be(bytes: &[u8]) -> IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>> {
    let (Some(head), Some(rest)) = (bytes.get(..16), bytes.get(24..)) else {
        return Err(NomError::Incomplete(pcap_parser::nom::Needed::Unknown));
    };
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let caplen = number(8);
    let Some((data, rest)) = rest.split_at_checked(caplen as usize) else {
        return Err(NomError::Incomplete(pcap_parser::nom::Needed::Unknown));
    };
    let (ts_sec, ts_usec, origlen) = (number(0), number(4), number(12));
    Ok((rest, LegacyPcapBlock { ts_sec, ts_usec, caplen, origlen, data }))
}

fn pcap(
    window: &mut Window<'_>,
    each: &mut dyn FnMut(Frame<'_>),
    frames: &mut u64,
) -> Result<Option<Form>, Fault> {
    if !window.fill(PCAP_HEADER_BYTES)? {
        return Err(Fault::Truncated);
    }
    let mut head = [0; PCAP_HEADER_BYTES];
    head.copy_from_slice(&window.data()[..PCAP_HEADER_BYTES]);
    let modified_be = head.starts_with(&[0xa1, 0xb2, 0xcd, 0x34]);
    if modified_be {
        head[2..4].copy_from_slice(&[0xc3, 0xd4]);
    }
    let (_, header) = parse_pcap_header(&head).map_err(|_| Fault::Corrupt)?;
    window.consume(PCAP_HEADER_BYTES);
    // The upper half holds the length of a frame check sequence, not the link type.
    let link = header.network.0 & 0xffff;
    let nanos = if header.is_nanosecond_precision() { 1 } else { 1_000 };
    look_ahead(window, header.is_bigendian())?;
    let parse: ParseRecord = if modified_be {
        parse_modified_be
    } else if header.is_modified_format() {
        parse_pcap_frame_modified
    } else if header.is_bigendian() {
        if is_red_hat_variant(window.data(), true) {
            parse_modified_be
        } else {
            parse_pcap_frame_be
        }
    } else if is_red_hat_variant(window.data(), false) {
        parse_pcap_frame_modified
    } else {
        parse_pcap_frame
    };
    loop {
        if let Some(another) = Form::of_another(window)? {
            return Ok(Some(another));
        }
        let data = window.data();
        match parse(data) {
            Ok((rest, record)) => {
                *frames += 1;
                let time_ns =
                    u64::from(record.ts_sec) * 1_000_000_000 + u64::from(record.ts_usec) * nanos;
                each(Frame { number: *frames, time_ns, link, program: None, data: record.data });
                let length = data.len() - rest.len();
                window.consume(length);
            }
            Err(error) => {
                if claims_too_much(data, header.is_bigendian()) {
                    return Err(Fault::TooLong);
                }
                let error = error.map(|_| PcapError::<()>::Eof);
                if !window.after(error)? {
                    return Ok(None);
                }
            }
        }
    }
}

fn claims_too_much(record: &[u8], big_endian: bool) -> bool {
    captured_length(record, big_endian).is_some_and(|length| length > LARGEST_BLOCK_BYTES)
}

fn captured_length(record: &[u8], big_endian: bool) -> Option<usize> {
    number(record, 8, big_endian).map(|length| length as usize)
}

/// Reads the first record, and the next header if the first record may have a long header. It waits
/// for nothing else, because the source may be a live interface.
fn look_ahead(window: &mut Window<'_>, big_endian: bool) -> Result<(), Fault> {
    const LONG_HEADER_BYTES: usize = 24;
    if !window.fill(LONG_HEADER_BYTES)? {
        return Ok(());
    }
    let record = window.data();
    // The fields after the usual header: interface, protocol, packet type (0 to 4), padding.
    let [first, second, third, fourth, protocol_high, protocol_low, kind, padding] =
        record.get(16..).and_then(|more| more.first_chunk().copied()).unwrap_or([0xff; 8]);
    let (high, low) = if big_endian { (first, second) } else { (fourth, third) };
    let length = captured_length(record, big_endian).unwrap_or(0).min(LARGEST_BLOCK_BYTES);
    let has_protocol = (protocol_high, protocol_low) != (0, 0);
    if (high, low) == (0, 0) && has_protocol && kind <= 4 && padding == 0 {
        window.fill(2 * LONG_HEADER_BYTES + length)?;
    }
    Ok(())
}

/// Recognises files of "Red Hat 6.1", which have the usual magic number but 24-byte record headers.
/// Read with 16 bytes, their records soon become implausible; with 24 they do not.
fn is_red_hat_variant(records: &[u8], big_endian: bool) -> bool {
    const LOOK_AHEAD: usize = 4;
    let sensible = |header: usize| {
        let mut rest = records;
        let mut second = 0;
        for count in 0..LOOK_AHEAD {
            let fields = [0, 4, 8, 12].map(|at| number(rest, at, big_endian));
            let [Some(seconds), Some(fraction), Some(length), Some(original)] = fields else {
                return count > 0;
            };
            let near = count == 0 || seconds.abs_diff(second) < 86_400 * 365;
            if length > 1 << 18 || original < length || fraction >= 1_000_000_000 || !near {
                return false;
            }
            second = seconds;
            let Some(next) = rest.get(header + length as usize..) else { return count > 0 };
            rest = next;
        }
        true
    };
    !sensible(16) && sensible(24)
}

/// The descriptions in a pcapng section on which its later blocks depend.
#[derive(Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
    processes: Vec<Process>,
}

/// The bytes of an interface that a section describes.
pub(crate) const INTERFACE_BYTES: usize = size_of::<Interface>();

/// An interface of a pcapng section.
#[derive(Clone, Copy)]
struct Interface {
    link: i32,
    snap_length: u32,
    resolution: Resolution,
    offset_s: i64,
    /// The packets dropped by what is told beside each packet, and by the statistics, which tell all of them again.
    dropped: [u64; 2],
}

/// A packet of a pcapng section.
struct BlockOfPacket<'a> {
    interface: u32,
    /// The packets dropped before it, since the last one.
    dropped: u64,
    /// The two halves of its time. A simple packet has none.
    time: Option<[u32; 2]>,
    program: Option<Named<'a>>,
    data: &'a [u8],
}

/// The unit of an interface's times: one second divided by a power of ten or of two.
#[derive(Clone, Copy)]
enum Resolution {
    Ten(u32),
    Two(u32),
}

impl Resolution {
    /// Reads the option `if_tsresol`. Without it times are in microseconds.
    fn of(option: Option<&[u8]>) -> Self {
        const OF_TWO: u8 = 0x80;
        match option {
            Some([power, ..]) if power & OF_TWO != 0 => Self::Two(u32::from(power & !OF_TWO)),
            Some([power, ..]) => Self::Ten(u32::from(*power)),
            _ => Self::Ten(6),
        }
    }

    /// Converts a time to nanoseconds, rounded down. Of a unit that makes any time 0 that is the result.
    fn nanos(self, units: u64) -> u128 {
        let nanos = u128::from(units) * 1_000_000_000;
        match self {
            Self::Ten(power) => 10_u128.checked_pow(power).map_or(0, |seconds| nanos / seconds),
            Self::Two(power) => nanos.checked_shr(power).unwrap_or(0),
        }
    }
}

impl Interface {
    /// Reads the description of an interface. The parser takes numbers in options for little-endian.
    fn of(description: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Self {
        const RESOLUTION: u16 = 9;
        const OFFSET: u16 = 14;
        let offset = option(&description.options, OFFSET);
        let offset = offset.and_then(|bytes| long_number(bytes, big_endian)).unwrap_or(0);
        Self {
            link: description.linktype.0,
            snap_length: description.snaplen,
            resolution: Resolution::of(option(&description.options, RESOLUTION)),
            offset_s: offset.cast_signed(),
            dropped: [0; 2],
        }
    }

    fn time_ns(self, high: u32, low: u32) -> u64 {
        let nanos = self.resolution.nanos(u64::from(high) << 32 | u64::from(low));
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX);
        let nanos = nanos.saturating_add(i128::from(self.offset_s) * 1_000_000_000);
        u64::try_from(nanos.max(0)).unwrap_or(NO_TIME)
    }
}

fn pcapng(
    window: &mut Window<'_>,
    each: &mut dyn FnMut(Frame<'_>),
    counted: &mut Counted,
) -> Result<Option<Form>, Fault> {
    let mut section = Section::default();
    loop {
        if let Some(Form::Pcap) = Form::of_another(window)? {
            return Ok(Some(Form::Pcap));
        }
        check_block_length(window.data(), section.big_endian)?;
        if let Some(length) = unread_length(window.data(), section.big_endian) {
            pass_over(window, length, section.big_endian)?;
            continue;
        }
        let data = window.data();
        let parsed = if section.big_endian { parse_block_be(data) } else { parse_block_le(data) };
        match parsed {
            Ok((rest, block)) => {
                if let Block::SectionHeader(header) = &block {
                    let big_endian = header.big_endian();
                    section = Section { big_endian, ..Section::default() };
                }
                pcapng_block(&block, &mut section, counted, each);
                let length = data.len() - rest.len();
                if length == 0 {
                    return Err(Fault::Corrupt);
                }
                window.consume(length);
            }
            Err(error) => {
                let error = error.map(|_| PcapError::<()>::Eof);
                if !window.after(error)? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Checks a block's length field before the entire block is available.
fn check_block_length(block: &[u8], big_endian: bool) -> Result<(), Fault> {
    const SMALLEST_BLOCK_BYTES: u32 = 12;
    const BYTE_ORDER_BE: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];
    let is_section = block.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
    let big_endian = match block.get(8..12) {
        Some(order) if is_section => order == BYTE_ORDER_BE,
        None if is_section => return Ok(()),
        _ => big_endian,
    };
    match number(block, 4, big_endian) {
        Some(..SMALLEST_BLOCK_BYTES) => Err(Fault::Corrupt),
        Some(length) if length as usize > LARGEST_BLOCK_BYTES => Err(Fault::TooLong),
        _ => Ok(()),
    }
}

/// The length of a block that is passed over unread: names, secrets, a journal, or of a type that we do not know. The parser
/// would refuse some whose content breaks its rules, and the packets behind them with it.
fn unread_length(block: &[u8], big_endian: bool) -> Option<usize> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const SIMPLE_PACKET: u32 = 3;
    const STATISTICS: u32 = 5;
    const ENHANCED_PACKET: u32 = 6;
    /// Apple's.
    const PROCESS: u32 = 0x8000_0001;
    let kind = number(block, 0, big_endian)?;
    let is_read = matches!(
        kind,
        SECTION | INTERFACE | OLD_PACKET | SIMPLE_PACKET | STATISTICS | ENHANCED_PACKET | PROCESS
    );
    let length = number(block, 4, big_endian)?;
    (!is_read).then_some(length as usize)
}

/// Passes over a block of this length, which stands at its end once more.
fn pass_over(window: &mut Window<'_>, length: usize, big_endian: bool) -> Result<(), Fault> {
    if !window.fill(length)? {
        return Err(Fault::Truncated);
    }
    let again = number(window.data(), length - size_of::<u32>(), big_endian);
    if again.is_none_or(|again| again as usize != length) {
        return Err(Fault::Corrupt);
    }
    window.consume(length);
    Ok(())
}

fn pcapng_block(
    block: &Block<'_>,
    section: &mut Section,
    counted: &mut Counted,
    each: &mut dyn FnMut(Frame<'_>),
) {
    let Section { big_endian, interfaces, processes } = section;
    let packet = match block {
        Block::InterfaceDescription(description) if interfaces.len() < MOST_INTERFACES => {
            interfaces.push(Interface::of(description, *big_endian));
            return;
        }
        Block::ProcessInformation(block) if processes.len() < MOST_PROCESSES => {
            processes.push(Process::of(block));
            return;
        }
        Block::InterfaceStatistics(statistics) => {
            if let Some(interface) = interfaces.get_mut(statistics.if_id as usize) {
                interface.note_statistics(&statistics.options, *big_endian, counted);
            }
            return;
        }
        Block::EnhancedPacket(packet) => {
            const DROPPED: u16 = 4;
            let dropped = option(&packet.options, DROPPED);
            BlockOfPacket {
                interface: packet.if_id,
                dropped: dropped.and_then(|bytes| long_number(bytes, *big_endian)).unwrap_or(0),
                time: Some([packet.ts_high, packet.ts_low]),
                program: program::of_packet(&packet.options, processes, *big_endian),
                data: packet.data.get(..packet.caplen as usize).unwrap_or(packet.data),
            }
        }
        Block::SimplePacket(packet) => {
            let snapped = interfaces.first().map(|interface| interface.snap_length);
            let snapped = snapped.filter(|length| *length > 0).unwrap_or(u32::MAX);
            let length = packet.origlen.min(snapped) as usize;
            let data = packet.data.get(..length).unwrap_or(packet.data);
            BlockOfPacket { interface: 0, dropped: 0, time: None, program: None, data }
        }
        // The parser gives the type of a block that it does not know as if it were little-endian.
        Block::Unknown(block)
            if [OLD_PACKET, OLD_PACKET.swap_bytes()][usize::from(*big_endian)]
                == block.block_type =>
        {
            let Some(packet) = BlockOfPacket::of_old(block.data, *big_endian) else { return };
            packet
        }
        _ => return,
    };
    counted.frames += 1;
    let Some(interface) = interfaces.get_mut(packet.interface as usize) else {
        counted.of_no_interface += 1;
        return;
    };
    interface.note_dropped(packet.dropped, counted);
    let BlockOfPacket { time, program, data, .. } = packet;
    let time_ns = time.map_or(NO_TIME, |[high, low]| interface.time_ns(high, low));
    each(Frame { number: counted.frames, time_ns, link: interface.link, program, data });
}

/// The type of the packets that were written before there were enhanced ones.
const OLD_PACKET: u32 = 2;

impl<'a> BlockOfPacket<'a> {
    /// Reads a block of the type that enhanced packets replaced: interface and drops share a word.
    fn of_old(block: &'a [u8], big_endian: bool) -> Option<Self> {
        const HEAD_BYTES: usize = 20;
        const DROPS_UNKNOWN: u16 = u16::MAX;
        let dropped = short_number(block, 2, big_endian)?;
        let word = |at| number(block, at, big_endian);
        let (time, captured) = ([word(4)?, word(8)?], word(12)? as usize);
        let rest = block.get(HEAD_BYTES..)?;
        Some(Self {
            interface: short_number(block, 0, big_endian)?.into(),
            dropped: if dropped == DROPS_UNKNOWN { 0 } else { dropped.into() },
            time: Some(time),
            program: None,
            data: rest.get(..captured).unwrap_or(rest),
        })
    }
}

impl Interface {
    /// Notes what the interface and the system dropped by its statistics, which count from the beginning.
    fn note_statistics(
        &mut self,
        options: &[PcapNGOption<'_>],
        big_endian: bool,
        counted: &mut Counted,
    ) {
        const BY_INTERFACE: u16 = 5;
        const BY_SYSTEM: u16 = 7;
        let dropped = [BY_INTERFACE, BY_SYSTEM].map(|code| {
            option(options, code).and_then(|bytes| long_number(bytes, big_endian)).unwrap_or(0)
        });
        let [of_packets, stated] = self.dropped;
        let dropped = dropped[0].saturating_add(dropped[1]);
        self.set_dropped([of_packets, stated.max(dropped)], counted);
    }

    /// Notes packets that were dropped before one of its packets.
    fn note_dropped(&mut self, dropped: u64, counted: &mut Counted) {
        let [of_packets, stated] = self.dropped;
        self.set_dropped([of_packets.saturating_add(dropped), stated], counted);
    }

    fn set_dropped(&mut self, dropped: [u64; 2], counted: &mut Counted) {
        let most = |[of_packets, stated]: [u64; 2]| of_packets.max(stated);
        let more = most(dropped) - most(self.dropped);
        counted.dropped = counted.dropped.saturating_add(more);
        self.dropped = dropped;
    }
}
