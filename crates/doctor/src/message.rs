//! A server's handshake messages, as far as resumption needs them (RFC 5246, RFC 5077, RFC 8446). Pure.

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A ServerHello.
    ServerHello {
        /// The length of its session id in bytes, at most 32; 0 if the server offers no resumption by session id.
        session_id_bytes: u8,
        /// True if it takes a key that the client offers, which is how TLS 1.3 resumes.
        takes_key: bool,
    },
    /// A NewSessionTicket.
    Ticket(NewTicket),
    /// The EncryptedExtensions of TLS 1.3.
    EncryptedExtensions {
        /// True if the client's early data is accepted (RFC 8446, section 4.2.10).
        accepts_early_data: bool,
    },
    /// A request for a client certificate.
    CertificateRequest,
}

/// A NewSessionTicket. The ticket is what a client sends in clear when it returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTicket {
    /// The lifetime that the server announces, in seconds. 0 over TLS 1.2: the client decides.
    pub lifetime_s: u32,
    /// The ticket, at most 65,535 bytes.
    pub ticket: Vec<u8>,
    /// The most early data that the server takes with it, in bytes. `None`: none.
    pub early_data_bytes: Option<u32>,
}

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE_REQUEST: u8 = 13;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
/// The longest session id.
const ID_BYTES: u8 = 32;

impl Message {
    /// Reads a whole message with its header. `None`: it is of another type, or malformed.
    pub fn read(bytes: &[u8], is_tls13: bool) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (kind, length) = (rest.number(1)?, rest.number(3)?);
        let mut body = Bytes(rest.take(length)?);
        match u8::try_from(kind).ok()? {
            SERVER_HELLO => {
                body.take(2 + 32)?;
                let session_id_bytes = u8::try_from(body.vector(1)?.0.len()).ok()?;
                // The suite and the compression.
                let takes_key = body.take(2 + 1).is_some() && has_extension(body, PRE_SHARED_KEY);
                let hello = Self::ServerHello { session_id_bytes, takes_key };
                (session_id_bytes <= ID_BYTES).then_some(hello)
            }
            NEW_SESSION_TICKET => NewTicket::read(body, is_tls13).map(Self::Ticket),
            ENCRYPTED_EXTENSIONS => {
                let accepts_early_data = has_extension(body, EARLY_DATA);
                Some(Self::EncryptedExtensions { accepts_early_data })
            }
            CERTIFICATE_REQUEST => Some(Self::CertificateRequest),
            _ => None,
        }
    }
}

/// Returns true if the extensions of a message, of which this is the rest, have one of this type.
fn has_extension(mut rest: Bytes<'_>, wanted: u16) -> bool {
    let Some(mut extensions) = rest.vector(2) else { return false };
    let mut kinds = std::iter::from_fn(|| {
        let kind = extensions.number(2)?;
        extensions.vector(2).map(|_| kind)
    });
    kinds.any(|kind| kind == usize::from(wanted))
}

impl NewTicket {
    fn read(mut body: Bytes<'_>, is_tls13: bool) -> Option<Self> {
        let lifetime_s = u32::try_from(body.number(4)?).ok()?;
        if is_tls13 {
            // The number that hides the ticket's age, and the nonce.
            body.take(4)?;
            body.vector(1)?;
        }
        let ticket = body.vector(2)?.0.to_vec();
        let mut early_data_bytes = None;
        if is_tls13 {
            let mut extensions = body.vector(2)?;
            while !extensions.0.is_empty() {
                let kind = extensions.number(2)?;
                let mut value = extensions.vector(2)?;
                if kind == usize::from(EARLY_DATA) {
                    early_data_bytes = Some(u32::try_from(value.number(4)?).ok()?);
                }
            }
        }
        let early_data_bytes = early_data_bytes.filter(|bytes| *bytes > 0);
        // Over TLS 1.2 an empty ticket means none (RFC 5077, section 3.3).
        (!ticket.is_empty()).then_some(Self { lifetime_s, ticket, early_data_bytes })
    }
}

/// Bytes that are read from the front.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a number of at most four bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Reads a vector behind its length, which takes this many bytes.
    fn vector(&mut self, bytes: usize) -> Option<Self> {
        let length = self.number(bytes)?;
        self.take(length).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind], &length[1..], body].concat()
    }

    #[test]
    fn a_ticket_of_each_version_is_read() {
        let old = message(4, &[0, 0, 1, 44, 0, 3, 7, 8, 9]);
        let wanted = NewTicket { lifetime_s: 300, ticket: vec![7, 8, 9], early_data_bytes: None };
        assert_eq!(Message::read(&old, false), Some(Message::Ticket(wanted.clone())));
        let new = [
            &[0, 0, 1, 44, 1, 2, 3, 4, 1, 0, 0, 3, 7, 8, 9, 0, 8][..],
            &[0, 42, 0, 4, 0, 0, 64, 0],
        ];
        let new = message(4, &new.concat());
        let wanted = NewTicket { early_data_bytes: Some(16_384), ..wanted };
        assert_eq!(Message::read(&new, true), Some(Message::Ticket(wanted)));
        for length in 0..new.len() {
            assert_eq!(Message::read(&new[..length], true), None, "{length}");
        }
        assert_eq!(Message::read(&message(4, &[0, 0, 1, 44, 0, 0]), false), None);
    }

    #[test]
    fn a_hello_tells_the_length_of_its_id() {
        for length in [0, 32] {
            let body = [&[3, 3][..], &[1; 32], &[length], &[5; 32], &[0x13, 1, 0]].concat();
            let read = Message::read(&message(2, &body), false);
            let hello = Message::ServerHello { session_id_bytes: length, takes_key: false };
            assert_eq!(read, Some(hello));
        }
        let long = [&[3, 3][..], &[1; 32], &[33], &[5; 33]].concat();
        assert_eq!(Message::read(&message(2, &long), false), None);
    }

    #[test]
    fn extensions_tell_what_the_server_takes() {
        let version = [0, 43, 0, 2, 3, 4];
        let key = [0, 41, 0, 2, 0, 0];
        let early = [0, 42, 0, 0];
        for (extensions, takes_key, accepts_early_data) in [
            (&[&version[..], &key].concat()[..], true, false),
            (&[&version[..], &early].concat(), false, true),
            (&version, false, false),
            (&key[..5], false, false),
        ] {
            let extensions = [&[0, extensions.len() as u8][..], extensions].concat();
            let head = [&[3, 3][..], &[1; 32], &[0], &[0x13, 1, 0]].concat();
            let hello = message(2, &[&head[..], &extensions].concat());
            let wanted = Message::ServerHello { session_id_bytes: 0, takes_key };
            assert_eq!(Message::read(&hello, true), Some(wanted));
            let encrypted = Message::EncryptedExtensions { accepts_early_data };
            assert_eq!(Message::read(&message(8, &extensions), true), Some(encrypted));
        }
    }
}
