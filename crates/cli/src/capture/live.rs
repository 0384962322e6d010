//! Live packets of an interface, in the form of a capture file that grows while it is read.
//!
//! A packet socket (packet(7)) returns network packets without link headers, and the interface of
//! each, whatever the kind of interface. They become Linux cooked captures (`LINKTYPE_LINUX_SLL2`).

use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use indicatif::ProgressBar;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, RcvBufForce, ReceiveTimestampns, RxqOvfl};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind,
    getsockopt, recvmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use rejoin_sim::Progress;
use socket2::{SockFilter, SockRef};

use super::programs::Programs;
use crate::arguments::Misuse;
use crate::stoppable::is_readable;

/// The size of the receive buffer.
const WAITING_BYTES: usize = 64 << 20;
/// The longest packet; the system joins segments up to this length.
const LONGEST_PACKET_BYTES: usize = 256 << 10;
/// The longest time for the packets that wait at the end. They are fewer than fit into the buffer, unless the clock was set back.
const LAST_PACKETS_WITHIN: Duration = Duration::from_secs(10);
/// The packet type of outgoing packets.
const OUTGOING: u8 = 4;
const LOOPBACK: u16 = 772;

/// A filter (packet(7), `SO_ATTACH_FILTER`) that takes all packets but those that loopback sends: it shows
/// each of them twice, outgoing and incoming, and would also lose each of them twice.
const ALL_BUT_SENT_ON_LOOPBACK: [SockFilter; 6] = {
    /// Extensions: the kind of interface, and the type of packet (`SKF_AD_HATYPE`, `SKF_AD_PKTTYPE`).
    const INTERFACE: u32 = 0xffff_f000 + 28;
    const PACKET: u32 = 0xffff_f000 + 4;
    const LOAD: u16 = 0x28;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD, 0, 0, INTERFACE),
        SockFilter::new(JUMP_IF_EQUAL, 0, 2, LOOPBACK as u32),
        SockFilter::new(LOAD, 0, 0, PACKET),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, OUTGOING as u32),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
};

/// The option that gives the packets received, and those among them that were dropped, since it was asked for last.
#[derive(Clone, Copy)]
struct PacketStatistics;

nix::getsockopt_impl!(
    PacketStatistics,
    libc::SOL_PACKET,
    libc::PACKET_STATISTICS,
    [u32; 2],
    GetStruct<[u32; 2]>
);

/// A live capture of an interface.
pub(super) struct Live {
    socket: OwnedFd,
    until: Option<Instant>,
    lost: Arc<AtomicU32>,
    /// `None` if they cannot be looked for.
    programs: Option<Programs>,
}

impl Live {
    /// Captures from the interface of this name, or from `any`, for this many milliseconds.
    pub(super) fn open(name: &str, duration_ms: Option<u64>) -> anyhow::Result<Self> {
        let address = if name == "any" { None } else { Some(address_of(name)?) };
        let opened = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        );
        let socket = opened.map_err(|error| match error {
            Errno::EPERM | Errno::EACCES => anyhow!(
                "{name}: not permitted: run as root, or grant the program the capability \
                 (setcap cap_net_raw+ep rejoin)"
            ),
            error => anyhow!("{name}: cannot be listened to: {error}"),
        })?;
        let asked = setsockopt(&socket, ReceiveTimestampns, &true)
            .and_then(|()| setsockopt(&socket, RxqOvfl, &1))
            .map_err(io::Error::from)
            .and_then(|()| SockRef::from(&socket).attach_filter(&ALL_BUT_SENT_ON_LOOPBACK));
        asked.with_context(|| format!("{name}: cannot be listened to"))?;
        // Without CAP_NET_ADMIN the system's limit stays.
        let _ = setsockopt(&socket, RcvBufForce, &WAITING_BYTES);
        if let Some(address) = address {
            bind(socket.as_raw_fd(), &address)
                .with_context(|| format!("{name}: cannot be listened to"))?;
        }
        let until = duration_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        Ok(Self { socket, until, lost: Arc::default(), programs: Programs::start() })
    }

    /// Returns a reader of the capture, which ends at Ctrl-C or when the time is over, with what had come until then. While
    /// nothing comes it is interrupted ten times a second, so that its user can do other things.
    pub(super) fn read<'a>(&'a self, stop: &'a Progress, bar: &'a ProgressBar) -> impl Read + 'a {
        Reader {
            live: self,
            stop,
            bar,
            packet: vec![0; LONGEST_PACKET_BYTES],
            ready: header(),
            at: 0,
            end: None,
        }
    }

    /// Returns the programs at the ends of its connections.
    pub(super) fn programs(&self) -> Option<&Programs> {
        self.programs.as_ref()
    }

    /// Returns the number of packets that the system dropped, which grows, and is complete once the reader is gone.
    pub(super) fn lost(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.lost)
    }
}

fn address_of(name: &str) -> anyhow::Result<LinkAddr> {
    let all = getifaddrs().context("the system names no interfaces")?;
    let mut names = Vec::new();
    for interface in all {
        let link = interface.address.as_ref().and_then(|address| address.as_link_addr().copied());
        match link {
            Some(link) if interface.interface_name == name => return Ok(link),
            Some(_) => names.push(interface.interface_name),
            None => {}
        }
    }
    let what = format!("{name}: no such interface: there are {}, and any", names.join(", "));
    Err(Misuse(what).into())
}

struct Reader<'a> {
    live: &'a Live,
    stop: &'a Progress,
    bar: &'a ProgressBar,
    packet: Vec<u8>,
    /// Bytes of the capture; those from `at` on are not yet read.
    ready: Vec<u8>,
    at: usize,
    /// `None` while it goes on.
    end: Option<End>,
}

/// The end of a capture: what came until then may still wait.
#[derive(Clone, Copy)]
struct End {
    came_until: SystemTime,
    read_until: Instant,
}

impl End {
    /// Begins the end, which was due at this time, or is now.
    fn begin(due: Option<Instant>) -> Self {
        let now = Instant::now();
        let late = due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        Self { came_until: SystemTime::now() - late, read_until: now + LAST_PACKETS_WITHIN }
    }

    /// Returns true if a packet of this time came before the end.
    fn includes(self, time: Option<TimeSpec>) -> bool {
        let end = self.came_until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        time.is_some_and(|time| Duration::from(time) <= end)
    }
}

/// The result of receiving.
enum Received {
    /// A packet, which may be of no interest.
    Packet,
    /// Nothing waits, or what waits came after the end.
    Nothing,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.ready.len() {
            if self.end.is_none() {
                self.wait()?;
            }
            self.at = 0;
            self.ready.clear();
            let received = self.receive()?;
            let is_over = |end: End| Instant::now() >= end.read_until;
            if self.end.is_some_and(is_over)
                || self.end.is_some() && matches!(received, Received::Nothing)
            {
                return Ok(0);
            }
        }
        let ready = &self.ready[self.at..];
        let length = ready.len().min(buffer.len());
        buffer[..length].copy_from_slice(&ready[..length]);
        self.at += length;
        self.bar.inc(length as u64);
        Ok(length)
    }
}

impl Reader<'_> {
    /// Waits for a packet, or for the end. It is interrupted if neither comes for a while.
    fn wait(&mut self) -> io::Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        let until = Instant::now() + LOOK_EVERY;
        let until = self.live.until.map_or(until, |end| end.min(until));
        if is_readable(&self.live.socket, self.stop, Some(until))? {
            return Ok(());
        }
        let due = self.live.until.filter(|end| Instant::now() >= *end);
        if due.is_none() && !self.stop.stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.end = Some(End::begin(due));
        Ok(())
    }

    /// Receives the next packet, if there is one.
    fn receive(&mut self) -> io::Result<Received> {
        let mut control = cmsg_space!(TimeSpec, u32);
        let mut parts = [IoSliceMut::new(&mut self.packet)];
        let received = recvmsg::<LinkAddr>(
            self.live.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_TRUNC,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Ok(Received::Nothing),
            Err(Errno::EINTR) => return Ok(Received::Packet),
            // An interface that disappears ends the capture.
            Err(error) => return Err(error.into()),
        };
        let mut time = None;
        for message in received.cmsgs()? {
            match message {
                ControlMessageOwned::ScmTimestampns(stamp) => time = Some(stamp),
                ControlMessageOwned::RxqOvfl(lost) => self.live.lost.store(lost, Ordering::Relaxed),
                _ => {}
            }
        }
        if self.end.is_some_and(|end| !end.includes(time)) {
            return Ok(Received::Nothing);
        }
        let (Some(from), length) = (received.address, received.bytes) else {
            return Ok(Received::Packet);
        };
        // What came before the filter.
        if from.hatype() == LOOPBACK && from.pkttype() == OUTGOING {
            return Ok(Received::Packet);
        }
        let captured = self.packet.get(..length).unwrap_or(&self.packet);
        if let Some(programs) = &self.live.programs {
            programs.note(captured, time.map_or(0, microseconds));
        }
        record(&mut self.ready, time, &from, captured, length);
        Ok(Received::Packet)
    }
}

impl Drop for Reader<'_> {
    /// Asks for the packets that were dropped. Those behind the last packet that found room are told by none.
    fn drop(&mut self) {
        if let Ok([_, dropped]) = getsockopt(&self.live.socket, PacketStatistics) {
            self.live.lost.fetch_max(dropped, Ordering::Relaxed);
        }
    }
}

fn microseconds(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000 + time.tv_nsec() / 1_000
}

/// Returns the header of a pcap file with times in nanoseconds.
fn header() -> Vec<u8> {
    const NANOSECONDS: u32 = 0xa1b2_3c4d;
    const LINUX_SLL2: u32 = 276;
    let words = [NANOSECONDS, 0x0004_0002, 0, 0, LONGEST_PACKET_BYTES as u32, LINUX_SLL2];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record(
    capture: &mut Vec<u8>,
    time: Option<TimeSpec>,
    from: &LinkAddr,
    packet: &[u8],
    length: usize,
) {
    const SLL2_BYTES: usize = 20;
    let (seconds, nanoseconds) = time.map_or((0, 0), |time| (time.tv_sec(), time.tv_nsec()));
    let lengths = [packet.len(), length].map(|length| (length + SLL2_BYTES) as u32);
    for word in [seconds as u32, nanoseconds as u32].into_iter().chain(lengths) {
        capture.extend_from_slice(&word.to_le_bytes());
    }
    // The protocol is in network order already.
    capture.extend_from_slice(&from.protocol().to_ne_bytes());
    capture.extend_from_slice(&[0; 2]);
    capture.extend_from_slice(&(from.ifindex() as u32).to_be_bytes());
    capture.extend_from_slice(&from.hatype().to_be_bytes());
    capture.extend_from_slice(&[from.pkttype(), 0]);
    capture.extend_from_slice(&[0; 8]);
    capture.extend_from_slice(packet);
}
