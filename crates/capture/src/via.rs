//! The protocol spoken on a connection before its first TLS record.
//!
//! A few bytes at the beginning of a segment identify the protocol, or the command that asks for
//! TLS does. Ports are ignored. Unrecognised bytes from only one side are no protocol: an upgrade
//! to TLS takes a request and a response.

use serde::Serialize;

use crate::observation::Side;

/// The number of segments inspected before TLS, per connection.
const MOST_SEGMENTS: u8 = 16;
/// The number of bytes inspected per segment.
const LOOK_BYTES: usize = 512;

/// The protocol spoken before TLS on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Via {
    /// STARTTLS in SMTP (RFC 3207) or LMTP.
    Smtp,
    /// STARTTLS in IMAP (RFC 9051, 6.2.1).
    Imap,
    /// STLS in POP3 (RFC 2595, 4).
    Pop3,
    /// STARTTLS in NNTP (RFC 4642).
    Nntp,
    /// STARTTLS in IRC.
    Irc,
    /// STARTTLS in ManageSieve (RFC 5804, 2.2).
    Sieve,
    /// STARTTLS in a protocol that the capture does not show.
    Starttls,
    /// AUTH TLS in FTP (RFC 4217).
    Ftp,
    /// The extended operation StartTLS of LDAP (RFC 4511, 4.14).
    Ldap,
    /// An SSLRequest of PostgreSQL.
    Postgresql,
    /// The greeting of MySQL or MariaDB.
    Mysql,
    /// PRELOGIN packets of TDS (MS-TDS, 2.2.6.5), in which the handshake lies.
    Tds,
    /// A connection request of RDP (MS-RDPBCGR, 2.2.1.1).
    Rdp,
    /// STARTTLS in XMPP (RFC 6120, 5).
    Xmpp,
    /// CONNECT to an HTTP proxy (RFC 9110, 9.3.6).
    Connect,
    /// SOCKS, version 4 or 5 (RFC 1928).
    Socks,
    /// A PROXY header (haproxy's PROXY protocol), which names the client of a balancer.
    Proxy,
    /// OpenVPN, which carries TLS in control packets of its own.
    Tunnel,
    /// Anything else.
    Other,
}

impl Via {
    /// Returns true if the client speaks TLS to the server all the same, unchanged.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::Socks | Self::Proxy)
    }
}

/// The exchange before TLS.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Preface {
    known: Option<Via>,
    spoke: [bool; 2],
    is_proxied: bool,
    segments: u8,
}

impl Preface {
    /// Takes bytes that are not TLS.
    pub(crate) fn observe(&mut self, side: Side, bytes: &[u8]) {
        if let Some(spoke) = self.spoke.get_mut(side) {
            *spoke = true;
        }
        if matches!(self.known, None | Some(Via::Starttls)) && self.segments < MOST_SEGMENTS {
            self.segments += 1;
            let found = recognise(bytes.get(..LOOK_BYTES).unwrap_or(bytes));
            self.known = found.or(self.known);
        }
    }

    /// Notes that TLS comes in packets of a tunnel.
    pub(crate) fn tunnelled(&mut self) {
        self.known = Some(Via::Tunnel);
    }

    /// Notes a PROXY header.
    pub(crate) fn proxied(&mut self) {
        self.is_proxied = true;
    }

    /// The protocol, if there was one.
    pub(crate) fn via(&self) -> Option<Via> {
        let other = || (self.spoke == [true; 2]).then_some(Via::Other);
        self.known.or_else(other).or_else(|| self.is_proxied.then_some(Via::Proxy))
    }
}

/// Returns the length of a request for TLS at the beginning of a segment, or of the answer to one, where it is known
/// without what came before.
pub(crate) fn request_length(bytes: &[u8]) -> Option<usize> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    const LONGEST_HEAD_BYTES: usize = 8 << 10;
    /// The capability `CLIENT_SSL`, in the second byte of the flags.
    const CLIENT_SSL: u8 = 8;
    match bytes {
        [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f, ..] => Some(8),
        // The answer of PostgreSQL.
        [b'S'] | [b'S', 22, 3, ..] => Some(1),
        // An SSLRequest of MySQL: 32 bytes in packet 1.
        [32, 0, 0, 1, _, flags, ..] if flags & CLIENT_SSL != 0 => Some(36),
        _ if starts_with(bytes, b"CONNECT ") || starts_with(bytes, b"HTTP/1.") => {
            let head = bytes.get(..LONGEST_HEAD_BYTES).unwrap_or(bytes);
            let end = head.windows(END_OF_HEAD.len()).position(|end| end == END_OF_HEAD)?;
            Some(end + END_OF_HEAD.len())
        }
        _ => None,
    }
}

fn recognise(bytes: &[u8]) -> Option<Via> {
    binary(bytes).or_else(|| greeting(bytes)).or_else(|| command(bytes))
}

fn binary(bytes: &[u8]) -> Option<Via> {
    const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
    match bytes {
        [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f, ..] => Some(Via::Postgresql),
        // A BER SEQUENCE that contains the operation's name.
        [0x30, ..] if contains(bytes, START_TLS) => Some(Via::Ldap),
        // A method list of the stated length; a request to connect or bind.
        [5, count, methods @ ..] if *count > 0 && methods.len() == usize::from(*count) => {
            Some(Via::Socks)
        }
        [5, 1..=3, 0, 1 | 3 | 4, ..] => Some(Via::Socks),
        [4, 1 | 2, _, _, _, _, _, _, .., 0] => Some(Via::Socks),
        // Protocol 10 and a version in digits, in packet 0.
        [_, _, 0, 0, 10, b'0'..=b'9', ..] => Some(Via::Mysql),
        // A packet of type PRELOGIN with its length, and a list of options that begins with the version.
        [0x12, 0 | 1, high, low, 0, 0, _, 0, 0, ..]
            if usize::from(u16::from_be_bytes([*high, *low])) == bytes.len() =>
        {
            Some(Via::Tds)
        }
        // TPKT and a connection request of X.224.
        [3, 0, _, _, _, 0xe0, ..] => Some(Via::Rdp),
        _ => None,
    }
}

/// Recognises the first line of a server.
fn greeting(bytes: &[u8]) -> Option<Via> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    if starts_with(line, b"* OK") || starts_with(line, b"* PREAUTH") {
        return Some(Via::Imap);
    }
    if starts_with(line, b"+OK") {
        return Some(Via::Pop3);
    }
    if starts_with(line, b"382 ") {
        return Some(Via::Nntp);
    }
    if starts_with(line, b"\"IMPLEMENTATION\"") {
        return Some(Via::Sieve);
    }
    if line.first() == Some(&b':') && (contains(line, b" NOTICE ") || contains(line, b" 670 ")) {
        return Some(Via::Irc);
    }
    let is_ready = starts_with(line, b"220 ") || starts_with(line, b"220-");
    match is_ready {
        true if contains(line, b"SMTP") || contains(line, b"LMTP") => Some(Via::Smtp),
        true if contains(line, b"FTP") => Some(Via::Ftp),
        _ => None,
    }
}

/// Recognises the first or the last command of a client.
fn command(bytes: &[u8]) -> Option<Via> {
    const COMMANDS: [(&[u8], Via); 16] = [
        (b"CONNECT ", Via::Connect),
        (b"EHLO ", Via::Smtp),
        (b"HELO ", Via::Smtp),
        (b"LHLO ", Via::Smtp),
        (b"STARTTLS\r", Via::Starttls),
        (b"CAP LS", Via::Irc),
        (b"NICK ", Via::Irc),
        (b"AUTH TLS", Via::Ftp),
        (b"AUTH SSL", Via::Ftp),
        (b"STLS", Via::Pop3),
        (b"CAPA\r", Via::Pop3),
        (b"<?xml", Via::Xmpp),
        (b"<stream:", Via::Xmpp),
        (b"<starttls", Via::Xmpp),
        (b"<proceed", Via::Xmpp),
        (b"234 ", Via::Ftp),
    ];
    let known = COMMANDS.iter().find(|(word, _)| starts_with(bytes, word));
    known.map(|(_, via)| *via).or_else(|| imap_command(bytes))
}

/// Recognises an IMAP command, which follows a tag.
fn imap_command(bytes: &[u8]) -> Option<Via> {
    let mut words = bytes.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let tag = words.next()?;
    let is_tag = !tag.is_empty() && tag.len() <= 16 && tag.iter().all(u8::is_ascii_alphanumeric);
    let is_known = |word: &[u8]| {
        word.eq_ignore_ascii_case(b"STARTTLS") || word.eq_ignore_ascii_case(b"CAPABILITY")
    };
    (is_tag && words.next().is_some_and(is_known)).then_some(Via::Imap)
}

fn starts_with(bytes: &[u8], word: &[u8]) -> bool {
    bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(said: &[(Side, &[u8])]) -> Option<Via> {
        let mut preface = Preface::default();
        said.iter().for_each(|(side, bytes)| preface.observe(*side, bytes));
        preface.via()
    }

    #[test]
    fn what_asks_for_tls_does_not_name_the_protocol() {
        let asked: (Side, &[u8]) = (0, b"STARTTLS\r\n");
        assert_eq!(via(&[asked, (1, b"220 2.0.0 Ready\r\n")]), Some(Via::Starttls));
        assert_eq!(via(&[(0, b"EHLO me\r\n"), asked]), Some(Via::Smtp));
        assert_eq!(via(&[(1, b"200 news\r\n"), asked, (1, b"382 go\r\n")]), Some(Via::Nntp));
        assert_eq!(via(&[asked, (1, b":irc 670 * :STARTTLS\r\n")]), Some(Via::Irc));
        assert_eq!(via(&[(1, b"\"IMPLEMENTATION\" \"x\"\r\n"), asked]), Some(Via::Sieve));
    }
}
