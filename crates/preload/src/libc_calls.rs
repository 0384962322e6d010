//! The interposed functions of the C library: those that send, because a ClientHello that the program sends identifies
//! its socket; those that read, because the program may have to get the socket back; those that query or configure a
//! socket, because the program's own may have been handed over; and `epoll_ctl`. Those that wait are in
//! [`waits`](crate::waits).

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    RTLD_NEXT, c_int, c_void, epoll_event, fd_set, iovec, msghdr, nfds_t, pollfd, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use rejoin_abi::{Hooks, interposed, is_readable, undisturbed};

use crate::waits::{
    __poll_chk, __ppoll_chk, epoll_pwait, epoll_pwait2, epoll_wait, poll, ppoll, pselect, select,
};
use crate::{client, registrations, resets, tunnels};

/// Checks that each function here has the type that the table says.
macro_rules! checked {
    ({} $file:literal { $($name:ident: $type:ty;)* }) => {
        $(const _: $type = $name;)*
    };
}

interposed!(libc => checked {});

/// Returns the address of the function of this name that comes after ours.
pub(crate) fn look_up(known: &AtomicUsize, name: &CStr) -> usize {
    let address = known.load(Ordering::Relaxed);
    if address != 0 {
        return address;
    }
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(RTLD_NEXT, name.as_ptr()) } as usize;
    known.store(found, Ordering::Relaxed);
    found
}

/// Returns the function of this name that comes after ours, with its type.
macro_rules! real {
    ($name:literal, $type:ty) => {{
        static KNOWN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let found = crate::libc_calls::look_up(&KNOWN, $name);
        // SAFETY: the C library's function of this name has this type; without it the program would not have started.
        unsafe { std::mem::transmute::<usize, $type>(found) }
    }};
}

pub(crate) use real;

/// Returns the hooks of the adapters whose counter is above zero.
pub(crate) fn concerned(
    of: impl Fn(&Hooks) -> *const AtomicUsize + Copy,
) -> impl Iterator<Item = &'static Hooks> {
    let is_any = move |hooks: &&'static Hooks| {
        // SAFETY: the counter is a static of the adapter, which stays loaded.
        unsafe { &*of(hooks) }.load(Ordering::Relaxed) > 0
    };
    client::loaded().filter(is_any)
}

/// Examines bytes that the program is about to send. Returns true if they are sent already.
fn sending(descriptor: c_int, bytes: *const c_void, length: size_t) -> bool {
    if concerned(|hooks| hooks.pending).next().is_none() || !may_be_hello(bytes, length) {
        return false;
    }
    let tunnel_port = tunnels::port(descriptor);
    let mut is_sent = false;
    for hooks in concerned(|hooks| hooks.pending) {
        undisturbed(|| {
            let written = registrations::written;
            // SAFETY: the program passes `length` bytes to send.
            let done = unsafe { (hooks.sending)(descriptor, tunnel_port, written, bytes, length) };
            if done > 0 {
                resets::note(descriptor);
            }
            is_sent |= done == 2;
        });
    }
    is_sent
}

/// Examines bytes that the program is about to send in pieces. Returns how many are sent already.
///
/// # Safety
/// `pieces` is null, or points to `count` pieces that are valid.
unsafe fn sending_pieces(descriptor: c_int, pieces: *const iovec, count: usize) -> Option<ssize_t> {
    // A request to a proxy is not gathered. Without it the service has the proxy's port.
    let count = count.min(MOST_PIECES);
    let is_any = concerned(|hooks| hooks.pending).next().is_some();
    if !is_any || pieces.is_null() || !is_readable(pieces.cast(), count * size_of::<iovec>()) {
        return None;
    }
    // A ClientHello is sent in one piece, or gathered here.
    // SAFETY: the caller vouches for the pieces, which are there.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
    let first = pieces.iter().find(|piece| piece.iov_len > 0)?;
    if !may_be_hello(first.iov_base, first.iov_len) {
        return None;
    }
    let mut bytes: Vec<u8> = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        let more = piece.iov_len.min(MOST_BYTES - bytes.len());
        if !is_readable(piece.iov_base, more) {
            return None;
        }
        // SAFETY: the caller vouches for the piece, which is there.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), more) });
    }
    let is_sent = sending(descriptor, bytes.as_ptr().cast(), bytes.len());
    is_sent.then_some(bytes.len() as ssize_t)
}

/// The most bytes of a record, and so of a ClientHello in one.
const MOST_BYTES: usize = 5 + 16 * 1024;
/// The most bytes that are looked at if a ClientHello may be their beginning.
const MOST_SENT: usize = 1 << 20;
/// The most pieces of a ClientHello that are gathered.
const MOST_PIECES: usize = 64;

/// The bytes that identify a ClientHello: a record's header, and a message's type.
const HELLO: usize = 6;

/// Returns true if bytes that the program is about to send begin as a ClientHello does, and are there.
fn may_be_hello(bytes: *const c_void, length: size_t) -> bool {
    if !(HELLO..=MOST_SENT).contains(&length) || !is_readable(bytes, HELLO) {
        return false;
    }
    // SAFETY: the program passes `length` bytes to send, of which these are there.
    let begins = matches!(unsafe { &*bytes.cast::<[u8; HELLO]>() }, [22, 3, _, _, _, 1]);
    begins && is_readable(bytes, length)
}

type Write = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
type Send = unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type SendMessage = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
type WritePieces = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;

#[unsafe(no_mangle)]
unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    if sending(descriptor, bytes, length) {
        return length as ssize_t;
    }
    let (real, send) = (real!(c"write", Write), real!(c"send", Send));
    let sent = resets::written(
        descriptor,
        // SAFETY: the program's own call, to a socket and without a signal.
        || unsafe { send(descriptor, bytes, length, libc::MSG_NOSIGNAL) },
        // SAFETY: the program's own call, with its arguments.
        || unsafe { real(descriptor, bytes, length) },
    );
    // SAFETY: the kernel has read as many bytes.
    unsafe { tunnels::note(descriptor, bytes, sent) };
    sent
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if sending(descriptor, bytes, length) {
        return length as ssize_t;
    }
    let real = real!(c"send", Send);
    let sent = resets::written(
        descriptor,
        // SAFETY: the program's own call, without a signal.
        || unsafe { real(descriptor, bytes, length, flags | libc::MSG_NOSIGNAL) },
        // SAFETY: the program's own call, with its arguments.
        || unsafe { real(descriptor, bytes, length, flags) },
    );
    // SAFETY: the kernel has read as many bytes.
    unsafe { tunnels::note(descriptor, bytes, sent) };
    sent
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(descriptor: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let is_any = concerned(|hooks| hooks.pending).next().is_some();
    if is_any && is_readable(message.cast(), size_of::<msghdr>()) {
        // SAFETY: the message is the program's, and there.
        let msghdr { msg_iov, msg_iovlen, .. } = unsafe { *message };
        // SAFETY: the pieces are the program's, as many as it says.
        if let Some(sent) = unsafe { sending_pieces(descriptor, msg_iov, msg_iovlen) } {
            return sent;
        }
    }
    let real = real!(c"sendmsg", SendMessage);
    resets::written(
        descriptor,
        // SAFETY: the program's own call, without a signal.
        || unsafe { real(descriptor, message, flags | libc::MSG_NOSIGNAL) },
        // SAFETY: the program's own call, with its arguments.
        || unsafe { real(descriptor, message, flags) },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    let number = usize::try_from(count).unwrap_or(0);
    // SAFETY: the pieces are the program's, and `count` of them.
    let sent = unsafe { sending_pieces(descriptor, pieces, number) };
    if let Some(sent) = sent {
        return sent;
    }
    let (real, send) = (real!(c"writev", WritePieces), real!(c"sendmsg", SendMessage));
    resets::written(
        descriptor,
        || {
            // SAFETY: the structure has numbers and pointers, which may be null.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            (message.msg_iov, message.msg_iovlen) = (pieces.cast_mut(), number);
            // SAFETY: the program's own call, to a socket and without a signal.
            unsafe { send(descriptor, &raw const message, libc::MSG_NOSIGNAL) }
        },
        // SAFETY: the program's own call, with its arguments.
        || unsafe { real(descriptor, pieces, count) },
    )
}

/// Examines a descriptor before the program reads from it.
fn reading(descriptor: c_int) {
    for hooks in concerned(|hooks| hooks.waiting) {
        undisturbed(|| (hooks.reading)(descriptor));
    }
}

/// Replaces a function that reads from a descriptor.
macro_rules! reads {
    ($name:ident = $text:literal, ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(descriptor: c_int, $($argument: $type),*) -> ssize_t {
            reading(descriptor);
            let real = real!($text, unsafe extern "C" fn(c_int, $($type),*) -> ssize_t);
            // SAFETY: the program's own call, with its arguments.
            unsafe { real(descriptor, $($argument),*) }
        }
    };
}

reads!(read = c"read", (into: *mut c_void, room: size_t));
reads!(__read_chk = c"__read_chk", (into: *mut c_void, room: size_t, bytes: size_t));
reads!(readv = c"readv", (pieces: *const iovec, count: c_int));
reads!(recv = c"recv", (into: *mut c_void, room: size_t, flags: c_int));
reads!(__recv_chk = c"__recv_chk", (into: *mut c_void, room: size_t, bytes: size_t, flags: c_int));
reads!(recvmsg = c"recvmsg", (message: *mut msghdr, flags: c_int));
reads!(recvfrom = c"recvfrom", (into: *mut c_void, room: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t));
reads!(__recvfrom_chk = c"__recvfrom_chk", (into: *mut c_void, room: size_t, bytes: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t));

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    instance: c_int,
    what: c_int,
    descriptor: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Control = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    let real = real!(c"epoll_ctl", Control);
    // SAFETY: the program's own call, with its arguments.
    let done = unsafe { real(instance, what, descriptor, event) };
    if done == 0 {
        // The kernel does not look at the event of a registration that ends.
        let has_event = [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD].contains(&what);
        // SAFETY: the kernel has read the event.
        let event = has_event.then(|| unsafe { event.read_unaligned() });
        registrations::note(instance, what, descriptor, event);
    }
    done
}

type Name = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// Answers `getsockname` and `getpeername` for a socket that was handed over, or else calls `real`.
///
/// # Safety
/// The arguments are valid for `real`, which is one of both.
unsafe fn name(
    real: Name,
    descriptor: c_int,
    of_peer: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let is_answerable = !address.is_null() && !bytes.is_null();
    for hooks in concerned(|hooks| hooks.taken).filter(|_| is_answerable) {
        // SAFETY: the caller vouches for both pointers, which are not null.
        if unsafe { (hooks.name)(descriptor, of_peer, address.cast(), bytes) } != 0 {
            return 0;
        }
    }
    // SAFETY: the caller vouches for the arguments.
    unsafe { real(descriptor, address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(
    descriptor: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let real = real!(c"getsockname", Name);
    // SAFETY: the program's own call, with its arguments.
    unsafe { name(real, descriptor, 0, address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(
    descriptor: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let real = real!(c"getpeername", Name);
    // SAFETY: the program's own call, with its arguments.
    unsafe { name(real, descriptor, 1, address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    descriptor: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    let is_kind =
        level == libc::SOL_SOCKET && [libc::SO_DOMAIN, libc::SO_PROTOCOL].contains(&option);
    let is_answerable = is_kind && !value.is_null() && !bytes.is_null();
    for hooks in concerned(|hooks| hooks.taken).filter(|_| is_answerable) {
        // SAFETY: both pointers are the program's, and not null.
        if unsafe { (hooks.option)(descriptor, option, value, bytes) } != 0 {
            return 0;
        }
    }
    type Get = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    let real = real!(c"getsockopt", Get);
    // SAFETY: the program's own call, with its arguments.
    unsafe { real(descriptor, level, option, value, bytes) }
}

/// Accepts options of TCP and IP for a socket that was handed over: the manager does not need them, and a Unix socket
/// does not have them. Only encryption by the kernel (`TCP_ULP`) goes to the Unix socket, which refuses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    descriptor: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    let is_of_tcp = level == libc::IPPROTO_TCP && option != libc::TCP_ULP;
    let is_answerable = is_of_tcp || [libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level);
    let mut all = concerned(|hooks| hooks.taken).filter(|_| is_answerable);
    if all.any(|hooks| (hooks.is_taken)(descriptor) != 0) {
        return 0;
    }
    type Set = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    let real = real!(c"setsockopt", Set);
    // SAFETY: the program's own call, with its arguments.
    unsafe { real(descriptor, level, option, value, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_there_are_no_hello() {
        let (none, rights) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which stays.
        let pages = unsafe { libc::mmap(none, 8_192, rights, flags, -1, 0) };
        let second = pages.wrapping_byte_add(4_096);
        // SAFETY: a part of the mapping, which nobody uses.
        assert_eq!(unsafe { libc::mprotect(second, 4_096, libc::PROT_NONE) }, 0);
        let hello = second.wrapping_byte_sub(HELLO);
        // SAFETY: the end of the first page.
        unsafe { hello.cast::<[u8; HELLO]>().write([22, 3, 1, 0, 9, 1]) };
        assert!(may_be_hello(hello, HELLO));
        assert!(!may_be_hello(hello, HELLO + 1) && !may_be_hello(second, HELLO));
        assert!(!may_be_hello(hello.wrapping_byte_add(1), HELLO) && !may_be_hello(none, HELLO));
    }
}
