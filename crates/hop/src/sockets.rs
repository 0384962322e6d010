//! The program's socket: how the manager gets it, and what the program has in its place.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use libc::{c_int, c_void, socklen_t};
use rejoin_client::Error;
use rejoin_client::hop::Sockets;
use rejoin_client::protocol::{self, Directly, Host, MinVersion};
use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::debug;
use crate::hello::ClientHello;
use crate::offer::Offer;
use crate::{pending, registered, settings};

/// The program sends these bytes. If they are a ClientHello with a key of ours, the manager gets the
/// socket, and they go to it.
pub(crate) fn sending(descriptor: RawFd, tunnel_port: u16, bytes: &[u8]) {
    let Some(hello) = ClientHello::read(bytes) else { return };
    let identity = std::str::from_utf8(hello.identity).ok().and_then(|text| text.parse().ok());
    let Some(offer) = identity.and_then(|identity| pending::take(&identity)) else { return };
    if let Err(Some(why)) = give((descriptor, tunnel_port), &hello, &offer) {
        debug::directly(why);
    }
}

/// `Err(None)`: it is said already why.
fn give(
    (descriptor, tunnel_port): (RawFd, u16),
    hello: &ClientHello<'_>,
    offer: &Offer,
) -> Result<(), Option<Directly>> {
    let Some(manager) = settings::manager() else { return Err(Some(Directly::NoManager)) };
    // What is exported from a hop is not what the server has.
    let exports = hello.protocols.contains(&&b"ntske/1"[..]);
    let wants_more = hello.wants_more.iter().any(|kind| !offer.leaves_out.contains(kind));
    if wants_more || !hello.has_group || exports {
        return Err(Some(Directly::Extension));
    }
    if !hello.takes_all_suites() {
        return Err(Some(Directly::Suites));
    }
    // SAFETY: the program sends over it now.
    let tcp = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let found = Found::of(tcp).ok_or(Directly::NoSocket)?;
    // What was said to a proxy counts where something was said.
    let is_tunnel = tunnel_port != 0 && !found.is_fresh;
    let port = if is_tunnel { tunnel_port } else { found.peer.port() };
    let wanted = wanted(hello, (found.peer.ip(), port), offer).ok_or(Directly::Extension)?;
    let waits = registered::of(tcp, found.inode).ok_or(Directly::Registered)?;
    let system = |_: io::Error| Some(Directly::System);
    let (own, line) = found.pair(tcp).map_err(system)?;
    let spare = found.spare(tcp).map_err(system)?;
    let spare = spare.as_ref().map(AsFd::as_fd);
    let sockets = Sockets { line: line.as_fd(), tcp, spare };
    let hop = manager.hop(&wanted, sockets, settings::patience()).map_err(|error| {
        let why = match error {
            Error::NotRunning { .. } | Error::Silent(_) => Directly::NoManager,
            _ => Directly::ManagerRefused,
        };
        debug::refused(&format!("{}:{}", wanted.host, wanted.port), why, &error);
        if why == Directly::NoManager {
            settings::leave_alone();
        }
        None
    })?;
    let inode = fstat(&own).map_err(|error| system(error.into()))?.st_ino;
    registered::forget(tcp, &waits);
    // SAFETY: both are open; the program's number is another socket from here on.
    if unsafe { libc::dup3(own.as_raw_fd(), descriptor, found.close_on_exec()) } < 0 {
        registered::renew(tcp, &waits);
        return Err(Some(Directly::System));
    }
    registered::renew(tcp, &waits);
    remember(Taken { inode, own: found.own, peer: found.peer });
    offer.given(hop);
    Ok(())
}

/// A program's TCP socket.
struct Found {
    inode: u64,
    own: SocketAddr,
    peer: SocketAddr,
    /// Whether the server answers to who calls its address: nothing has gone over the socket, such
    /// as what one says to a proxy.
    is_fresh: bool,
    status: c_int,
    flags: c_int,
}

impl Found {
    /// `None`: it is no connected TCP socket.
    fn of(tcp: BorrowedFd<'_>) -> Option<Self> {
        if sockopt::socket_protocol(tcp).ok().flatten() != Some(ipproto::TCP) {
            return None;
        }
        let own = rustix::net::getsockname(tcp).ok()?.try_into().ok()?;
        let peer = rustix::net::getpeername(tcp).ok()??.try_into().ok()?;
        // SAFETY: it only asks for numbers.
        let status = unsafe { libc::fcntl(tcp.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        let flags = unsafe { libc::fcntl(tcp.as_raw_fd(), libc::F_GETFD) };
        if status < 0 || flags < 0 {
            return None;
        }
        let inode = fstat(tcp).ok()?.st_ino;
        Some(Self { inode, own, peer, is_fresh: is_fresh(tcp), status, flags })
    }

    fn close_on_exec(&self) -> c_int {
        if self.flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 }
    }

    /// The program's end, which waits as its socket did, and the manager's.
    fn pair(&self, tcp: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
        let (own, line) = UnixStream::pair()?;
        own.set_nonblocking(self.status & libc::O_NONBLOCK != 0)?;
        for option in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            let limit = sockopt::socket_timeout(tcp, option)?;
            sockopt::set_socket_timeout(&own, option, limit)?;
        }
        Ok((own.into(), line.into()))
    }

    /// A socket by which the server can be called again: in the program's network, from the same address,
    /// over the same device. Where that is not to be had there is none.
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
        let is_alike =
            [libc::SO_MARK, libc::SO_BINDTODEVICE].iter().all(|option| copy(tcp, &spare, *option));
        without_port(&spare);
        Ok((is_alike && rustix::net::bind(&spare, &from).is_ok()).then_some(spare))
    }
}

/// Has a port found when it is connected: most never are, and the ports of a machine are few. Where
/// that cannot be, one is found at once.
fn without_port(spare: &OwnedFd) {
    let yes: c_int = 1;
    let (at, bytes) = ((&raw const yes).cast(), size_of::<c_int>() as socklen_t);
    // SAFETY: as much is there as is said.
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

/// Sets an option of sockets as another socket has it, if it has it set. Returns whether it is the same now.
fn copy(from: BorrowedFd<'_>, to: &OwnedFd, option: c_int) -> bool {
    let mut value = [0_u8; 64];
    let mut bytes = value.len() as socklen_t;
    let into = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: there is room for as much as is said.
    let asked = unsafe {
        libc::getsockopt(from.as_raw_fd(), libc::SOL_SOCKET, option, into, &raw mut bytes)
    };
    let Some(value) = value.get(..bytes as usize).filter(|_| asked == 0) else { return false };
    if value.iter().all(|byte| *byte == 0) {
        return true;
    }
    // SAFETY: as much is there as is said.
    let set = unsafe {
        libc::setsockopt(to.as_raw_fd(), libc::SOL_SOCKET, option, value.as_ptr().cast(), bytes)
    };
    set == 0
}

/// Whether nothing has gone over a connection: by `tcpi_data_segs_in` and `tcpi_data_segs_out`. A kernel
/// that does not know is not believed.
fn is_fresh(tcp: BorrowedFd<'_>) -> bool {
    const DATA_SEGS: std::ops::Range<usize> = 152..160;
    let mut info = [0_u8; 256];
    let mut bytes = info.len() as socklen_t;
    let into = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: there is room for as much as is said.
    let asked = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(tcp.as_raw_fd(), level, option, into, &raw mut bytes)
    };
    asked == 0 && bytes as usize >= DATA_SEGS.end && info[DATA_SEGS].iter().all(|byte| *byte == 0)
}

/// What the manager is asked for. `None`: it cannot be put into words.
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
        identity: offer.identity,
        key: offer.key.clone(),
    })
}

/// A socket that was taken: the addresses are those that it had.
struct Taken {
    inode: u64,
    own: SocketAddr,
    peer: SocketAddr,
}

/// How many there are: while there are none, nothing that a program asks about sockets is looked at.
pub(crate) static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The newest last. A program that asks about a socket does so soon.
static SOCKETS: Mutex<VecDeque<Taken>> = Mutex::new(VecDeque::new());
const MOST: usize = 1_024;

fn sockets() -> MutexGuard<'static, VecDeque<Taken>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for who only asks: in a process that was forked while another thread had them, they never come
/// free.
fn sockets_soon() -> Option<MutexGuard<'static, VecDeque<Taken>>> {
    for _ in 0..TRIES {
        match SOCKETS.try_lock() {
            Ok(all) => return Some(all),
            Err(TryLockError::Poisoned(all)) => return Some(all.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

const TRIES: usize = 1_000;

fn remember(taken: Taken) {
    let mut all = sockets();
    if all.len() >= MOST {
        all.pop_front();
    }
    all.push_back(taken);
    TAKEN.store(all.len(), Ordering::Relaxed);
}

/// The addresses of the program's own socket: its, and the server's.
fn addresses(descriptor: RawFd) -> Option<(SocketAddr, SocketAddr)> {
    // SAFETY: if it is open, it is the program's; else it is an error.
    let found = fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
    let is_socket = found.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    let all = sockets_soon()?;
    let taken = all.iter().rev().find(|taken| is_socket && taken.inode == found.st_ino)?;
    Some((taken.own, taken.peer))
}

/// As the kernel answers: as much as there is room for, and how long it is.
///
/// # Safety
/// There is as much as is said, and at `bytes` stands how much room is at `to`.
unsafe fn answer((from, length): (*const u8, usize), to: *mut u8, bytes: *mut socklen_t) {
    // SAFETY: the caller vouches for it.
    let room = unsafe { bytes.read() };
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from, to, length.min(room as usize)) };
    // SAFETY: as above.
    unsafe { bytes.write(length as socklen_t) };
}

/// Answers what `getsockname` and `getpeername` would have said.
///
/// # Safety
/// As for them.
pub(crate) unsafe fn name(
    descriptor: RawFd,
    of_peer: bool,
    address: *mut libc::sockaddr,
    bytes: *mut socklen_t,
) -> bool {
    let Some((own, peer)) = addresses(descriptor) else { return false };
    let mut raw = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let length = write(if of_peer { peer } else { own }, &mut raw);
    // SAFETY: there are so many bytes, and the caller vouches for the rest.
    unsafe { answer((raw.as_ptr().cast(), length), address.cast(), bytes) };
    true
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
            // SAFETY: there is room for any address, and it has one's alignment.
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
            // SAFETY: as above.
            unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>()
        }
    }
}

/// Answers what `getsockopt` would have said of the kind of socket.
///
/// # Safety
/// As for it.
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
    // SAFETY: as above.
    unsafe { answer((said.as_ptr(), said.len()), value.cast(), bytes) };
    true
}

/// Whether the program asks about a socket that it has no more.
pub(crate) fn is_taken(descriptor: RawFd) -> bool {
    addresses(descriptor).is_some()
}
