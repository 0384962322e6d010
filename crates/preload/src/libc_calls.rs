//! The functions of the C library that a connection through the manager touches: what the program
//! sends, of which a ClientHello says which socket it means; and what it asks about a socket that it
//! has no more.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{RTLD_NEXT, c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use rejoin_abi::{Hooks, interposed};

use crate::client;
use crate::tunnels;

/// Checks that each function here has the type that the table says.
macro_rules! checked {
    ({} $file:literal { $($name:ident: $type:ty;)* }) => {
        $(const _: $type = $name;)*
    };
}

interposed!(libc => checked {});

/// The function of this name that comes after ours.
fn real(known: &AtomicUsize, name: &CStr) -> usize {
    let address = known.load(Ordering::Relaxed);
    if address != 0 {
        return address;
    }
    // SAFETY: the name ends.
    let found = unsafe { libc::dlsym(RTLD_NEXT, name.as_ptr()) } as usize;
    known.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($name:literal, $type:ty) => {{
        static KNOWN: AtomicUsize = AtomicUsize::new(0);
        let found = real(&KNOWN, $name);
        // SAFETY: what the C library has by this name; without it the program would not have started.
        unsafe { std::mem::transmute::<usize, $type>(found) }
    }};
}

/// The libraries for which there is anything at the end of these addresses.
fn concerned(
    of: impl Fn(&Hooks) -> *const AtomicUsize + Copy,
) -> impl Iterator<Item = &'static Hooks> {
    let is_any = move |hooks: &&'static Hooks| {
        // SAFETY: a static of the library, which stays loaded.
        unsafe { &*of(hooks) }.load(Ordering::Relaxed) > 0
    };
    client::loaded().filter(is_any)
}

/// The program sends these bytes.
fn sending(descriptor: c_int, bytes: *const c_void, length: size_t) {
    tunnels::note(descriptor, bytes, length);
    if concerned(|hooks| hooks.pending).next().is_none() || length < HELLO {
        return;
    }
    // SAFETY: the program vouches for them.
    if !may_be_hello(unsafe { &*bytes.cast::<[u8; HELLO]>() }) {
        return;
    }
    let tunnel_port = tunnels::port(descriptor);
    for hooks in concerned(|hooks| hooks.pending) {
        // SAFETY: as above.
        undisturbed(|| unsafe { (hooks.sending)(descriptor, tunnel_port, bytes, length) });
    }
}

/// Does something of which the program will not read in `errno`.
fn undisturbed(what: impl FnOnce()) {
    // What the program will ask for is not disturbed.
    // SAFETY: no arguments.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own.
    let before = unsafe { error.read() };
    what();
    // SAFETY: as above.
    unsafe { error.write(before) };
}

/// As above, in pieces.
///
/// # Safety
/// There are so many.
unsafe fn sending_pieces(descriptor: c_int, pieces: *const iovec, count: usize) {
    // What is said to a proxy is not gathered: without it the service has the proxy's port.
    if concerned(|hooks| hooks.pending).next().is_none() || pieces.is_null() {
        return;
    }
    // SAFETY: the caller vouches for them. A ClientHello is sent in one piece, or gathered here.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count.min(MOST_PIECES)) };
    let first = pieces.iter().find(|piece| piece.iov_len > 0);
    // SAFETY: as above.
    let is_hello = first.is_some_and(|piece| unsafe {
        piece.iov_len >= HELLO && may_be_hello(&*piece.iov_base.cast::<[u8; HELLO]>())
    });
    if !is_hello {
        return;
    }
    let bytes = pieces.iter().filter(|piece| !piece.iov_base.is_null()).flat_map(|piece| {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
    });
    let bytes: Vec<u8> = bytes.copied().take(MOST_BYTES).collect();
    sending(descriptor, bytes.as_ptr().cast(), bytes.len());
}

/// A record, and so a ClientHello in one, has no more.
const MOST_BYTES: usize = 5 + 16 * 1024;
/// Pieces of one.
const MOST_PIECES: usize = 64;

/// As much as tells a ClientHello: a record's header, and a message's kind.
const HELLO: usize = 6;

fn may_be_hello(bytes: &[u8; HELLO]) -> bool {
    matches!(bytes, [22, 3, _, _, _, 1])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    sending(descriptor, bytes, length);
    let real = real!(c"write", unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t);
    // SAFETY: the call that the program meant to make, here and below.
    unsafe { real(descriptor, bytes, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    sending(descriptor, bytes, length);
    let real = real!(c"send", unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t);
    // SAFETY: as above.
    unsafe { real(descriptor, bytes, length, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(descriptor: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program vouches for the message.
    if let Some(message) = unsafe { message.as_ref() } {
        // SAFETY: as above.
        unsafe { sending_pieces(descriptor, message.msg_iov, message.msg_iovlen) };
    }
    let real = real!(c"sendmsg", unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t);
    // SAFETY: as above.
    unsafe { real(descriptor, message, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program vouches for them.
    unsafe { sending_pieces(descriptor, pieces, usize::try_from(count).unwrap_or(0)) };
    let real = real!(c"writev", unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t);
    // SAFETY: as above.
    unsafe { real(descriptor, pieces, count) }
}

type Name = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// # Safety
/// As for the function of the C library.
unsafe fn name(
    real: Name,
    descriptor: c_int,
    of_peer: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let is_answerable = !address.is_null() && !bytes.is_null();
    for hooks in concerned(|hooks| hooks.taken).filter(|_| is_answerable) {
        // SAFETY: the program vouches for both.
        if unsafe { (hooks.name)(descriptor, of_peer, address.cast(), bytes) } != 0 {
            return 0;
        }
    }
    // SAFETY: the call that the program meant to make.
    unsafe { real(descriptor, address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(
    descriptor: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let real = real!(c"getsockname", Name);
    // SAFETY: the program's own.
    unsafe { name(real, descriptor, 0, address, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(
    descriptor: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let real = real!(c"getpeername", Name);
    // SAFETY: the program's own.
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
        // SAFETY: the program vouches for both.
        if unsafe { (hooks.option)(descriptor, option, value, bytes) } != 0 {
            return 0;
        }
    }
    type Get = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    let real = real!(c"getsockopt", Get);
    // SAFETY: the call that the program meant to make.
    unsafe { real(descriptor, level, option, value, bytes) }
}

/// What a program sets on its TCP socket the manager has no use for, and a Unix socket does not know.
/// But that the kernel is to encrypt (`TCP_ULP`) is refused, as a Unix socket does.
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
    // SAFETY: the call that the program meant to make.
    unsafe { real(descriptor, level, option, value, bytes) }
}
