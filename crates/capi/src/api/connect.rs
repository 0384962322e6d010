//! The request for a connection from the TLS manager, and the description of the connection, as C structures.

use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::{c_char, c_int, size_t};
use rejoin_client::protocol::{
    Base64, Connect, Connected, DEADLINE_MS, EARLY_DATA_BYTES, EarlyData, Identity,
    MOST_DEADLINE_MS, Token, Trust,
};
use rejoin_client::{FIRST_BYTES, Manager, ended_well};

use super::failure::Failure;
use super::settings::text;
use super::sized;
use super::status::Status;

/// `flags`: do not verify the server. The connection neither uses nor leaves a session.
pub const REJOIN_UNVERIFIED: u64 = 1;

/// `flags`: the connection neither uses nor leaves a session.
pub const REJOIN_UNSHARED: u64 = 2;

/// `flags`: use the connected TCP socket in `socket` instead of connecting.
pub const REJOIN_OVER_SOCKET: u64 = 4;

/// `early_data`: no 0-RTT data was sent.
pub const REJOIN_EARLY_DATA_NOT_OFFERED: u64 = 0;

/// `early_data`: the server has accepted the 0-RTT data.
pub const REJOIN_EARLY_DATA_ACCEPTED: u64 = 1;

/// `early_data`: the server has rejected the 0-RTT data. Send it again if that is wanted.
pub const REJOIN_EARLY_DATA_REJECTED: u64 = 2;

/// `early_data` after a failure of `rejoin_connect`: 0-RTT data was sent, and the server may have
/// accepted it.
pub const REJOIN_EARLY_DATA_SENT: u64 = 3;

/// A request for a connection. Zero is a valid value of every field but `host` and `port`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinRequest {
    /// `sizeof(rejoin_request)`. It tells the library which version the program was compiled with.
    pub struct_size: size_t,
    /// The server's name or address. Its certificate must be valid for it.
    pub host: *const c_char,
    /// The TCP port, 1 to 65,535.
    pub port: u64,
    /// 0, or some of `REJOIN_UNVERIFIED`, `REJOIN_UNSHARED` and `REJOIN_OVER_SOCKET`.
    pub flags: u64,
    /// ALPN protocols, separated by commas, the preferred one first. Null: none.
    pub alpn: *const c_char,
    /// The certificates of the trusted authorities in PEM. Null: the system's.
    pub authorities: *const c_char,
    /// SHA-256 digests of certificates or public keys to trust instead, in hexadecimal, separated by
    /// commas. Null: none.
    pub pins: *const c_char,
    /// The client's certificates in PEM, its own first. Null: none.
    pub identity_chain: *const c_char,
    /// The client's private key in PEM, together with `identity_chain`.
    pub identity_key: *const c_char,
    /// The partition's label: sessions are shared only under the same label. Null: the empty label.
    pub label: *const c_char,
    /// 0-RTT data, sent with the first flight if a session allows it. An attacker can replay it to the
    /// server.
    pub early_data: *const u8,
    /// The length of `early_data`: at most 16 KiB.
    pub early_data_bytes: size_t,
    /// The time limit for resolving, connecting and the handshake together. 0: ten seconds.
    pub deadline_ms: u64,
    /// The TCP socket for `REJOIN_OVER_SOCKET`. It stays open, and the program must close it.
    pub socket: c_int,
    /// The path of the manager's socket. Null: the user's own manager, else the system's.
    pub manager: *const c_char,
    /// The first bytes for the server, sent as soon as the handshake has succeeded. The manager's
    /// settings may list them as safe to repeat: then they go as 0-RTT data. Not together with
    /// `early_data`, nor with `REJOIN_OVER_SOCKET`.
    pub first: *const u8,
    /// The length of `first`: at most 16 KiB.
    pub first_bytes: size_t,
}

impl RejoinRequest {
    pub(super) const ZERO: Self = Self {
        struct_size: 0,
        host: std::ptr::null(),
        port: 0,
        flags: 0,
        alpn: std::ptr::null(),
        authorities: std::ptr::null(),
        pins: std::ptr::null(),
        identity_chain: std::ptr::null(),
        identity_key: std::ptr::null(),
        label: std::ptr::null(),
        early_data: std::ptr::null(),
        early_data_bytes: 0,
        deadline_ms: 0,
        socket: -1,
        manager: std::ptr::null(),
        first: std::ptr::null(),
        first_bytes: 0,
    };

    /// Copies the program's structure.
    ///
    /// # Safety
    /// `given` is null, or points to as many bytes as its `struct_size` says.
    pub(super) unsafe fn read(given: *const Self) -> Result<Self, Failure> {
        // SAFETY: the caller vouches for `given`; any bytes are valid numbers and pointers.
        unsafe { sized::read(given, Self::ZERO, "request", "rejoin_request") }
    }

    /// Asks the manager for the connection.
    ///
    /// # Safety
    /// Each text is null or ends in a 0; the data is null or has its length; the socket is open.
    pub(super) unsafe fn connect(&self) -> Result<(OwnedFd, RejoinSession), Failure> {
        // SAFETY: the caller vouches for the text.
        let manager =
            unsafe { text(self.manager) }.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let manager = manager.map_or_else(Manager::find, Manager::at);
        // SAFETY: the caller vouches for the texts and the data.
        let wanted = unsafe { self.wanted() }?;
        // SAFETY: the caller vouches for the data.
        let first = unsafe { data("first", self.first, self.first_bytes, FIRST_BYTES) }?;
        let stream = if self.flags & REJOIN_OVER_SOCKET == 0 {
            manager.connect_sending(&wanted, first)?
        } else if !first.is_empty() {
            return Err(Failure::bad("first and REJOIN_OVER_SOCKET exclude each other"));
        } else if self.socket < 0 {
            return Err(Failure::bad(format!("socket = {}: it is no descriptor", self.socket)));
        } else {
            // SAFETY: the caller vouches for the socket, which is not negative.
            let socket = unsafe { BorrowedFd::borrow_raw(self.socket) };
            manager.connect_over(socket, &wanted)?
        };
        let (socket, session, manager) = stream.into_parts();
        Ok((socket.into(), RejoinSession::of(&session, &manager)))
    }

    /// Returns true if something may be sent as 0-RTT data.
    pub(super) fn may_send_early(&self) -> bool {
        self.early_data_bytes > 0 || self.first_bytes > 0
    }

    /// Makes the request to the manager.
    ///
    /// # Safety
    /// The same as [`Self::connect`].
    unsafe fn wanted(&self) -> Result<Connect, Failure> {
        const KNOWN: u64 = REJOIN_UNVERIFIED | REJOIN_UNSHARED | REJOIN_OVER_SOCKET;
        if self.flags & !KNOWN != 0 {
            return Err(Failure::bad(format!("flags = {}: some are unknown", self.flags)));
        }
        // SAFETY: the caller vouches for the texts.
        let words = |words| unsafe { string(words) };
        let host = words(self.host)?.ok_or_else(|| Failure::null("host"))?;
        let port = u16::try_from(self.port).ok().and_then(std::num::NonZeroU16::new);
        let port = port.ok_or_else(|| Failure::bad(format!("port = {}: 1 to 65535", self.port)))?;
        let mut wanted = Connect::new(parsed(&host)?, port);
        let alpn = words(self.alpn)?.unwrap_or_default();
        wanted.alpn = listed(&alpn)?;
        wanted.trust = match (words(self.authorities)?, words(self.pins)?) {
            (None, None) if self.flags & REJOIN_UNVERIFIED != 0 => Trust::None,
            (None, None) => Trust::System,
            (Some(pem), None) if self.flags & REJOIN_UNVERIFIED == 0 => Trust::Bundle(pem),
            (None, Some(pins)) if self.flags & REJOIN_UNVERIFIED == 0 => {
                Trust::Pins(listed(&pins)?)
            }
            _ => {
                return Err(Failure::bad(
                    "authorities, pins and REJOIN_UNVERIFIED exclude each other",
                ));
            }
        };
        wanted.identity = match (words(self.identity_chain)?, words(self.identity_key)?) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(Identity { chain, key: key.into() }),
            _ => return Err(Failure::bad("identity_chain and identity_key: set both or none")),
        };
        wanted.share = self.flags & REJOIN_UNSHARED == 0;
        wanted.label = parsed(&words(self.label)?.unwrap_or_default())?;
        wanted.deadline_ms = match self.deadline_ms {
            0 => DEADLINE_MS,
            ms if ms <= u64::from(MOST_DEADLINE_MS) => ms as u32,
            ms => {
                return Err(Failure::bad(format!(
                    "deadline_ms = {ms}: at most {MOST_DEADLINE_MS}"
                )));
            }
        };
        let (early, bytes) = (self.early_data, self.early_data_bytes);
        // SAFETY: the caller vouches for the data.
        let early = unsafe { data("early_data", early, bytes, EARLY_DATA_BYTES) }?;
        wanted.early_data = (!early.is_empty()).then(|| Base64(early.to_vec().into()));
        Ok(wanted)
    }
}

/// Returns the program's data, which may be as long as `most`.
///
/// # Safety
/// `at` is null, or has so many bytes.
unsafe fn data<'a>(
    name: &str,
    at: *const u8,
    bytes: size_t,
    most: usize,
) -> Result<&'a [u8], Failure> {
    match bytes {
        0 => Ok(&[]),
        _ if at.is_null() => Err(Failure::null(name)),
        _ if bytes > most => Err(Failure::bad(format!("{name}: at most {most} bytes"))),
        // SAFETY: the caller vouches for the length of the data, which is not null.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, bytes) }),
    }
}

/// The manager's description of a connection. Texts end in a 0; a text without a value is empty.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinSession {
    /// `sizeof(rejoin_session)`. It tells the library which version the program was compiled with.
    pub struct_size: size_t,
    /// 1 if a session was resumed, 0 after a full handshake.
    pub resumed: u64,
    /// `REJOIN_EARLY_DATA_NOT_OFFERED`, `_ACCEPTED`, `_REJECTED` or `_SENT`.
    pub early_data: u64,
    /// The connection's identifier, for `rejoin_ended_well`.
    pub connection: [c_char; 33],
    /// The reason why a session was resumed or not: a word of docs/manager-protocol.md.
    pub why: [c_char; 31],
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: [c_char; 16],
    /// The cipher suite.
    pub cipher: [c_char; 64],
    /// The group of the key exchange.
    pub group: [c_char; 32],
    /// The protocol that ALPN negotiated.
    pub alpn: [c_char; 256],
    /// The server's address and port.
    pub peer: [c_char; 64],
    /// The other server name whose session was resumed.
    pub session_of: [c_char; 256],
    /// The SHA-256 of the server's own certificate, in hexadecimal.
    pub certificate: [c_char; 65],
    /// The path of the manager's socket.
    pub manager: [c_char; 111],
}

impl RejoinSession {
    const ZERO: Self = Self {
        struct_size: 0,
        resumed: 0,
        early_data: REJOIN_EARLY_DATA_NOT_OFFERED,
        connection: [0; _],
        why: [0; _],
        version: [0; _],
        cipher: [0; _],
        group: [0; _],
        alpn: [0; _],
        peer: [0; _],
        session_of: [0; _],
        certificate: [0; _],
        manager: [0; _],
    };

    /// The description after a failure, if 0-RTT data may have been sent.
    pub(super) const LEFT_EARLY: Self = Self { early_data: REJOIN_EARLY_DATA_SENT, ..Self::ZERO };

    fn of(session: &Connected, manager: &Manager) -> Self {
        let mut own = Self { resumed: session.resumed.into(), ..Self::ZERO };
        own.early_data = match session.early_data {
            EarlyData::NotOffered => REJOIN_EARLY_DATA_NOT_OFFERED,
            EarlyData::Accepted => REJOIN_EARLY_DATA_ACCEPTED,
            EarlyData::Rejected => REJOIN_EARLY_DATA_REJECTED,
            EarlyData::Sent => REJOIN_EARLY_DATA_SENT,
        };
        fill(&mut own.connection, &session.connection.to_string());
        fill(&mut own.why, session.why.name());
        fill(&mut own.version, &session.version);
        fill(&mut own.cipher, &session.cipher);
        fill(&mut own.group, session.group.as_deref().unwrap_or_default());
        fill(&mut own.alpn, session.alpn.as_deref().unwrap_or_default());
        fill(&mut own.peer, &session.peer);
        fill(&mut own.session_of, session.session_of.as_deref().unwrap_or_default());
        let certificate = session.chain.first().map(|own| own.sha256.to_string());
        fill(&mut own.certificate, &certificate.unwrap_or_default());
        let place = manager.sockets().next().and_then(|path| path.to_str());
        fill(&mut own.manager, place.unwrap_or_default());
        own
    }

    /// Checks that [`write`](Self::write) will succeed.
    ///
    /// # Safety
    /// `target` is null, or points to a `size_t`.
    pub(super) unsafe fn check(target: *const Self) -> Result<(), Failure> {
        if target.is_null() {
            return Ok(());
        }
        // SAFETY: the caller vouches for `target`, which is not null.
        unsafe { sized::room(target, "rejoin_session") }.map(drop)
    }

    /// Writes as many fields as the program has room for, if it wants them.
    ///
    /// # Safety
    /// `target` is null, or points to as many bytes as its `struct_size` says.
    pub(super) unsafe fn write(self, target: *mut Self) -> Result<(), Failure> {
        if target.is_null() {
            return Ok(());
        }
        // SAFETY: the caller vouches for `target`, which is not null.
        unsafe { sized::write(self, target, "session", "rejoin_session") }
    }

    /// Asks the manager how the connection ended.
    ///
    /// # Safety
    /// `given` is null, or points to as many bytes as its `struct_size` says.
    pub(super) unsafe fn ended_well(given: *const Self) -> Result<(), Failure> {
        // SAFETY: the caller vouches for `given`; any bytes are valid numbers.
        let session = unsafe { sized::read(given, Self::ZERO, "session", "rejoin_session") }?;
        let connection: Token = parsed(&filled(&session.connection)?)?;
        let manager = Manager::at(filled(&session.manager)?);
        ended_well(&manager, connection)
            .map_err(|error| Failure::new(Status::RejoinTruncated, error.to_string()))
    }
}

/// Copies as much of the text as there is room for. The last byte stays 0.
fn fill<const BYTES: usize>(field: &mut [c_char; BYTES], text: &str) {
    for (place, byte) in field[..BYTES - 1].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
}

fn filled(field: &[c_char]) -> Result<String, Failure> {
    let bytes: Vec<u8> = field.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).ok().and_then(|text| text.to_str().ok());
    let none = || Failure::bad("session: give the one that rejoin_connect filled");
    text.map(str::to_owned).ok_or_else(none)
}

/// Copies a text, if it is not null.
///
/// # Safety
/// `given` is null, or ends in a 0.
unsafe fn string(given: *const c_char) -> Result<Option<String>, Failure> {
    // SAFETY: the caller vouches for `given`.
    let Some(bytes) = (unsafe { text(given) }) else { return Ok(None) };
    let text = String::from_utf8(bytes.to_vec());
    text.map(Some).map_err(|_| Failure::bad("a text of the request is not UTF-8"))
}

fn parsed<T: std::str::FromStr<Err = String>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(Failure::bad)
}

fn listed<T: std::str::FromStr<Err = String>>(text: &str) -> Result<Vec<T>, Failure> {
    text.split(',').filter(|word| !word.is_empty()).map(parsed).collect()
}

impl From<rejoin_client::Error> for Failure {
    fn from(error: rejoin_client::Error) -> Self {
        let sent_early = error.early_data_may_have_left();
        Self::new(Status::of_connecting(&error), error.to_string()).after_early_data(sent_early)
    }
}
