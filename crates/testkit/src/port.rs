//! TCP ports that nobody else is given.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use crate::process::wait_until;

/// The sockets that hold reserved ports.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 for a server that cannot choose one itself, reserved until this process
/// ends.
///
/// A socket stays bound to it and does not listen. The kernel gives the port to nobody who asks for
/// any; a server that sets `SO_REUSEADDR`, as all do, may bind it by number and listen. Until one
/// does, connections are refused.
pub fn reserve() -> u16 {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = getsockname(&socket).expect("an address");
    let address = SocketAddrV4::try_from(address).expect("IPv4");
    RESERVED.lock().expect("no panic").push(socket);
    address.port()
}

/// Waits until somebody listens on this port of 127.0.0.1.
pub fn wait_until_open(port: u16) {
    wait_until(&format!("a server on port {port}"), || is_open(port));
}

/// True if somebody listens on this port of 127.0.0.1.
pub fn is_open(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::process::wait_for;

    #[test]
    fn a_reserved_port_can_be_listened_on_and_is_given_to_nobody() {
        let ports: Vec<u16> = (0..50).map(|_| reserve()).collect();
        let others: Vec<_> = (0..500)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
            .collect();
        let taken = |listener: &TcpListener| {
            ports.contains(&listener.local_addr().expect("an address").port())
        };
        assert!(!others.iter().any(taken));
        for port in ports {
            assert!(!is_open(port));
            // Twice: a server may be started again.
            for _ in 0..2 {
                // The kernel may take a moment to forget the connection to the first one.
                let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
                let _server = wait_for("the port", bind);
                wait_until_open(port);
            }
        }
    }
}
