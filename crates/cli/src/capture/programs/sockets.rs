//! The processes that have sockets: the inode of a socket in `/proc/net`, and the processes with a descriptor of it in
//! `/proc/PID/fd` (proc(5)).

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use nix::ifaddrs::getifaddrs;

use super::{Connection, Program};

/// The result of a look for the program at an end of a connection.
#[derive(Debug)]
pub(super) enum Lookup {
    One(Program),
    /// No socket has this end, or no process that may be looked into has the socket.
    NotYet,
    /// Several processes have the socket, such as both sides of a fork, or several sockets could be meant.
    Several,
    /// The end is not on this machine.
    Elsewhere,
}

/// Looks for the programs at both ends of each connection.
pub(super) fn programs(connections: &[Connection]) -> Vec<[Lookup; 2]> {
    let local = local_addresses();
    let is_local = |end: &SocketAddr| end.ip().is_loopback() || local.contains(&end.ip());
    let ends = connections.iter().flat_map(|(is_tcp, ends)| ends.map(|end| (*is_tcp, end)));
    let ports: HashSet<_> =
        ends.filter(|(_, end)| is_local(end)).map(|(is_tcp, end)| (is_tcp, end.port())).collect();
    let sockets = Sockets::with(&ports);
    let inodes = connections.iter().map(|(is_tcp, [first, second])| {
        [(first, second), (second, first)].map(|(own, other)| match is_local(own) {
            true => sockets.inode(*is_tcp, *own, *other),
            false => Inode::Elsewhere,
        })
    });
    let inodes: Vec<[Inode; 2]> = inodes.collect();
    let wanted = inodes.iter().flatten().filter_map(|inode| match inode {
        Inode::One(inode) => Some(*inode),
        _ => None,
    });
    let holders = Holders::of(&wanted.collect());
    inodes.into_iter().map(|ends| ends.map(|inode| holders.lookup(inode))).collect()
}

fn local_addresses() -> HashSet<IpAddr> {
    let all = getifaddrs().into_iter().flatten();
    let addresses = all.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    addresses.collect()
}

/// The socket of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inode {
    One(u64),
    None,
    Several,
    Elsewhere,
}

/// A socket: its own end, the other end, and its inode.
type Bound = (SocketAddr, SocketAddr, u64);

/// The sockets with ports of interest.
#[derive(Default)]
struct Sockets {
    tcp: HashMap<(SocketAddr, SocketAddr), u64>,
    udp: Vec<Bound>,
}

impl Sockets {
    /// Reads the tables that hold these ports, with true for TCP.
    fn with(ports: &HashSet<(bool, u16)>) -> Self {
        let mut sockets = Self::default();
        for (name, is_tcp) in [("tcp", true), ("tcp6", true), ("udp", false), ("udp6", false)] {
            if !ports.iter().any(|(wants_tcp, _)| *wants_tcp == is_tcp) {
                continue;
            }
            let Ok(table) = File::open(Path::new("/proc/net").join(name)) else { continue };
            let lines = BufReader::new(table).lines().map_while(Result::ok);
            let all = lines.filter_map(|line| socket(&line));
            let wanted = all.filter(|(own, ..)| ports.contains(&(is_tcp, own.port())));
            match is_tcp {
                true => sockets.tcp.extend(wanted.map(|(own, other, inode)| ((own, other), inode))),
                false => sockets.udp.extend(wanted),
            }
        }
        sockets
    }

    fn inode(&self, is_tcp: bool, own: SocketAddr, other: SocketAddr) -> Inode {
        if is_tcp {
            return self.tcp.get(&(own, other)).map_or(Inode::None, |inode| Inode::One(*inode));
        }
        let is_bound = |at: &SocketAddr| {
            at.port() == own.port() && (at.ip() == own.ip() || at.ip().is_unspecified())
        };
        let bound = self.udp.iter().filter(|(at, ..)| is_bound(at));
        let (connected, open): (Vec<&Bound>, Vec<&Bound>) = bound
            .filter(|(_, to, _)| *to == other || to.port() == 0)
            .partition(|(_, to, _)| *to == other);
        match (&connected[..], &open[..]) {
            ([(.., inode)], _) | ([], [(.., inode)]) => Inode::One(*inode),
            ([], []) => Inode::None,
            _ => Inode::Several,
        }
    }
}

/// Reads a line of a table. `None` for its head, and for a socket that no process has.
fn socket(line: &str) -> Option<Bound> {
    let mut words = line.split_whitespace().skip(1);
    let (own, other) = (address(words.next()?)?, address(words.next()?)?);
    let inode = words.nth(6)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((own, other, inode))
}

/// Reads `0100007F:01BB`: words of four bytes in the machine's order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = ip.as_bytes().chunks(8).map(|word| {
        let word = str::from_utf8(word).ok().filter(|word| word.len() == 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        // An IPv4 address of a socket for both.
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The processes with sockets, of those that may be looked into.
struct Holders(HashMap<u64, Vec<u32>>);

impl Holders {
    fn of(wanted: &HashSet<u64>) -> Self {
        let mut holders = HashMap::<u64, Vec<u32>>::new();
        if wanted.is_empty() {
            return Self(holders);
        }
        for process in processes() {
            let held: HashSet<u64> = sockets_of(process).filter(|it| wanted.contains(it)).collect();
            held.into_iter().for_each(|inode| holders.entry(inode).or_default().push(process));
        }
        Self(holders)
    }

    fn lookup(&self, inode: Inode) -> Lookup {
        let inode = match inode {
            Inode::One(inode) => inode,
            Inode::None => return Lookup::NotYet,
            Inode::Several => return Lookup::Several,
            Inode::Elsewhere => return Lookup::Elsewhere,
        };
        match self.0.get(&inode).map(Vec::as_slice) {
            None | Some([]) => Lookup::NotYet,
            Some([process]) => match name(*process) {
                // It still has it, so that the name is of no other process with its number.
                Some(name) if sockets_of(*process).any(|it| it == inode) => {
                    Lookup::One((*process, name.into()))
                }
                _ => Lookup::NotYet,
            },
            Some(_) => Lookup::Several,
        }
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the inodes of a process's sockets; none if it may not be looked into.
fn sockets_of(process: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

/// Returns the name of the file that a process executes.
fn name(process: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let name = path.file_name()?.to_string_lossy();
    // The file was replaced since.
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use rejoin_testkit::process::wait_until;

    use super::super::connection;
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_tables_are_read() {
        let line = "   1: 0100007F:01BB 00000000000000000000FFFF0A000002:9C40 01 00000000:00000000 \
                    00:00000000 00000000  1000        0 4711 1 0000000000000000 20 4 30 10 -1";
        let line =
            line.replace("00000000000000000000FFFF0A000002", "0000000000000000FFFF00000200000A");
        let (own, other, inode) = socket(&line).unwrap();
        assert_eq!((own, inode), ("127.0.0.1:443".parse().unwrap(), 4711));
        assert_eq!(other, "10.0.0.2:40000".parse().unwrap());
        for wrong in ["", "  sl  local_address rem_address st", &line.replace("4711", "0")] {
            assert_eq!(socket(wrong), None, "{wrong}");
        }
        for wrong in ["0100007F", "0100007:01BB", "0100007F:1FFFF", "é100007F:01BB", ":1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    /// Looks for the program at an end.
    fn look(is_tcp: bool, own: SocketAddr, other: SocketAddr) -> Lookup {
        let key = connection(is_tcp, own, other);
        let place = key.1.iter().position(|end| *end == own).unwrap();
        let [found] = <[_; 1]>::try_from(programs(&[key])).unwrap();
        found.into_iter().nth(place).unwrap()
    }

    #[test]
    fn a_socket_of_ours_is_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, other) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let exe = std::env::current_exe().unwrap();
        let exe = exe.file_name().and_then(|name| name.to_str()).unwrap();
        let ours = (std::process::id(), Arc::<str>::from(exe));
        let is_ours = |found: Lookup| matches!(found, Lookup::One(program) if program == ours);
        // Whatever another test starts has all sockets until it executes its program.
        wait_until("the client's end", || is_ours(look(true, own, other)));
        // Nobody has taken the server's end.
        assert!(matches!(look(true, other, own), Lookup::NotYet));
        let (server, _) = listener.accept().unwrap();
        wait_until("the server's end", || is_ours(look(true, other, own)));
        drop((client, server));
        wait_until("neither", || matches!(look(true, own, other), Lookup::NotYet));
        let elsewhere = "192.0.2.1:443".parse().unwrap();
        assert!(matches!(look(true, elsewhere, own), Lookup::Elsewhere));
    }

    #[test]
    fn a_socket_that_two_processes_have_is_of_neither() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, other) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let theirs = std::os::fd::OwnedFd::from(client.try_clone().unwrap());
        let sleep = Command::new("sleep").arg("60").stdin(Stdio::from(theirs)).spawn();
        let mut sleep = sleep.unwrap();
        assert!(matches!(look(true, own, other), Lookup::Several));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        wait_until("one process", || matches!(look(true, own, other), Lookup::One(_)));
    }

    #[test]
    fn of_two_sockets_on_a_port_the_connected_one_is_meant() {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = open.local_addr().unwrap();
        wait_until("the open one", || matches!(look(false, own, other), Lookup::One(_)));
        let sockets = |lines: &[(&str, &str, u64)]| Sockets {
            udp: lines
                .iter()
                .map(|(own, other, inode)| (own.parse().unwrap(), other.parse().unwrap(), *inode))
                .collect(),
            ..Sockets::default()
        };
        let (own, other) = ("10.0.0.1:443".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
        let open = ("0.0.0.0:443", "0.0.0.0:0", 1);
        let connected = ("10.0.0.1:443", "10.0.0.2:9", 2);
        let of_another = ("10.0.0.1:443", "10.0.0.2:8", 3);
        for (lines, inode) in [
            (&[open][..], Inode::One(1)),
            (&[open, connected, of_another], Inode::One(2)),
            (&[open, open], Inode::Several),
            (&[of_another], Inode::None),
        ] {
            assert_eq!(sockets(lines).inode(false, own, other), inode);
        }
    }
}
