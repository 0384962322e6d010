//! A client's visit to a server of any protocol, and what came of it.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rejoin_testkit::site::Client;

/// The time that a server has for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The words of a protocol.
#[derive(Debug)]
pub(crate) struct Talk {
    /// Speaks without TLS, up to the handshake.
    pub(crate) before: fn(&mut TcpStream) -> io::Result<()>,
    /// The request, over TLS. Empty if the server speaks first.
    pub(crate) request: &'static [u8],
    /// A part of the answer to a client that is served.
    pub(crate) answer: &'static [u8],
    /// A request without TLS, and a part of the answer as long as the server is not ready, although it listens.
    pub(crate) early: Option<(&'static [u8], &'static [u8])>,
}

impl Talk {
    pub(crate) fn is_ready(&self, address: SocketAddr) -> bool {
        let Some((request, not_yet)) = self.early else { return true };
        let ask = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).map(|_| answer)
        };
        let has = |answer: io::Result<Vec<u8>>| {
            answer.is_ok_and(|answer| !answer.windows(not_yet.len()).any(|bytes| bytes == not_yet))
        };
        has(ask())
    }
}

/// The outcomes for TLS 1.2 and TLS 1.3.
pub(crate) type Both = [Tally; 2];

/// The outcomes of some visits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) visits: u32,
    pub(crate) refused: u32,
    pub(crate) resumed: u32,
}

impl FromIterator<Result<bool, String>> for Tally {
    fn from_iter<T: IntoIterator<Item = Result<bool, String>>>(visits: T) -> Self {
        visits.into_iter().fold(Self::default(), |tally, visit| Self {
            visits: tally.visits + 1,
            refused: tally.refused + u32::from(visit.is_err()),
            resumed: tally.resumed + u32::from(visit == Ok(true)),
        })
    }
}

impl Tally {
    pub(crate) fn word(self) -> String {
        match self {
            Self { visits, refused, .. } if refused == visits => "refused".to_owned(),
            Self { visits, resumed, .. } if resumed == visits => "yes".to_owned(),
            Self { refused: 0, resumed: 0, .. } => "no".to_owned(),
            Self { visits, resumed, refused: 0 } => format!("{resumed} of {visits}"),
            Self { visits, resumed, refused } => {
                format!("{resumed} of {visits}, {refused} refused")
            }
        }
    }
}

/// Makes a connection and a request. Returns true if the session was resumed, or why the client was refused.
pub(crate) fn visit(client: &mut Client, talk: &Talk) -> Result<bool, String> {
    attempt(client, talk).map_err(|error| error.to_string())
}

fn attempt(client: &Client, talk: &Talk) -> Result<bool, Box<dyn Error>> {
    const LONGEST_ANSWER: usize = 4_096;
    let mut stream = TcpStream::connect(client.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    (talk.before)(&mut stream)?;
    let mut tls = client.shake_hands_over(stream)?;
    tls.write_all(talk.request)?;
    let (mut answer, mut part) = (Vec::new(), [0; 512]);
    while !answer.windows(talk.answer.len()).any(|bytes| bytes == talk.answer) {
        let length = tls.read(&mut part)?;
        answer.extend_from_slice(&part[..length]);
        if length == 0 || answer.len() > LONGEST_ANSWER {
            return Err(String::from_utf8_lossy(&answer).into());
        }
    }
    // Without close_notify, OpenSSL would drop the session.
    let _ = tls.shutdown();
    Ok(tls.ssl().session_reused())
}

pub(crate) const HTTP: Talk = Talk {
    before: |_| Ok(()),
    request: b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n",
    answer: b" 200 OK\r\n",
    early: None,
};
/// A greeting comes first.
pub(crate) const FTP: Talk = Talk { request: b"", answer: b"220 ", ..HTTP };
pub(crate) const HELLO: Talk = Talk { request: b"", answer: b"hello", ..HTTP };
pub(crate) const REDIS: Talk = Talk { request: b"PING\r\n", answer: b"+PONG", ..HTTP };

/// Postfix and Dovecot greet everybody, and refuse the commands of clients without the certificate that they want.
pub(crate) const SMTP: Talk =
    Talk { request: b"EHLO localhost\r\nMAIL FROM:<>\r\nQUIT\r\n", answer: b"250 2.1.0", ..HTTP };
pub(crate) const IMAP: Talk =
    Talk { request: b"a LOGIN somebody secret\r\nb LOGOUT\r\n", answer: b"a OK", ..HTTP };

/// CONNECT, and the return code of CONNACK (MQTT 3.1.1, section 3).
pub(crate) const MQTT: Talk = Talk {
    request: b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc",
    answer: b"\x20\x02\x00\x00",
    ..HTTP
};

/// A binding request, and the beginning of its success (RFC 8489, section 5).
pub(crate) const STUN: Talk =
    Talk { request: b"\x00\x01\x00\x00\x21\x12\xa4\x42abcdefghijkl", answer: b"\x01\x01", ..HTTP };

const STARTUP: &[u8] = b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0";

/// `SSLRequest`, `StartupMessage`, and `AuthenticationOk` (PostgreSQL's "Message Formats").
pub(crate) const POSTGRES: Talk = Talk {
    before: |stream| {
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
        let mut answer = [0];
        stream.read_exact(&mut answer)
    },
    request: STARTUP,
    answer: b"R\0\0\0\x08\0\0\0\0",
    early: Some((STARTUP, b"starting up")),
};

/// The server's greeting, `SSLRequest`, `HandshakeResponse` and an error for an unknown user: "Access denied"
/// (MariaDB's "Connecting").
pub(crate) const MYSQL: Talk = Talk {
    before: |stream| {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let mut greeting = vec![0; usize::from(head[0]) + (usize::from(head[1]) << 8)];
        stream.read_exact(&mut greeting)?;
        stream.write_all(b"\x20\0\0\x01\x00\x8a\x08\0\0\0\0\x01\x21")?;
        stream.write_all(&[0; 23])
    },
    request: b"\x4c\0\0\x02\x00\x8a\x08\0\0\0\0\x01\x21\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        nobody_that_is_known\0\0mysql_native_password\0",
    answer: b"Access denied",
    early: None,
};
