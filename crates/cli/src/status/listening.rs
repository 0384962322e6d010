//! The addresses on which a process listens.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Returns the addresses on which a process listens over TCP, as a client on this machine reaches them. None if it may not be
/// read.
pub(crate) fn of(process: u32) -> Vec<SocketAddr> {
    let folder = Path::new("/proc").join(process.to_string());
    let links = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let own: BTreeSet<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let tables = ["net/tcp", "net/tcp6"].map(|name| fs::read_to_string(folder.join(name)));
    let tables = tables.map(Result::unwrap_or_default);
    let found = tables.iter().flat_map(|table| table.lines().filter_map(listener));
    found.filter(|(_, inode)| own.contains(*inode)).map(|(address, _)| address).collect()
}

/// Reads a line of `/proc/net/tcp` or `tcp6`: the address and the inode of a socket that listens.
fn listener(line: &str) -> Option<(SocketAddr, &str)> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    // Groups of four bytes, each in the order of this machine.
    let word = |index: usize| u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok();
    let bytes = |index| word(index).map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(bytes(0)?).into(),
        32 => {
            let all = [bytes(0)?, bytes(1)?, bytes(2)?, bytes(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(all).ok()?).into()
        }
        _ => return None,
    };
    let reached = match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTENS).then(|| (SocketAddr::new(reached, port), inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_that_listen_are_read() {
        let listens = "   0: 0100007F:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0";
        assert_eq!(listener(listens), Some((([127, 0, 0, 1], 443).into(), "4242")));
        let everywhere = listens.replace("0100007F", "00000000");
        assert_eq!(listener(&everywhere), Some((([127, 0, 0, 1], 443).into(), "4242")));
        let six = listens.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(
            listener(&six),
            Some((SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 443), "4242"))
        );
        assert_eq!(listener(&listens.replace(" 0A ", " 01 ")), None);
        assert_eq!(listener("  sl  local_address rem_address   st tx_queue rx_queue"), None);
    }
}
