//! The program that a frame names: in Apple's header (pktap), in Apple's blocks of pcapng, or in the trailer that
//! `PCAPdroid` appends.

use pcap_parser::{PcapNGOption, ProcessInformationBlock};

use crate::bytes::Bytes;
use crate::file::Frame;
use crate::link;

/// The most processes that are kept of one section of a pcapng.
pub(crate) const MOST_PROCESSES: usize = 1 << 12;
/// The longest name that is kept, in bytes. Apple's names have 32 at most, those of `PCAPdroid` 20.
pub(crate) const LONGEST_NAME_BYTES: usize = 64;

/// The memory of all processes of a section, in bytes.
pub(crate) const PROCESSES_BYTES: usize =
    MOST_PROCESSES * (2 * size_of::<Process>() + LONGEST_NAME_BYTES);

/// A program, and whose end of a connection is its.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) process: Option<u32>,
    pub(crate) whose: Whose,
}

/// The end of a connection that a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The end that sent the frame.
    Sender,
    Receiver,
    /// The end that began the connection.
    Client,
}

impl Whose {
    /// The end on the capturing machine, by the direction of the frame: 1 comes in, 2 goes out.
    fn of(direction: u32) -> Option<Self> {
        match direction & 3 {
            1 => Some(Self::Receiver),
            2 => Some(Self::Sender),
            _ => None,
        }
    }
}

/// Returns the program that a frame names.
pub(crate) fn named<'a>(frame: &Frame<'a>) -> Option<Named<'a>> {
    const ETHERNET: i32 = 1;
    match frame.link {
        _ if frame.program.is_some() => frame.program,
        ETHERNET => in_trailer(frame.data),
        link::PKTAP | link::OLD_PKTAP => in_pktap(frame.data),
        _ => None,
    }
}

/// The process with the socket, in the header that precedes a frame (XNU, `bsd/net/pktap.h`). That on whose behalf it
/// acts is not read.
fn in_pktap(frame: &[u8]) -> Option<Named<'_>> {
    const FLAGS_AT: usize = 36;
    const PROCESS_AT: usize = 52;
    const NAME_BYTES: usize = 17;
    let head = frame.get(..link::pktap_length(frame)?)?;
    let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let process = word(PROCESS_AT)?;
    let name = text(head.get(PROCESS_AT + 4..)?.get(..NAME_BYTES)?)?;
    Some(Named { name, process: number(process), whose: Whose::of(word(FLAGS_AT)?)? })
}

/// The app in the last 32 bytes of a frame: a magic number, a user's number, a name, a checksum. All connections that
/// `PCAPdroid` captures are begun by apps.
fn in_trailer(frame: &[u8]) -> Option<Named<'_>> {
    const MAGIC: u32 = 0x0107_2021;
    const TRAILER_BYTES: usize = 32;
    const NAME_BYTES: usize = 20;
    let trailer_at = frame.len().checked_sub(TRAILER_BYTES)?;
    let mut bytes = Bytes(frame.get(trailer_at..)?);
    if bytes.u32()? != MAGIC || !is_behind_packet(frame, trailer_at) {
        return None;
    }
    bytes.take(4)?;
    Some(Named { name: text(bytes.take(NAME_BYTES)?)?, process: None, whose: Whose::Client })
}

/// Returns true for a place in an Ethernet frame that is behind its IP packet: what is in the packet, others may have sent.
fn is_behind_packet(frame: &[u8], at: usize) -> bool {
    let Ok(packet) = link::in_ethernet(frame) else { return false };
    // Segmentation offload leaves 0.
    let stated = |at: usize| {
        let bytes = packet.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| usize::from(u16::from_be_bytes(*bytes))).filter(|length| *length > 0)
    };
    let length = match packet.first().map(|first| first >> 4) {
        Some(4) => stated(2),
        Some(6) => stated(4).map(|length| 40 + length),
        _ => None,
    };
    length.is_some_and(|length| frame.len() - packet.len() + length <= at)
}

/// A process that a pcapng describes.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    name: Box<str>,
}

impl Process {
    /// Reads Apple's block of a process.
    pub(crate) fn of(block: &ProcessInformationBlock<'_>) -> Self {
        const NAME: u16 = 2;
        let name = option(&block.options, NAME).and_then(|name| text(name).map(str::to_owned));
        Self { id: block.process_id, name: name.unwrap_or_default().into() }
    }
}

/// Returns the program of a packet of a pcapng, which names one of the processes so far by its place.
pub(crate) fn of_packet<'a>(
    options: &[PcapNGOption<'_>],
    processes: &'a [Process],
    big_endian: bool,
) -> Option<Named<'a>> {
    const FLAGS: u16 = 2;
    const PROCESS: u16 = 0x8001;
    let word = |code| {
        let bytes = *option(options, code)?.first_chunk()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let process = processes.get(word(PROCESS)? as usize)?;
    let whose = Whose::of(word(FLAGS)?)?;
    (!process.name.is_empty()).then_some(Named {
        name: &process.name,
        process: number(process.id),
        whose,
    })
}

/// Returns the first option with this code.
pub(crate) fn option<'a>(options: &'a [PcapNGOption<'_>], code: u16) -> Option<&'a [u8]> {
    let option = options.iter().find(|option| option.code.0 == code)?;
    option.as_bytes().ok()
}

/// A process's number; 0 and -1 stand for none.
fn number(process: u32) -> Option<u32> {
    (!matches!(process, 0 | u32::MAX)).then_some(process)
}

/// The text before the first zero byte, as far as it is text.
fn text(bytes: &[u8]) -> Option<&str> {
    let bytes = bytes.get(..LONGEST_NAME_BYTES).unwrap_or(bytes);
    let name = bytes.split(|byte| *byte == 0).next()?;
    name.utf8_chunks().next().map(|chunk| chunk.valid()).filter(|name| !name.is_empty())
}
