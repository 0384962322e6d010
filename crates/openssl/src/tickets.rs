//! Tickets that hold the whole session, under keys that rotate.
//!
//! OpenSSL puts the session into the ticket and encrypts it, in the form of RFC 5077, section 4. It asks for the keys
//! by a callback, once for each ticket that it makes or opens.

use std::sync::Arc;

use libc::{c_int, c_uchar};
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions};
use openssl_sys::{EVP_CIPHER_CTX, EVP_MAC_CTX, SSL, SSL_CTX};
use rejoin_tickets::{NAME_BYTES, Opened};

use crate::context_name::ContextName;
use crate::guard::guard;
use crate::info::{attach, of_ssl_or_new};
use crate::responders::would_end_a_resumed;
use crate::ticket_cipher::{IV_BYTES, TicketCipher};
use crate::ticket_keys::{TicketHistory, TicketKeys};
use crate::{early, ffi, past, ticket_history};

impl TicketKeys {
    /// Makes a server context issue tickets under these keys, with `id_context` (at most 32 bytes;
    /// an empty one stands for `rejoin`) as its session-id context. Its keys are derived for that and for
    /// the name that the client asks for: a ticket never resumes in another context, or under another
    /// name. Replaces ticket keys and a key callback that the server has set itself. A connection's tickets
    /// are those of the context that it *begins* in, whichever context the servername callback switches to.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory or `id_context` is too long.
    pub fn attach(
        self: &Arc<Self>,
        context: &mut SslContextBuilder,
        id_context: &[u8],
        history: TicketHistory,
    ) -> Result<(), ErrorStack> {
        let id_context = if id_context.is_empty() { b"rejoin" } else { id_context };
        context.set_session_id_context(id_context)?;
        let tickets = self.context(ContextName::new(id_context));
        context.clear_options(SslOptions::NO_TICKET);
        let context = context.as_ptr();
        // SAFETY: the builder owns the context, and nobody else uses it yet.
        if !unsafe { attach(context, |attachment| attachment.tickets = Some(tickets)) } {
            return Err(ErrorStack::get());
        }
        // SAFETY: the builder owns the context.
        unsafe { issue_tickets(context, history) };
        Ok(())
    }
}

/// Makes a context issue tickets under our keys.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn issue_tickets(context: *mut SSL_CTX, history: TicketHistory) {
    // SAFETY: the caller vouches for `context`, and the callback lives as long as the program.
    unsafe { ffi::SSL_CTX_set_tlsext_ticket_key_evp_cb(context, Some(keys_wanted)) };
    if history == TicketHistory::Carried {
        // SAFETY: the caller vouches for `context`.
        unsafe { ticket_history::install(context) };
    }
}

/// Sets the keys of a ticket that OpenSSL makes or opens. Returns 1, 2 for a ticket that is to be renewed, or 0 for
/// one whose key is unknown. A negative result would fail the handshake.
unsafe extern "C" fn keys_wanted(
    ssl: *mut SSL,
    name: *mut c_uchar,
    iv: *mut c_uchar,
    cipher: *mut EVP_CIPHER_CTX,
    mac: *mut EVP_MAC_CTX,
    encrypt: c_int,
) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        // SAFETY: OpenSSL's own variable, of 16 bytes, and nobody else's during the call.
        let name = unsafe { name.cast::<[u8; NAME_BYTES]>().as_mut() };
        // SAFETY: OpenSSL's own variable, of `EVP_MAX_IV_LENGTH` bytes, and nobody else's during the call.
        let iv = unsafe { iv.cast::<[u8; IV_BYTES]>().as_mut() };
        let (Some(connection), Some(name), Some(iv)) = (connection, name, iv) else { return 0 };
        let mut ticket = TicketCipher { iv, cipher, mac };
        let Some(tickets) = &connection.attachment.tickets else {
            // The handshake began before the keys were there.
            return if encrypt == 1 { c_int::from(ticket.seal_for_nobody(name)) } else { 0 };
        };
        if encrypt == 1 {
            // SAFETY: `ssl` is valid, and this connection's.
            let Some(host) = (unsafe { connection.host(ssl) }) else {
                return c_int::from(ticket.seal_for_nobody(name));
            };
            // SAFETY: `ssl` is valid; the reference is borrowed.
            let session = unsafe { openssl_sys::SSL_get_session(ssl) };
            // SAFETY: `ssl` is valid, and this connection's, as is the session.
            let is_by_key = || unsafe { connection.is_by_key(ssl, session) };
            // SAFETY: `ssl` is valid.
            if session.is_null() || is_by_key() || unsafe { would_end_a_resumed(ssl) } {
                return c_int::from(ticket.seal_for_nobody(name));
            }
            // SAFETY: `ssl` is valid, and this connection's.
            let policy = unsafe { connection.policy(ssl, &host) };
            return tickets.seal(&host, policy, name, ticket);
        }
        // SAFETY: `ssl` is this connection's, and opens a ticket while it reads a ClientHello.
        let host = unsafe { connection.host_in_hello(ssl) };
        // SAFETY: OpenSSL passes a valid SSL.
        let is_single_use = unsafe { past::is_single_use(ssl) };
        // SAFETY: `ssl` is valid, and this connection's.
        let policy = unsafe { connection.expected_policy(ssl, host) };
        // SAFETY: `ssl` is valid, and reads a ClientHello.
        unsafe { early::ticket_opened(ssl, connection) };
        let opened = tickets.open(host, policy, name, &ticket);
        // If the context has our callback for tickets, it gets the session next.
        connection.state().opened = opened.is_some();
        match opened {
            // OpenSSL gives the client another only when told to.
            Some(Opened::Fresh) if !is_single_use => 1,
            Some(_) => 2,
            None => 0,
        }
    })
}
