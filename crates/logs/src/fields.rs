//! The names under which logs have what a plan needs, and the values of the servers.

/// A thing that a line may tell of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    Client,
    Agent,
    /// The version of TLS; empty or `-` without TLS.
    Tls,
    Reused,
    /// A number or text that is the same for all requests of a connection.
    Connection,
    /// The client's port, which is as good for a while.
    Port,
    /// The place of the request in its connection, from 1.
    Nth,
    /// The same from 0, as Apache counts.
    Kept,
}

/// The names, in lower case: first those of the documented formats, then those of servers' variables.
const NAMES: [(Field, &[&str]); 9] = [
    (
        Field::Time,
        &[
            "msec",
            "time_iso8601",
            "time_local",
            "time",
            "timestamp",
            "@timestamp",
            "ts",
            "datetime",
        ],
    ),
    (
        Field::Client,
        &["client", "remote_addr", "client_ip", "clientip", "remote_ip", "ip", "remote", "src"],
    ),
    (Field::Agent, &["agent", "http_user_agent", "user_agent", "useragent", "user-agent"]),
    (Field::Tls, &["tls", "ssl_protocol", "tls_version", "protocol_tls"]),
    (Field::Reused, &["reused", "ssl_session_reused", "ssl_session_resumed", "resumed"]),
    (Field::Connection, &["conn", "connection"]),
    (Field::Port, &["port", "remote_port", "client_port"]),
    (Field::Nth, &["nth", "connection_requests"]),
    (Field::Kept, &["kept"]),
];

impl Field {
    /// Returns the field of a name, and its rank among the names of that field: lower ones come first.
    pub(crate) fn of(name: &[u8]) -> Option<(Self, usize)> {
        NAMES.iter().find_map(|(field, names)| {
            let rank =
                names.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
            Some((*field, rank))
        })
    }
}

/// The TLS of a request, as far as its line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// The line does not tell.
    #[default]
    Unknown,
    /// The request came without TLS.
    Plain,
    /// TLS 1.2 or older.
    UpTo12,
    /// TLS 1.3.
    V13,
}

impl Tls {
    /// Reads what a server says of the version.
    pub(crate) fn of(value: &[u8]) -> Self {
        match value {
            b"" | b"-" => Self::Plain,
            b"TLSv1.3" => Self::V13,
            b"TLSv1" | b"TLSv1.0" | b"TLSv1.1" | b"TLSv1.2" | b"SSLv2" | b"SSLv3" => Self::UpTo12,
            _ => Self::Unknown,
        }
    }
}

/// Reads what a server says of resumption: nginx `r` or `.`, HAProxy `1` or `0`, Apache `Resumed` or `Initial`.
pub(crate) fn reused(value: &[u8]) -> Option<bool> {
    match value {
        b"r" | b"1" | b"Resumed" | b"true" => Some(true),
        b"." | b"0" | b"Initial" | b"false" => Some(false),
        _ => None,
    }
}

/// Reads a number of requests.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}
