//! Client contexts of OpenSSL that tell which messages arrive on this thread's connection.
//!
//! OpenSSL has no safe way to see a request for a certificate over TLS 1.3, or each ticket. Its message callback shows them.
//! A connection is made and ended on one thread, so that what is heard is kept per thread.

use std::cell::RefCell;

use libc::{c_int, c_void, size_t};
use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslOptions, SslRef, SslSession, SslSessionCacheMode, SslVerifyMode,
    SslVersion,
};
use openssl_sys::{SSL, SSL_CTX};

use crate::message::{Message, NewTicket};

/// The most tickets of one connection that are kept.
const TICKETS: usize = 16;
const HANDSHAKE: c_int = 22;
const ALERT: c_int = 21;
const FATAL: u8 = 2;
const TLS13: c_int = 0x0304;
/// `SSL_OP_ALLOW_NO_DHE_KEX`
const ALLOW_NO_DHE_KEX: u64 = 1 << 10;

/// A client's abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// TLS 1.2 without tickets.
    Ids,
    /// TLS 1.2 with tickets.
    Tickets,
    /// TLS 1.3, with key agreement at resumption.
    Tls13,
    /// TLS 1.3, also without.
    Tls13Weak,
}

/// The messages that arrived on a connection.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) session_id_bytes: u8,
    pub(crate) tickets: Vec<NewTicket>,
    pub(crate) asks_certificate: bool,
    /// True if the server accepts the early data.
    pub(crate) accepts_early_data: bool,
    /// The number of a fatal alert.
    pub(crate) alert: Option<u8>,
}

/// A session that a client may offer, and the context that made it.
pub(crate) struct Token {
    session: SslSession,
    context: SslContext,
}

impl Token {
    /// The newest session of a connection that has brought one.
    pub(crate) fn newest(ssl: &SslRef) -> Option<Self> {
        let session = ssl.session()?.to_owned();
        Some(Self { session, context: ssl.ssl_context().to_owned() })
    }
}

thread_local! {
    static HEARD: RefCell<Heard> = RefCell::default();
}

/// Calls `with` on what was heard since [`forget`].
pub(crate) fn heard<T>(with: impl FnOnce(&mut Heard) -> T) -> T {
    HEARD.with_borrow_mut(with)
}

/// Forgets what was heard, before a connection.
pub(crate) fn forget() {
    HEARD.take();
}

/// A connection to be made, which offers a session if there is one.
pub(crate) fn connection(fresh: &SslContext, token: Option<&Token>) -> Result<Ssl, ErrorStack> {
    let Some(Token { session, context }) = token else { return Ssl::new(fresh) };
    let mut ssl = Ssl::new(context)?;
    // SAFETY: a connection of this context made the session.
    unsafe { ssl.set_session(session) }?;
    Ok(ssl)
}

/// A client context that trusts nobody less than the system does, and goes on whatever it finds.
pub(crate) fn context(mode: Mode) -> Result<SslContext, ErrorStack> {
    let mut builder = SslContext::builder(SslMethod::tls_client())?;
    let version = match mode {
        Mode::Ids | Mode::Tickets => SslVersion::TLS1_2,
        Mode::Tls13 | Mode::Tls13Weak => SslVersion::TLS1_3,
    };
    builder.set_min_proto_version(Some(version))?;
    builder.set_max_proto_version(Some(version))?;
    // Small keys are measured, too.
    builder.set_cipher_list("DEFAULT:@SECLEVEL=0")?;
    builder.set_default_verify_paths()?;
    builder.set_verify(SslVerifyMode::NONE);
    match mode {
        Mode::Ids => builder.set_options(SslOptions::NO_TICKET),
        Mode::Tls13Weak => builder.set_options(SslOptions::from_bits_retain(ALLOW_NO_DHE_KEX)),
        Mode::Tickets | Mode::Tls13 => builder.options(),
    };
    // With a cache, OpenSSL would let no session of TLS 1.3 return twice.
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    // SAFETY: a valid context, and a function that lives as long as the program.
    unsafe { SSL_CTX_set_msg_callback(builder.as_ptr(), Some(on_message)) };
    Ok(builder.build())
}

type OnMessage =
    unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, size_t, *mut SSL, *mut c_void);

unsafe extern "C" {
    fn SSL_CTX_set_msg_callback(context: *mut SSL_CTX, callback: Option<OnMessage>);
}

/// # Safety
/// OpenSSL calls it: `bytes` points to `length` bytes, which live until it returns.
unsafe extern "C" fn on_message(
    is_sent: c_int,
    version: c_int,
    content: c_int,
    bytes: *const c_void,
    length: size_t,
    _ssl: *mut SSL,
    _argument: *mut c_void,
) {
    if is_sent != 0 || bytes.is_null() || ![HANDSHAKE, ALERT].contains(&content) {
        return;
    }
    // SAFETY: OpenSSL's own promise; see above.
    let message = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    heard(|heard| heard.take(content, message, version == TLS13));
}

impl Heard {
    fn take(&mut self, content: c_int, message: &[u8], is_tls13: bool) {
        match (content, message) {
            (ALERT, &[FATAL, number]) => self.alert = Some(number),
            (HANDSHAKE, _) => match Message::read(message, is_tls13) {
                Some(Message::ServerHello { session_id_bytes, .. }) => {
                    self.session_id_bytes = session_id_bytes;
                }
                Some(Message::Ticket(ticket)) if self.tickets.len() < TICKETS => {
                    self.tickets.push(ticket);
                }
                Some(Message::CertificateRequest) => self.asks_certificate = true,
                Some(Message::EncryptedExtensions { accepts_early_data }) => {
                    self.accepts_early_data = accepts_early_data;
                }
                _ => {}
            },
            _ => {}
        }
    }
}
