//! The program's socket: its handover to the manager, and the socket that the program has in its place.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_void, socklen_t};
use rejoin_abi::gate::{Gated, outside};
use rejoin_abi::{RegisteredOf, is_readable};
use rejoin_client::hop::Sockets;
use rejoin_client::protocol::{self, Directly, Host, MinVersion};
use rejoin_client::{Error, Manager};
use rustix::fs::fstat;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, send, sockopt};
use rustix::process::{Resource, getrlimit};

use crate::debug;
use crate::deciding::Decider;
use crate::held::{Held, Identity};
use crate::hello::ClientHello;
use crate::offer::{Offer, take_pending};
use crate::waiting::{self, Waiting};
use crate::{registered, settings};

/// The port of FTP over TLS. Its servers demand that each data connection resumes the session of the control
/// connection, so that the program must have one with the server, and not with the manager.
const FTPS: u16 = 990;

/// The bytes that the program is sending, and their socket.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub(crate) descriptor: RawFd,
    /// The port that a proxy was asked for over the descriptor, or 0.
    pub(crate) tunnel_port: u16,
    /// Returns `epoll` registrations.
    pub(crate) registered_of: RegisteredOf,
    pub(crate) bytes: &'a [u8],
}

/// Hands the socket to the manager if the bytes that the program is about to send are a ClientHello with the PSK of an
/// [`Offer`]. The bytes then go to the manager.
pub(crate) fn sending(sending: Sending<'_>) -> Outcome {
    let Some(hello) = ClientHello::read(sending.bytes) else { return Outcome::Nothing };
    let identity = std::str::from_utf8(hello.identity).ok().and_then(|text| text.parse().ok());
    let Some(offer) = identity.and_then(|identity| take_pending(&identity)) else {
        return Outcome::Nothing;
    };
    give(sending, &hello, offer).unwrap_or_else(|why| {
        why.into_iter().for_each(debug::directly);
        Outcome::Nothing
    })
}

/// The outcome of [`sending`], with its number for `librejoin_preload.so`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The program has its own socket.
    Nothing = 0,
    /// The socket is handed over.
    HandedOver = 1,
    /// The bytes are sent, too.
    Sent = 2,
}

/// Hands the socket over. `Err(None)`: the reason is reported already.
fn give(
    sending: Sending<'_>,
    hello: &ClientHello<'_>,
    offer: Arc<Offer>,
) -> Result<Outcome, Option<Directly>> {
    let Some(manager) = settings::manager() else { return Err(Some(Directly::NoManager)) };
    // The keying material that NTS exports from a hop (RFC 8915) differs from the server's.
    let exports = hello.protocols.contains(&&b"ntske/1"[..]);
    let wants_more = hello.wants_more.iter().any(|kind| !offer.leaves_out.contains(kind));
    if wants_more || !hello.has_hop_group() || exports {
        return Err(Some(Directly::Extension));
    }
    if !hello.takes_hop_suite() {
        return Err(Some(Directly::Suites));
    }
    // SAFETY: the program is sending over this descriptor, and so keeps it open during the call.
    let tcp = unsafe { BorrowedFd::borrow_raw(sending.descriptor) };
    // Who was called cannot call again, and the peer's port is no service's.
    let found = Found::of(tcp).filter(|found| !found.was_called).ok_or(Directly::NoSocket)?;
    // The port that a proxy was asked for counts only if something was sent over this socket.
    let is_tunnel = sending.tunnel_port != 0 && !found.is_fresh;
    let port = if is_tunnel { sending.tunnel_port } else { found.peer.port() };
    if port == FTPS {
        return Err(Some(Directly::OwnSession));
    }
    offer.note(hello);
    let wanted = wanted(hello, (found.peer.ip(), port), &offer).ok_or(Directly::Extension)?;
    let registered = registered::known(sending.registered_of, sending.descriptor);
    if found.is_signalled() || registered::is_elsewhere(tcp, found.inode, registered.as_ref()) {
        return Err(Some(Directly::Registered));
    }
    let system = |_: io::Error| Some(Directly::System);
    let pair = found.pair(tcp).map_err(system)?;
    let spare = found.spare(tcp).map_err(system)?;
    let spare = spare.as_ref().map(AsFd::as_fd);
    let sockets = Sockets { line: pair.line.as_fd(), tcp, spare };
    let handover = Handover { manager, wanted: &wanted, sockets, found, own: &pair.own, sending };
    if handover.found.is_non_blocking() { handover.later(offer) } else { handover.now(&offer) }
}

/// A handover to the manager, of which nobody has heard yet.
struct Handover<'a> {
    manager: &'a Manager,
    wanted: &'a protocol::Hop,
    sockets: Sockets<'a>,
    found: Found,
    /// The program's end of the pair.
    own: &'a OwnedFd,
    sending: Sending<'a>,
}

impl Handover<'_> {
    fn service(&self) -> String {
        format!("{}:{}", self.wanted.host, self.wanted.port)
    }

    /// Waits for the manager's decision, as the program's socket waits.
    fn now(self, offer: &Offer) -> Result<Outcome, Option<Directly>> {
        let ask = || self.manager.hop(self.wanted, self.sockets, settings::patience());
        let hop = outside(ask).map_err(|error| self.failed(&error))?;
        self.replace()?;
        offer.given(hop);
        Ok(Outcome::HandedOver)
    }

    /// Does not wait. The program's own socket is kept until the manager has decided.
    fn later(self, offer: Arc<Offer>) -> Result<Outcome, Option<Directly>> {
        let system = |_| Some(Directly::System);
        // The program must not run out of descriptors because of these.
        let most =
            getrlimit(Resource::Nofile).current.map_or(RawFd::MAX, |most| (most / 2) as RawFd);
        if self.own.as_raw_fd() >= most {
            return Err(Some(Directly::System));
        }
        let tcp = self.sockets.tcp.try_clone_to_owned().map_err(system)?;
        // Before the manager has the other end, which it closes if it refuses.
        let sent = send(self.own, self.sending.bytes, SendFlags::NOSIGNAL);
        if !sent.is_ok_and(|sent| sent == self.sending.bytes.len()) {
            return Err(Some(Directly::System));
        }
        let asked = self.manager.request_hop(self.wanted, self.sockets);
        let requested = asked.map_err(|error| self.failed(&error))?;
        let end = self.replace()?;
        let own = waiting::Own {
            tcp: Held::new(tcp),
            end,
            close_on_exec: self.found.close_on_exec(),
            registered_of: self.sending.registered_of,
            hello: self.sending.bytes.to_vec(),
            service: self.service(),
        };
        let decider = Decider::this(&requested);
        let requested = Held::new(requested);
        waiting::add(self.sending.descriptor, Waiting { requested, decider, offer, own });
        Ok(Outcome::Sent)
    }

    /// Puts the program's end of the pair in the place of its socket. Returns what the end is.
    fn replace(&self) -> Result<Identity, Option<Directly>> {
        let Self { sockets, found, own, sending, .. } = self;
        let end = Identity::of(own).ok_or(Directly::System)?;
        if !put(own.as_fd(), sockets.tcp, sending.registered_of, found.close_on_exec()) {
            return Err(Some(Directly::System));
        }
        let descriptor = sending.descriptor;
        remember(end.inode, Taken { descriptor, own: found.own, peer: found.peer });
        Ok(end)
    }

    /// Reports an error of the manager's.
    fn failed(&self, error: &Error) -> Option<Directly> {
        settings::failed(&self.service(), error);
        None
    }
}

/// Puts a socket in the place of another, with the registration of that. Returns false if the system refuses it.
pub(crate) fn put(
    new: BorrowedFd<'_>,
    at: BorrowedFd<'_>,
    registered_of: RegisteredOf,
    close_on_exec: c_int,
) -> bool {
    let known = registered::known(registered_of, at.as_raw_fd());
    let registered = registered::forget(at, known);
    // SAFETY: both descriptors are open; the second one refers to the new socket from here on.
    let done = unsafe { libc::dup3(new.as_raw_fd(), at.as_raw_fd(), close_on_exec) } >= 0;
    registered::renew(at, registered.as_ref());
    done
}

/// Two connected sockets: the program's end, and the manager's.
struct Pair {
    own: OwnedFd,
    line: OwnedFd,
}

/// A program's TCP socket.
struct Found {
    inode: u64,
    own: SocketAddr,
    peer: SocketAddr,
    /// True if a new connection to the same address reaches the same server: nothing has gone over the socket, such
    /// as a request to a proxy.
    is_fresh: bool,
    /// True if the program accepted the connection.
    was_called: bool,
    status: c_int,
    flags: c_int,
}

impl Found {
    /// Examines a descriptor. `None`: it is not a connected TCP socket.
    fn of(tcp: BorrowedFd<'_>) -> Option<Self> {
        if sockopt::socket_protocol(tcp).ok().flatten() != Some(ipproto::TCP) {
            return None;
        }
        let own = rustix::net::getsockname(tcp).ok()?.try_into().ok()?;
        let peer = rustix::net::getpeername(tcp).ok()??.try_into().ok()?;
        // SAFETY: F_GETFL takes no pointer.
        let status = unsafe { libc::fcntl(tcp.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: F_GETFD takes no pointer.
        let flags = unsafe { libc::fcntl(tcp.as_raw_fd(), libc::F_GETFD) };
        if status < 0 || flags < 0 {
            return None;
        }
        let inode = fstat(tcp).ok()?.st_ino;
        let (is_fresh, was_called) = begun(tcp);
        Some(Self { inode, own, peer, is_fresh, was_called, status, flags })
    }

    fn close_on_exec(&self) -> c_int {
        if self.flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 }
    }

    fn is_non_blocking(&self) -> bool {
        self.status & libc::O_NONBLOCK != 0
    }

    /// Returns true if the program waits for signals of its socket, which no other socket would send.
    fn is_signalled(&self) -> bool {
        self.status & libc::O_ASYNC != 0
    }

    /// Makes the pair. The program's end has the blocking mode and the timeouts of its socket, and what it may ask for.
    fn pair(&self, tcp: BorrowedFd<'_>) -> io::Result<Pair> {
        let (own, line) = UnixStream::pair()?;
        own.set_nonblocking(self.is_non_blocking())?;
        for option in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            let limit = sockopt::socket_timeout(tcp, option)?;
            sockopt::set_socket_timeout(&own, option, limit)?;
        }
        let own = OwnedFd::from(own);
        for option in ASKED {
            // A Unix socket does nothing with it, whatever its value.
            copy(tcp, &own, option);
        }
        Ok(Pair { own, line: line.into() })
    }

    /// Makes a socket by which the manager can connect to the server again: in the program's network namespace, from
    /// the same address, over the same device, with the same care. `Ok(None)`: such a socket cannot be made.
    fn spare(&self, tcp: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
        if !self.is_fresh {
            return Ok(None);
        }
        let family = if self.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let spare = rustix::net::socket_with(family, kind, flags, Some(ipproto::TCP))?;
        let from = SocketAddr::new(self.own.ip(), 0);
        let from = match (from, self.own) {
            (SocketAddr::V6(mut from), SocketAddr::V6(own)) => {
                from.set_scope_id(own.scope_id());
                SocketAddr::V6(from)
            }
            (from, _) => from,
        };
        let is_alike = WAY.into_iter().all(|option| copy(tcp, &spare, option));
        for option in CARE {
            // Without it the connection reaches the same server, too.
            copy(tcp, &spare, option);
        }
        without_port(&spare);
        Ok((is_alike && rustix::net::bind(&spare, &from).is_ok()).then_some(spare))
    }
}

/// Delays the choice of a port until the socket is connected, because most of these sockets never are and a machine has
/// few ports. If the kernel cannot delay it, a port is chosen at once.
fn without_port(spare: &OwnedFd) {
    let yes: c_int = 1;
    let (at, bytes) = ((&raw const yes).cast(), size_of::<c_int>() as socklen_t);
    // SAFETY: `at` points to an int, and `bytes` is its size.
    let _ = unsafe {
        libc::setsockopt(
            spare.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            at,
            bytes,
        )
    };
}

/// An option of sockets: its level and its number.
type SocketOption = (c_int, c_int);

/// The options that decide which way a connection goes.
const WAY: [SocketOption; 2] =
    [(libc::SOL_SOCKET, libc::SO_MARK), (libc::SOL_SOCKET, libc::SO_BINDTODEVICE)];

/// The options by which a connection notices that the other side is gone, and those that its packets show. To set the
/// type of service changes the priority, which comes after it.
const CARE: [SocketOption; 8] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
];

/// The options that a Unix socket has, too, only to be asked for.
const ASKED: [SocketOption; 4] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
];

/// Copies an option from one socket to another if it differs. Returns true if both have the same value now.
fn copy(from: BorrowedFd<'_>, to: &OwnedFd, option: SocketOption) -> bool {
    let (mut value, mut other) = ([0; MOST_VALUE], [0; MOST_VALUE]);
    let Some(value) = value_of(from, option, &mut value) else { return false };
    if value_of(to.as_fd(), option, &mut other) == Some(value) {
        return true;
    }
    let ((level, option), bytes) = (option, value.len() as socklen_t);
    // SAFETY: `value` has `bytes` bytes.
    let set =
        unsafe { libc::setsockopt(to.as_raw_fd(), level, option, value.as_ptr().cast(), bytes) };
    set == 0
}

/// The most bytes of a value that is copied.
const MOST_VALUE: usize = 64;

/// Returns the value of an option. `None`: the socket does not have it.
fn value_of<'a>(
    socket: BorrowedFd<'_>,
    (level, option): SocketOption,
    value: &'a mut [u8; MOST_VALUE],
) -> Option<&'a [u8]> {
    let mut bytes = value.len() as socklen_t;
    let into = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: `into` has room for `bytes` bytes.
    let asked =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, into, &raw mut bytes) };
    value.get(..bytes as usize).filter(|_| asked == 0)
}

/// Returns whether no data has gone over a connection, and whether, without any, it is known to have been accepted. A
/// kernel that does not report `tcpi_data_segs_in` and `tcpi_data_segs_out` counts as if some had.
fn begun(tcp: BorrowedFd<'_>) -> (bool, bool) {
    const BYTES_ACKED: std::ops::Range<usize> = 120..128;
    const DATA_SEGS: std::ops::Range<usize> = 152..160;
    let mut info = [0_u8; 256];
    let mut bytes = info.len() as socklen_t;
    let into = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: `into` has room for `bytes` bytes.
    let asked = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(tcp.as_raw_fd(), level, option, into, &raw mut bytes)
    };
    let is_zero = |range: std::ops::Range<usize>| info[range].iter().all(|byte| *byte == 0);
    let is_fresh = asked == 0 && bytes as usize >= DATA_SEGS.end && is_zero(DATA_SEGS);
    // `tcpi_bytes_acked` counts the SYN of who called, and nothing of who accepted (tcp_snd_una_update of Linux).
    (is_fresh, is_fresh && is_zero(BYTES_ACKED))
}

/// Makes the request to the manager. `None`: the protocol cannot express it.
fn wanted(
    hello: &ClientHello<'_>,
    (address, port): (IpAddr, u16),
    offer: &Offer,
) -> Option<protocol::Hop> {
    let named = hello.server_name.map(|name| std::str::from_utf8(name).ok()?.parse::<Host>().ok());
    let host = named.unwrap_or_else(|| address.to_canonical().to_string().parse().ok())?;
    let protocols = hello.protocols.iter().map(|name| std::str::from_utf8(name).ok()?.parse().ok());
    Some(protocol::Hop {
        host,
        port: port.try_into().ok()?,
        alpn: protocols.collect::<Option<Vec<_>>>()?,
        label: settings::label()?.clone(),
        min_version: (!hello.offers_tls12).then_some(MinVersion::Tls13),
        offers: hello.offers()?,
        staple: offer.asks().staple,
        identity: offer.identity,
        key: offer.key.clone(),
    })
}

/// A socket that was handed over: the descriptor and the addresses that it had.
struct Taken {
    descriptor: RawFd,
    own: SocketAddr,
    peer: SocketAddr,
}

/// The sockets that were handed over, by the inode of what has their place.
struct HandedOver {
    all: BTreeMap<u64, Taken>,
    /// The number at which those are forgotten whose descriptor refers to something else now.
    most: usize,
}

/// The least number of sockets that are remembered: the program may have moved some to other descriptors.
const LEAST: usize = 1_024;

/// The number of sockets that were handed over. At zero, no question of the program about sockets is examined.
pub(crate) static TAKEN: AtomicUsize = AtomicUsize::new(0);

static SOCKETS: Gated<HandedOver> = Gated::new(HandedOver { all: BTreeMap::new(), most: LEAST });

impl HandedOver {
    /// Adds a socket. There are never more than twice as many as the program has open, or [`LEAST`].
    fn add(&mut self, inode: u64, taken: Taken) {
        if self.all.len() >= self.most {
            self.all.retain(|inode, taken| inode_of(taken.descriptor) == Some(*inode));
            self.most = LEAST.max(2 * self.all.len());
        }
        self.all.insert(inode, taken);
    }
}

fn remember(inode: u64, taken: Taken) {
    let mut sockets = SOCKETS.lock();
    sockets.add(inode, taken);
    TAKEN.store(sockets.all.len(), Ordering::Relaxed);
}

/// Returns the inode of a socket. `None`: the descriptor is not open, or no socket's.
fn inode_of(descriptor: RawFd) -> Option<u64> {
    // SAFETY: the descriptor is only asked about; if it is not open, the call fails.
    let found = fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
    (found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(found.st_ino)
}

/// Returns the addresses that the program's socket had: its own, and the server's.
fn addresses(descriptor: RawFd) -> Option<(SocketAddr, SocketAddr)> {
    let inode = inode_of(descriptor)?;
    let sockets = SOCKETS.lock();
    let taken = sockets.all.get(&inode)?;
    Some((taken.own, taken.peer))
}

/// Answers as the kernel does: with as many bytes as there is room for, and with the whole length. Returns false if the
/// memory is not there, which the kernel refuses.
///
/// # Safety
/// `from` has `length` bytes, and `to` has room for as many bytes as `bytes` says.
unsafe fn answer((from, length): (*const u8, usize), to: *mut u8, bytes: *mut socklen_t) -> bool {
    if !is_readable(bytes.cast(), size_of::<socklen_t>()) {
        return false;
    }
    // SAFETY: the caller vouches for `bytes`.
    let room = unsafe { bytes.read() };
    if !is_readable(to.cast(), length.min(room as usize)) {
        return false;
    }
    // SAFETY: the caller vouches for both, and no more is copied than `to` has room for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, length.min(room as usize)) };
    // SAFETY: the caller vouches for `bytes`.
    unsafe { bytes.write(length as socklen_t) };
    true
}

/// Answers `getsockname` and `getpeername` for a socket that was handed over. Returns false for any other.
///
/// # Safety
/// `address` and `bytes` are valid arguments of these functions, and not null.
pub(crate) unsafe fn name(
    descriptor: RawFd,
    of_peer: bool,
    address: *mut libc::sockaddr,
    bytes: *mut socklen_t,
) -> bool {
    let Some((own, peer)) = addresses(descriptor) else { return false };
    let mut raw = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let length = write(if of_peer { peer } else { own }, &mut raw);
    // SAFETY: `raw` has `length` bytes, and the caller vouches for `address` and `bytes`.
    unsafe { answer((raw.as_ptr().cast(), length), address.cast(), bytes) }
}

fn write(address: SocketAddr, raw: &mut MaybeUninit<libc::sockaddr_storage>) -> usize {
    match address {
        SocketAddr::V4(address) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for any address, and the alignment of one.
            unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in>().write(v4) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: the storage has room for any address, and the alignment of one.
            unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>()
        }
    }
}

/// Answers `getsockopt` for the domain and the protocol of a socket that was handed over. Returns false for any other
/// socket or option.
///
/// # Safety
/// `value` and `bytes` are valid arguments of `getsockopt`, and not null.
pub(crate) unsafe fn option(
    descriptor: RawFd,
    option: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> bool {
    let Some((own, _)) = addresses(descriptor) else { return false };
    let family = if matches!(own.ip(), IpAddr::V4(_)) { libc::AF_INET } else { libc::AF_INET6 };
    let said = match option {
        libc::SO_DOMAIN => family,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        _ => return false,
    }
    .to_ne_bytes();
    // SAFETY: the caller vouches for `value` and `bytes`; `said` has `said.len()` bytes.
    unsafe { answer((said.as_ptr(), said.len()), value.cast(), bytes) }
}

/// Returns true if the socket of this descriptor took the place of one that was handed over.
pub(crate) fn is_taken(descriptor: RawFd) -> bool {
    addresses(descriptor).is_some()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_called_is_told_from_who_was_called() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut calls =
                TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            let mut called = listener.accept().expect("a call").0;
            assert_eq!(begun(calls.as_fd()), (true, false));
            assert_eq!(begun(called.as_fd()), (true, true));
            calls.write_all(b"x").expect("open");
            called.read_exact(&mut [0]).expect("a byte");
            assert_eq!([&calls, &called].map(|of| begun(of.as_fd())), [(false, false); 2]);
        }
    }

    /// Sets an option that is a number.
    fn set(socket: &TcpStream, (level, option): SocketOption, value: &[c_int]) {
        let (at, bytes) = (value.as_ptr().cast(), size_of_val(value) as socklen_t);
        // SAFETY: `at` points to as many bytes.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, bytes) };
        assert_eq!(set, 0, "{option}");
    }

    fn value(socket: impl AsFd, option: SocketOption) -> Option<Vec<u8>> {
        value_of(socket.as_fd(), option, &mut [0; MOST_VALUE]).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_second_connection_has_the_options_of_the_first() {
        for (address, level, service) in [
            ("127.0.0.1:0", libc::IPPROTO_IP, libc::IP_TOS),
            ("[::1]:0", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        ] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let to = listener.local_addr().expect("bound");
            let (plain, own) = [(); 2].map(|()| TcpStream::connect(to).expect("it listens")).into();
            let numbers = [
                ((libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1),
                ((libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 20),
                ((libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), 5),
                ((libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 3),
                ((libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 15_000),
                ((level, service), 0x10),
                ((libc::SOL_SOCKET, libc::SO_PRIORITY), 5),
            ];
            for (option, number) in numbers {
                set(&own, option, &[number]);
            }
            for (tcp, is_set) in [(&plain, false), (&own, true)] {
                let found = Found::of(tcp.as_fd()).expect("it is connected");
                let spare = found.spare(tcp.as_fd()).expect("a socket").expect("nothing was sent");
                for (option, number) in numbers {
                    assert_eq!(value(&spare, option), value(tcp, option), "{option:?}");
                    let is_own = value(&spare, option) == Some(number.to_ne_bytes().to_vec());
                    assert_eq!(is_own, is_set, "{option:?}");
                }
            }
        }
    }

    #[test]
    fn options_read_back_as_they_were_set() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let of_sockets = |option| (libc::SOL_SOCKET, option);
        for option in [libc::SO_KEEPALIVE, libc::SO_REUSEADDR] {
            set(&own, of_sockets(option), &[1]);
        }
        set(&own, of_sockets(libc::SO_LINGER), &[1, 3]);
        set(&own, of_sockets(libc::SO_PRIORITY), &[5]);
        let found = Found::of(own.as_fd()).expect("it is connected");
        let pair = found.pair(own.as_fd()).expect("a pair");
        for option in ASKED {
            assert_eq!(value(&pair.own, option), value(&own, option), "{option:?}");
            assert_ne!(value(&pair.own, option), value(&pair.line, option), "{option:?}");
        }
    }

    #[test]
    fn open_sockets_are_remembered_however_many_came_after_them() {
        let mut sockets = HandedOver { all: BTreeMap::new(), most: 4 };
        let mut add = |socket: &UnixStream, port| {
            let (own, peer) = (([127, 0, 0, 1], port).into(), ([127, 0, 0, 2], 443).into());
            let inode = inode_of(socket.as_raw_fd()).expect("a socket");
            sockets.add(inode, Taken { descriptor: socket.as_raw_fd(), own, peer });
            (inode, sockets.all.len())
        };
        let pair = || UnixStream::pair().expect("a pair");
        let open: Vec<_> = (0..8).map(|_| pair()).collect();
        let inodes: Vec<_> =
            open.iter().zip(1..).map(|((own, _), port)| add(own, port).0).collect();
        let lengths = (0..3 * LEAST).map(|_| add(&pair().0, 0).1);
        assert_eq!(lengths.max(), Some(LEAST));
        let port = |inode| sockets.all.get(inode).map(|taken| taken.own.port());
        assert!(inodes.iter().zip(1..).all(|(inode, of)| port(inode) == Some(of)));
    }
}
