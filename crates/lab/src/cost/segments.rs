//! The kernel's counts of one TCP connection (`tcp(7)`, `TCP_INFO`).

use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// TCP segments of a connection, those without data too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Segments {
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Segments {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let mut told = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and the kernel writes `bytes` bytes at most.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                told.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all fields are integers, which were zeroed, and the kernel wrote some.
        let told = unsafe { told.assume_init() };
        Ok(Self { sent: told.tcpi_segs_out.into(), received: told.tcpi_segs_in.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_has_segments_both_ways() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("ours")).expect("there");
        let (mut server, _) = listener.accept().expect("a client");
        let before = Segments::of(&client).expect("told");
        client.write_all(b"ping").expect("written");
        server.read_exact(&mut [0; 4]).expect("read");
        server.write_all(b"pong").expect("written");
        client.read_exact(&mut [0; 4]).expect("read");
        let after = Segments::of(&client).expect("told");
        assert!(before.sent > 0 && before.received > 0, "{before:?}");
        assert!(after.sent > before.sent && after.received > before.received, "{after:?}");
    }
}
