//! A line of a log, and the formats that it may have.
//!
//! - nginx's and Apache's *combined* and *common*, with a virtual host in front or without, and after it any number of
//!   `name=value`: `… "agent" tls=TLSv1.3 reused=r conn=17 nth=1`.
//! - HAProxy's `option httplog`, `httpslog` and `tcplog`.
//! - JSON: one object, whose members have names of [`fields`](crate::fields).
//!
//! What syslog puts in front of a line is passed over.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;
use siphasher::sip::SipHasher24;

use crate::fields::{Field, Tls, number, reused};
use crate::time::{self, Moment};

/// A request, as far as its line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The time, in milliseconds since 1970.
    pub time_ms: u64,
    /// False if the time is without a zone and was read as UTC.
    pub has_zone: bool,
    /// The client's address, hashed.
    pub address: u64,
    /// The client's program, hashed.
    pub agent: Option<u64>,
    /// The TLS.
    pub tls: Tls,
    /// True if the connection resumed a session.
    pub reused: Option<bool>,
    /// The connection, hashed.
    pub connection: Option<u64>,
    /// True if that is the client's port, which another connection may have had before.
    pub connection_is_port: bool,
    /// True if it is the first request of its connection.
    pub is_first: Option<bool>,
    /// True if a field of TLS, resumption or place has a value that is not understood. It counts as not told.
    pub has_odd_value: bool,
}

/// The reason for which a line is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Why {
    /// It is longer than [`LONGEST_LINE_BYTES`](crate::LONGEST_LINE_BYTES).
    TooLong,
    /// It has no time that is understood.
    NoTime,
    /// It names no client.
    NoClient,
    /// A time and a client are there, but not the request and its status.
    NoRequest,
    /// It begins like JSON and is none.
    NoJson,
}

impl Why {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::TooLong, Self::NoTime, Self::NoClient, Self::NoRequest, Self::NoJson];

    /// Returns the reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "longer than 64 KiB",
            Self::NoTime => "no time that is understood",
            Self::NoClient => "no client",
            Self::NoRequest => "no request and status after the time",
            Self::NoJson => "not one object in JSON",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A parser of lines, which hashes clients under its key.
#[derive(Clone)]
pub struct Parser {
    key: [u8; 16],
}

/// The key is not shown.
impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser").finish_non_exhaustive()
    }
}

/// The texts that are hashed, so that equal ones of different kinds differ.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Address = 1,
    Name,
    Agent,
    Connection,
    Port,
}

/// The most brackets in which a time is sought.
const MOST_BRACKETS: usize = 8;

impl Parser {
    /// Makes a parser. The key keeps the hashes from being turned back: draw it for each run.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// Returns the reason if it is malformed.
    pub fn parse(&self, line: &[u8]) -> Result<Entry, Why> {
        let line = line.trim_ascii();
        match json_from(line).map(|from| (from, self.json(&line[from..]))) {
            // What follows a blank may be a word of a text.
            None | Some((1.., Err(Why::NoJson))) => self.text(line),
            Some((_, read)) => read,
        }
    }

    fn json(&self, line: &[u8]) -> Result<Entry, Why> {
        let Ok(Value::Object(members)) = serde_json::from_slice(line) else {
            return Err(Why::NoJson);
        };
        let mut told = Told::default();
        for (name, value) in &members {
            match value {
                Value::String(text) => told.add(name.as_bytes(), text.as_bytes(), self),
                Value::Number(number) => {
                    told.add(name.as_bytes(), number.to_string().as_bytes(), self)
                }
                Value::Bool(is) => {
                    told.add(name.as_bytes(), if *is { b"true" } else { b"false" }, self)
                }
                _ => {}
            }
        }
        told.entry()
    }

    fn text(&self, line: &[u8]) -> Result<Entry, Why> {
        let (before, at, after) = around_time(line).ok_or(Why::NoTime)?;
        let mut told = Told { time: Some((0, at)), in_brackets: true, ..Told::default() };
        // HAProxy's times have no zone, and the port is part of the address.
        let (address, port) = address(before, !at.has_zone).ok_or(Why::NoClient)?;
        told.client = Some((0, self.client(address)));
        let mut tokens = Tokens(after);
        match tokens.next() {
            Some(Token::Quoted(_)) => self.combined(&mut told, tokens)?,
            Some(Token::Bare(frontend)) if port.is_some() => {
                self.haproxy(&mut told, frontend, tokens)?;
            }
            _ => return Err(Why::NoRequest),
        }
        if let Some(port) = port {
            told.port = told.port.or_else(|| Some(self.hash(Kind::Port, port)));
        }
        told.entry()
    }

    /// Reads what follows the request in the combined format, which is the request's status, and what follows that.
    fn combined(&self, told: &mut Told, mut tokens: Tokens<'_>) -> Result<(), Why> {
        let status = tokens.next().and_then(Token::bare).and_then(number);
        status.filter(|status| *status < 1_000).ok_or(Why::NoRequest)?;
        let mut quoted = 0;
        for token in tokens {
            match token {
                Token::Quoted(text) => {
                    quoted += 1;
                    if quoted == 2 {
                        told.add(b"agent", text, self);
                    }
                }
                Token::Bare(text) => told.pair(text, self),
            }
        }
        Ok(())
    }

    /// Reads what follows the frontend in HAProxy's formats. TLS is told by a `~` after its name.
    fn haproxy(&self, told: &mut Told, frontend: &[u8], tokens: Tokens<'_>) -> Result<(), Why> {
        let (mut is_haproxy, mut in_headers) = (false, false);
        for (at, token) in tokens.enumerate() {
            let Token::Bare(text) = token else { continue };
            // Headers that are captured have what a client wrote. A brace of its own is escaped.
            in_headers |= text.starts_with(b"{");
            if in_headers {
                in_headers = !text.ends_with(b"}");
                continue;
            }
            // The backend and the server.
            is_haproxy |= at == 0 && text.contains(&b'/');
            let parts = || text.split(|byte| *byte == b'/');
            // `option httpslog` ends with errors and resumption, then name, version and cipher.
            let is_version = |part: &&[u8]| part.starts_with(b"TLSv1");
            if let Some(version) = parts().skip(1).find(is_version) {
                told.tls = Some((0, Tls::of(version)));
            } else if parts().count() == 5 && parts().nth(1).is_some_and(|part| part.len() == 16) {
                keep(&mut told.reused, 0, parts().nth(4).and_then(reused));
            }
            told.pair(text, self);
        }
        let tls = if frontend.ends_with(b"~") { Tls::Unknown } else { Tls::Plain };
        told.tls = told.tls.filter(|_| tls != Tls::Plain).or(Some((0, tls)));
        is_haproxy.then_some(()).ok_or(Why::NoRequest)
    }

    /// Hashes the first address of a list, in whatever form it is written, or a name.
    fn client(&self, text: &[u8]) -> Client {
        let Some((address, port)) = first_address(text) else {
            return Client { address: self.hash(Kind::Name, text), port: None };
        };
        let address = match address.to_canonical() {
            IpAddr::V4(address) => self.hash(Kind::Address, &address.octets()),
            IpAddr::V6(address) => self.hash(Kind::Address, &address.octets()),
        };
        // In a list it is the port of a connection to the first proxy, which need not be the one to this server.
        let port = port.filter(|_| !text.contains(&b','));
        Client { address, port: port.map(|port| self.hash(Kind::Port, port.as_bytes())) }
    }

    fn hash(&self, kind: Kind, text: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&[kind as u8]);
        hasher.write(text);
        hasher.finish()
    }

    /// Hashes two hashes.
    pub(crate) fn both(&self, one: u64, other: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(one);
        hasher.write_u64(other);
        hasher.finish()
    }
}

/// Returns the start of an object that a header of syslog, a container's name or its time may precede.
fn json_from(line: &[u8]) -> Option<usize> {
    let begins = |at: &usize| *at == 0 || line[..*at].ends_with(b" ");
    let from = line.iter().position(|byte| *byte == b'{').filter(begins)?;
    (from == 0 || line.ends_with(b"}")).then_some(from)
}

/// Finds the time between brackets, and returns what is before and after it.
fn around_time(line: &[u8]) -> Option<(&[u8], Moment, &[u8])> {
    let opened = line.iter().enumerate().filter(|(_, byte)| **byte == b'[').map(|(at, _)| at);
    opened.take(MOST_BRACKETS).find_map(|open| {
        let rest = &line[open + 1..];
        let close = rest.iter().take(40).position(|byte| *byte == b']')?;
        Some((&line[..open], time::any(&rest[..close])?, &rest[close + 1..]))
    })
}

/// Finds the client in what precedes the time. With `with_port`, the last word is an address and a port. Else it is the
/// word before the identity and the user, if that is an address: others may stand in front, of a host that syslog names
/// or of a virtual host. Or else it is the last address, unless a name has the client's place. Of a list of addresses
/// (`client, proxy`, as in `X-Forwarded-For`) it is the first. A client can forge what is in front of such a list, which
/// makes a plan worse, and decides nothing.
fn address(before: &[u8], with_port: bool) -> Option<(&[u8], Option<&[u8]>)> {
    let words = || before.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if with_port && let Some(last) = words().next_back() {
        let colon = last.iter().rposition(|byte| *byte == b':');
        let port = colon.map(|at| (&last[..at], &last[at + 1..]));
        if let Some((address, port)) = port.filter(|(_, port)| number(port).is_some()) {
            return Some((address, Some(port)));
        }
    }
    // What ends with a comma is not the last of its list.
    let is_address = |word: &&[u8]| !word.ends_with(b",") && first_address(word).is_some();
    let back = || words().rev().enumerate();
    let in_place = back().nth(2).filter(|(_, word)| is_address(word));
    let named = before_identity(back());
    let last = || back().find(|(_, word)| is_address(word));
    // A header of syslog, between whose host and the line is a tag with a colon or, of RFC 5424, several words.
    // And an address before a name is a virtual host's if it has a port from which no client comes.
    let is_no_prefix = |(at, word): &(usize, &[u8])| {
        named.is_none_or(|(name, _)| {
            let is_tag = |(_, word): (usize, &[u8])| word.ends_with(b":");
            let port = first_address(word).and_then(|(_, port)| port?.parse::<u16>().ok());
            let is_virtual_host = *at == name + 1 && port.is_some_and(|port| port < 1_024);
            *at < name + 5 && !is_virtual_host && !back().take(*at).skip(name + 1).any(is_tag)
        })
    };
    let client = in_place.or_else(|| last().filter(is_no_prefix)).or(named);
    let (at, word) = client.or_else(|| back().nth(2)).or_else(|| back().last())?;
    let listed = words().rev().skip(at + 1).take_while(|word| word.ends_with(b","));
    Some((listed.filter(|word| first_address(word).is_some()).last().unwrap_or(word), None))
}

/// Finds the first address of a list whose parts are between commas, with the port behind it if there is one.
fn first_address(list: &[u8]) -> Option<(IpAddr, Option<&str>)> {
    list.split(|byte| *byte == b',').find_map(|part| address_and_port(part.trim_ascii()))
}

/// Reads an address: alone, in brackets (version 6), and either with a port behind it. Without brackets, what may be the last
/// group of an address is no port.
fn address_and_port(text: &[u8]) -> Option<(IpAddr, Option<&str>)> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse() {
        return Some((address, None));
    }
    let (address, port) = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(bracketed) => {
            let (address, port) = bracketed?;
            let address = address.parse::<Ipv6Addr>().ok()?;
            if port.is_empty() {
                return Some((address.into(), None));
            }
            (address.into(), port.strip_prefix(':')?)
        }
        None => {
            let (address, port) = text.rsplit_once(':')?;
            (address.parse().ok()?, port)
        }
    };
    let is_port = number(port.as_bytes()).is_some_and(|port| u16::try_from(port).is_ok());
    is_port.then_some((address, Some(port)))
}

/// Finds the word before the identity, if that is not told, as nearly always, and written as `-`. The words come from the
/// last on, each with its place; the last is the user, which may have several.
fn before_identity<'a>(back: impl Iterator<Item = (usize, &'a [u8])>) -> Option<(usize, &'a [u8])> {
    let mut from_identity = back.skip_while(|(_, word)| *word != b"-");
    from_identity.find(|(_, word)| *word != b"-").filter(|(at, _)| *at >= 2)
}

/// A word of a line, or what is between quotes.
enum Token<'a> {
    Bare(&'a [u8]),
    Quoted(&'a [u8]),
}

impl<'a> Token<'a> {
    fn bare(self) -> Option<&'a [u8]> {
        match self {
            Self::Bare(text) => Some(text),
            Self::Quoted(_) => None,
        }
    }
}

/// The words of a line. A backslash before a quote keeps it from ending the text. A word that has a text in quotes after `=` ends
/// behind it.
struct Tokens<'a>(&'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let text = self.0.trim_ascii_start();
        let Some(quoted) = text.strip_prefix(b"\"") else {
            let end = end_of_word(text);
            self.0 = &text[end..];
            return (end > 0).then(|| Token::Bare(&text[..end]));
        };
        let mut escaped = false;
        let ends = |byte: &u8| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        };
        let end = quoted.iter().position(ends);
        self.0 = end.map_or(&[], |end| &quoted[end + 1..]);
        Some(Token::Quoted(&quoted[..end.unwrap_or(quoted.len())]))
    }
}

fn end_of_word(text: &[u8]) -> usize {
    let (mut is_quoted, mut escaped) = (false, false);
    let mut before = 0;
    let ends = |byte: &u8| {
        let byte = *byte;
        is_quoted = match (is_quoted, byte) {
            (true, b'"') => escaped,
            (true, _) => true,
            (false, _) => byte == b'"' && before == b'=',
        };
        escaped = is_quoted && byte == b'\\' && !escaped;
        before = byte;
        !is_quoted && byte.is_ascii_whitespace()
    };
    let end = text.iter().position(ends);
    // A quote that nothing closes is no quote.
    let to_blank = || text.iter().position(u8::is_ascii_whitespace);
    end.or_else(|| is_quoted.then(to_blank)?).unwrap_or(text.len())
}

/// A client, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Client {
    address: u64,
    /// The port behind the address.
    port: Option<u64>,
}

/// The fields that a line told, each with the rank of its name: of two names of a field, the lower rank counts.
#[derive(Default)]
struct Told {
    time: Option<(usize, Moment)>,
    /// True if the line is a text, which has its time in brackets.
    in_brackets: bool,
    client: Option<(usize, Client)>,
    agent: Option<u64>,
    tls: Option<(usize, Tls)>,
    reused: Option<(usize, bool)>,
    connection: Option<u64>,
    port: Option<u64>,
    is_first: Option<bool>,
    has_odd_value: bool,
}

impl Told {
    /// Adds `name=value`. The value may be in quotes, and a comma or semicolon behind it.
    fn pair(&mut self, text: &[u8], parser: &Parser) {
        let text = text.strip_suffix(b",").or_else(|| text.strip_suffix(b";")).unwrap_or(text);
        if let Some(equals) = text.iter().position(|byte| *byte == b'=') {
            let value = &text[equals + 1..];
            let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            self.add(&text[..equals], quoted.unwrap_or(value), parser);
        }
    }

    fn add(&mut self, name: &[u8], value: &[u8], parser: &Parser) {
        let Some((field, rank)) = Field::of(name) else { return };
        let nothing = matches!(value, b"" | b"-");
        match field {
            Field::Tls => {
                let tls = Tls::of(value);
                self.has_odd_value |= tls == Tls::Unknown;
                keep(&mut self.tls, rank, Some(tls));
            }
            _ if nothing => {}
            Field::Time => {
                let has_zone = self.time.as_ref().is_some_and(|(_, at)| at.has_zone);
                let read = time::any(value);
                // A time in brackets that has a zone is kept unless this one is finer.
                if !(self.in_brackets && has_zone) || name.eq_ignore_ascii_case(b"msec") {
                    keep(&mut self.time, rank, read);
                }
            }
            Field::Client => keep(&mut self.client, rank, Some(parser.client(value))),
            Field::Agent => self.agent = Some(parser.hash(Kind::Agent, value)),
            Field::Reused => {
                let reused = reused(value);
                self.has_odd_value |= reused.is_none();
                keep(&mut self.reused, rank, reused);
            }
            // The header of this name has no number: keep-alive, close, Upgrade.
            Field::Connection if !value.iter().any(u8::is_ascii_digit) => {}
            Field::Connection => self.connection = Some(parser.hash(Kind::Connection, value)),
            Field::Port => self.port = Some(parser.hash(Kind::Port, value)),
            Field::Nth | Field::Kept => {
                let place = number(value);
                self.has_odd_value |= place.is_none();
                let first = u64::from(field == Field::Nth);
                self.is_first = place.map(|place| place <= first);
            }
        }
    }

    fn entry(self) -> Result<Entry, Why> {
        let (_, Moment { ms: time_ms, has_zone }) = self.time.ok_or(Why::NoTime)?;
        let (_, client) = self.client.ok_or(Why::NoClient)?;
        let port = self.port.or(client.port);
        Ok(Entry {
            time_ms,
            has_zone,
            address: client.address,
            agent: self.agent,
            tls: self.tls.map(|(_, tls)| tls).unwrap_or_default(),
            reused: self.reused.map(|(_, reused)| reused),
            connection: self.connection.or(port),
            connection_is_port: self.connection.is_none() && port.is_some(),
            is_first: self.is_first,
            has_odd_value: self.has_odd_value,
        })
    }
}

/// Keeps a value if there is none of a name that comes before.
fn keep<T>(kept: &mut Option<(usize, T)>, rank: usize, value: Option<T>) {
    let Some(value) = value else { return };
    if kept.as_ref().is_none_or(|(of, _)| rank <= *of) {
        *kept = Some((rank, value));
    }
}

#[cfg(test)]
mod tests;
