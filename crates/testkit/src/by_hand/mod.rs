//! A TLS 1.3 client by hand (RFC 8446), for what no library would say about early data.
//!
//! It has one suite, TLS_AES_128_GCM_SHA256, and one group, X25519, and verifies no certificate.

mod keys;
mod messages;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey, Private};

use keys::{HASH_BYTES, Keys, Secret, derive, expand, extract, finished};
pub use messages::{Age, Binder, Offer, Share};
use messages::{hello, server_hello};

const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;
const ALERT: u8 = 21;
const CHANGE_CIPHER_SPEC: u8 = 20;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const END_OF_EARLY_DATA: u8 = 5;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const FINISHED: u8 = 20;
const EARLY_DATA: u16 = 42;
/// The time for which a server may say nothing.
const QUIET: Duration = Duration::from_secs(5);

/// A session that a server has issued.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub(super) identity: Vec<u8>,
    pub(super) age_add: u32,
    pub(super) psk: Secret,
    pub(super) got: Instant,
    pub early_bytes: u32,
}

impl Ticket {
    /// A ticket with which nobody has a session.
    pub fn of_nobody(&self) -> Self {
        Self { identity: vec![0x66; self.identity.len()], ..self.clone() }
    }
}

/// The end of a conversation before its aim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// An alert of this description.
    Alert(u8),
    Closed,
    /// The server sent something that makes no sense.
    Nonsense(&'static str),
}

/// The server's answer to a ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub resumed: bool,
    pub early_accepted: bool,
    /// True if it wanted another ClientHello first.
    pub retried: bool,
}

/// A connection.
pub struct Conversation {
    stream: TcpStream,
    share: PKey<Private>,
    /// The handshake's messages so far.
    messages: Vec<u8>,
    early_secret: Secret,
    early: Option<Keys>,
    client_handshake: Secret,
    master: Secret,
    sends: Option<Keys>,
    receives: Option<Keys>,
    /// The part of a message that was read.
    unread: Vec<u8>,
}

impl Conversation {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(QUIET)).expect("set");
        Self {
            stream,
            share: PKey::generate_x25519().expect("a key"),
            messages: Vec::new(),
            early_secret: [0; HASH_BYTES],
            early: None,
            client_handshake: [0; HASH_BYTES],
            master: [0; HASH_BYTES],
            sends: None,
            receives: None,
            unread: Vec::new(),
        }
    }

    /// Sends a ClientHello.
    pub fn hello(&mut self, offer: &Offer<'_>) {
        let share = self.share.raw_public_key().expect("32 bytes");
        let psk = offer.ticket.map_or([0; HASH_BYTES], |ticket| ticket.psk);
        self.early_secret = extract(&[0; HASH_BYTES], &psk);
        let message = hello(offer, &share, &self.messages, &self.early_secret);
        self.messages.extend_from_slice(&message);
        let early = derive(&self.early_secret, "c e traffic", &self.messages);
        self.early = Some(Keys::of(&early));
        self.record(HANDSHAKE, &message);
    }

    /// Sends a record in clear.
    pub fn record(&mut self, kind: u8, bytes: &[u8]) {
        let head = [&[kind, 3, 3][..], &(bytes.len() as u16).to_be_bytes()].concat();
        let _ = self.stream.write_all(&[&head, bytes].concat());
    }

    /// Sends early data.
    pub fn early(&mut self, bytes: &[u8]) {
        let keys = self.early.as_mut().expect("after a ClientHello");
        let record = keys.seal(APPLICATION, bytes);
        let _ = self.stream.write_all(&record);
    }

    /// Sends a record that no key opens, and that could be early data.
    pub fn garbage(&mut self, bytes: usize) {
        self.record(APPLICATION, &vec![0x5a; bytes]);
    }

    /// Reads the server's first flight. After a HelloRetryRequest it answers with this ClientHello.
    pub fn answer(&mut self, second: &Offer<'_>) -> Result<Answer, End> {
        let mut retried = false;
        let (hello, message) = loop {
            let message = self.message(SERVER_HELLO)?;
            let hello = server_hello(&message).ok_or(End::Nonsense("a ServerHello"))?;
            if !hello.is_retry {
                break (hello, message);
            }
            retried = true;
            // RFC 8446, section 4.4.1: the first ClientHello is its hash from now on.
            let first = keys::digest(&self.messages);
            self.messages = [&[254, 0, 0, HASH_BYTES as u8][..], &first, &message].concat();
            self.hello(second);
        };
        self.messages.extend_from_slice(&message);
        let secret = match hello.resumed {
            true => self.early_secret,
            false => extract(&[0; HASH_BYTES], &[0; HASH_BYTES]),
        };
        let share = hello.share.ok_or(End::Nonsense("no key share"))?;
        self.derive_handshake(&secret, &share)?;
        let early_accepted = self.rest_of_flight()?;
        Ok(Answer { resumed: hello.resumed, early_accepted, retried })
    }

    fn derive_handshake(&mut self, early_secret: &Secret, share: &[u8]) -> Result<(), End> {
        let peer = PKey::public_key_from_raw_bytes(share, Id::X25519);
        let peer = peer.map_err(|_| End::Nonsense("a key share"))?;
        let mut deriver = Deriver::new(&self.share).expect("a key");
        deriver.set_peer(&peer).map_err(|_| End::Nonsense("a key share"))?;
        let shared = deriver.derive_to_vec().map_err(|_| End::Nonsense("a key share"))?;
        let handshake = extract(&derive(early_secret, "derived", &[]), &shared);
        self.client_handshake = derive(&handshake, "c hs traffic", &self.messages);
        let server = derive(&handshake, "s hs traffic", &self.messages);
        self.receives = Some(Keys::of(&server));
        self.master = extract(&derive(&handshake, "derived", &[]), &[0; HASH_BYTES]);
        Ok(())
    }

    /// Reads up to the server's Finished. Returns true if early data was accepted.
    fn rest_of_flight(&mut self) -> Result<bool, End> {
        let mut accepted = false;
        loop {
            let message = self.any_message()?;
            self.messages.extend_from_slice(&message);
            match message[0] {
                ENCRYPTED_EXTENSIONS => accepted = messages::has_extension(&message, EARLY_DATA),
                FINISHED => return Ok(accepted),
                _ => {}
            }
        }
    }

    /// Says that there is no more early data.
    pub fn end_early(&mut self) {
        let message = [END_OF_EARLY_DATA, 0, 0, 0];
        self.messages.extend_from_slice(&message);
        let record = self.early.as_mut().expect("after a ClientHello").seal(HANDSHAKE, &message);
        let _ = self.stream.write_all(&record);
    }

    /// Ends the handshake.
    pub fn finish(&mut self) {
        let of_server = self.messages_of_server();
        let [client, server] = ["c ap traffic", "s ap traffic"]
            .map(|label| Keys::of(&derive(&self.master, label, of_server)));
        let data = finished(&self.client_handshake, &self.messages);
        let message = [&[FINISHED, 0, 0, HASH_BYTES as u8][..], &data].concat();
        let record = Keys::of(&self.client_handshake).seal(HANDSHAKE, &message);
        let _ = self.stream.write_all(&record);
        self.messages.extend_from_slice(&message);
        (self.sends, self.receives) = (Some(client), Some(server));
    }

    /// The messages up to the server's Finished: EndOfEarlyData may have followed.
    fn messages_of_server(&self) -> &[u8] {
        self.messages.strip_suffix(&[END_OF_EARLY_DATA, 0, 0, 0]).unwrap_or(&self.messages)
    }

    /// Sends data after the handshake.
    pub fn send(&mut self, bytes: &[u8]) {
        let record = self.sends.as_mut().expect("after the handshake").seal(APPLICATION, bytes);
        let _ = self.stream.write_all(&record);
    }

    /// Reads data until it ends so, and the sessions that come before.
    pub fn read_until(&mut self, end: &[u8]) -> Result<Vec<Ticket>, End> {
        let (mut answer, mut tickets) = (Vec::new(), Vec::new());
        while !answer.ends_with(end) {
            let (kind, content) = self.read_record()?;
            match kind {
                APPLICATION => answer.extend(content),
                HANDSHAKE => tickets.extend(self.tickets(&content)),
                _ => return Err(End::Nonsense("a record")),
            }
        }
        Ok(tickets)
    }

    fn tickets(&self, mut content: &[u8]) -> Vec<Ticket> {
        let resumption = derive(&self.master, "res master", &self.messages);
        let mut tickets = Vec::new();
        while let Some((message, rest)) = messages::split(content) {
            content = rest;
            if let Some(issued) =
                (message[0] == NEW_SESSION_TICKET).then(|| messages::ticket(message)).flatten()
            {
                tickets.push(Ticket {
                    identity: issued.identity,
                    age_add: issued.age_add,
                    psk: expand(&resumption, "resumption", &issued.nonce),
                    got: Instant::now(),
                    early_bytes: issued.early_bytes,
                });
            }
        }
        tickets
    }

    fn message(&mut self, kind: u8) -> Result<Vec<u8>, End> {
        let message = self.any_message()?;
        if message[0] == kind { Ok(message) } else { Err(End::Nonsense("another message")) }
    }

    fn any_message(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if let Some((message, rest)) = messages::split(&self.unread) {
                let message = message.to_vec();
                self.unread = rest.to_vec();
                return Ok(message);
            }
            let (kind, content) = self.read_record()?;
            if kind != HANDSHAKE {
                return Err(End::Nonsense("no handshake message"));
            }
            self.unread.extend(content);
        }
    }

    /// Reads a record, and opens it if it is sealed.
    fn read_record(&mut self) -> Result<(u8, Vec<u8>), End> {
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).map_err(|error| closed(&error))?;
            let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            self.stream.read_exact(&mut body).map_err(|error| closed(&error))?;
            let (kind, content) = match (head[0], &mut self.receives) {
                (CHANGE_CIPHER_SPEC, _) => continue,
                (APPLICATION, Some(keys)) => {
                    keys.open(&head, &body).ok_or(End::Nonsense("a record under other keys"))?
                }
                (kind, _) => (kind, body),
            };
            return match kind {
                ALERT => Err(End::Alert(content.get(1).copied().unwrap_or_default())),
                _ => Ok((kind, content)),
            };
        }
    }
}

fn closed(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => End::Nonsense("silence"),
        _ => End::Closed,
    }
}
