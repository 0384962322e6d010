//! Sessions from their bytes, with each client's certificate decoded once.
//!
//! A session that brings its client's certificate holds it as DER, and OpenSSL decodes that whenever the session is
//! resumed: a public key goes through its decoders, and takes 130 µs and a thousand allocations in OpenSSL 3.0, where
//! the whole resumption takes as long. No function puts a decoded certificate into a session. But a copy of a session
//! shares its certificate (`SSL_SESSION_dup(3)`).
//!
//! So the first session of a client leaves a *template* here, without its secret, under all of its bytes that
//! other sessions may have in common. A session with the same bytes is a copy of the template, which is given what is
//! its own: id, secret, time, application data. Everything else is as it was decoded, whichever release decodes it.
//! The one number that is not set (`tick_age_add`) bears on early data only, and sessions that allow some have no
//! template.
//!
//! A session gets the certificate of its own bytes and no other, because all of the bytes are compared. A template
//! is kept only if OpenSSL writes its copy exactly as the session that it comes from. If anything fails, OpenSSL decodes
//! the session as it would without templates.

use std::ffi::c_uint;

use foreign_types::{ForeignType, ForeignTypeRef};
use libc::c_int;
use openssl::error::ErrorStack;
use openssl::ssl::{SslSession, SslSessionRef};
use rejoin_tickets::Interner;

use crate::session_parts::SessionParts;
use crate::{ffi, session_bytes};

/// Decodes sessions.
#[derive(Debug)]
pub struct SessionDecoder {
    templates: Interner<SslSession>,
}

/// The estimated memory of a template: a session, a certificate and its key decoded, and the bytes themselves, kept to
/// compare. Common certificates, of 400 to 1,500 bytes, take a little less.
const TEMPLATE_BYTES: usize = 4_608;
const TIMES_ITS_BYTES: usize = 4;
/// The decoded size of a part of a name or an extension, however small it is. Each begins with an object identifier.
/// Common certificates have one in forty bytes or more.
const IDENTIFIED_BYTES: usize = 200;
const COMMON_SPACING: usize = 32;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// `TLS13_MAX_RESUMPTION_PSK_LENGTH`, the longest secret of a session.
const NO_SECRET: [u8; 512] = [0; 512];
/// Indices under which programs may have put something into each session as it is made (`CRYPTO_get_ex_new_index(3)`):
/// far more than any registers.
const EX_DATA_INDICES: c_int = 256;

impl SessionDecoder {
    /// Makes a decoder whose templates take about `most_bytes`; with 0 there are none. `seed` is that of an
    /// [`Interner`].
    pub fn new(most_bytes: usize, seed: [u64; 2]) -> Self {
        Self { templates: Interner::new(most_bytes, seed) }
    }

    /// Decodes a session, which the caller alone has. `None` if the bytes are not a session.
    pub fn decode(&self, value: &[u8]) -> Option<SslSession> {
        let parts = self.templates.keeps().then(|| SessionParts::of(value)).flatten();
        match parts {
            Some(parts) => self.with_template(value, &parts),
            None => decoded(value),
        }
    }

    fn with_template(&self, value: &[u8], parts: &SessionParts<'_>) -> Option<SslSession> {
        let common = parts.common();
        let template = self.templates.get(&common);
        if let Some(session) = template.and_then(|template| copy(&template, parts)) {
            return Some(session);
        }
        let session = decoded(value)?;
        let bytes = template_bytes(&common);
        if self.templates.wants(&common, bytes)
            && let Some(template) = template_of(&session, value, parts)
        {
            self.templates.insert(&common, template, bytes);
        }
        Some(session)
    }
}

fn decoded(value: &[u8]) -> Option<SslSession> {
    // This takes OpenSSL's error from the queue, where the application could take it for one of its own.
    SslSession::from_der(value).ok()
}

/// Estimates the memory of a template whose sessions have these bytes in common.
fn template_bytes(common: &[u8]) -> usize {
    let identified = common.iter().filter(|byte| **byte == OBJECT_IDENTIFIER).count();
    let more = identified.saturating_sub(common.len() / COMMON_SPACING);
    TEMPLATE_BYTES + TIMES_ITS_BYTES * common.len() + IDENTIFIED_BYTES * more
}

/// Makes a template of a session. `None` if the copies of the template would differ from the session.
fn template_of(
    session: &SslSessionRef,
    value: &[u8],
    parts: &SessionParts<'_>,
) -> Option<SslSession> {
    let secret = NO_SECRET.get(..parts.secret.len())?;
    // A program that keeps data in each session may not expect two sessions to share it.
    if has_ex_data(session) {
        return None;
    }
    let template = copy(session, &parts.anonymous(secret))?;
    let made = copy(&template, parts)?;
    // SAFETY: a valid session.
    let written = unsafe { session_bytes::serialised(made.as_ptr()) };
    written.is_some_and(|written| *written == *value).then_some(template)
}

/// Returns true if a program keeps data of its own in the session. Copying the session would copy a pointer to that
/// data, if the program does not copy it itself, and each of the two sessions would free it.
fn has_ex_data(session: &SslSessionRef) -> bool {
    (0..EX_DATA_INDICES).any(|index| {
        // SAFETY: a valid session, which has nothing under an index that nobody registered.
        let data = unsafe { ffi::SSL_SESSION_get_ex_data(session.as_ptr(), index) };
        !data.is_null()
    })
}

/// Copies a session.
///
/// # Errors
/// OpenSSL's, when it is out of memory.
pub(crate) fn duplicate(session: &SslSessionRef) -> Result<SslSession, ErrorStack> {
    // SAFETY: a valid session, which is only read.
    let copy = unsafe { ffi::SSL_SESSION_dup(session.as_ptr()) };
    if copy.is_null() {
        return Err(ErrorStack::get());
    }
    // SAFETY: it is valid, and nobody else has it.
    Ok(unsafe { SslSession::from_ptr(copy) })
}

/// Copies a session, and gives the copy its own id, secret, time and data.
fn copy(session: &SslSessionRef, own: &SessionParts<'_>) -> Option<SslSession> {
    let copy = duplicate(session).ok()?;
    let is_own = has_own(&copy, own);
    if !is_own {
        drop(ErrorStack::get());
    }
    is_own.then_some(copy)
}

fn has_own(copy: &SslSessionRef, own: &SessionParts<'_>) -> bool {
    let session = copy.as_ptr();
    let SessionParts { id, secret, time_s, application_data: data, .. } = own;
    // SAFETY: the caller's own session, and so many bytes, which are copied; more than fit are refused.
    let id_set = unsafe { ffi::SSL_SESSION_set1_id(session, id.as_ptr(), id.len() as c_uint) };
    // SAFETY: the copy is the caller's alone, and so many bytes are copied.
    let secret_set =
        unsafe { ffi::SSL_SESSION_set1_master_key(session, secret.as_ptr(), secret.len()) };
    // SAFETY: the copy is the caller's alone, and so many bytes are copied.
    let data_set =
        unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session, data.as_ptr().cast(), data.len()) };
    // SAFETY: the copy is the caller's alone. The result does not tell success from failure in all releases.
    unsafe { ffi::SSL_SESSION_set_time(session, *time_s) };
    [id_set, secret_set, data_set] == [1; 3]
}

#[cfg(test)]
mod tests {
    use openssl::ssl::SslVersion;

    use super::*;
    use crate::session_bytes::tests::{Client, sessions};

    fn decoder() -> SessionDecoder {
        SessionDecoder::new(1 << 20, [6; 2])
    }

    /// Returns a server's session, written as the server keeps it.
    fn written(version: SslVersion, client: &Client, data: &[u8]) -> Vec<u8> {
        let [session, _] = sessions(version, Some(client));
        let (start, length) = (data.as_ptr().cast(), data.len());
        // SAFETY: a valid session, and so many bytes, which are copied.
        unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session.as_ptr(), start, length) };
        session.to_der().expect("written")
    }

    fn peer(session: &SslSessionRef) -> *mut libc::c_void {
        // SAFETY: a valid session.
        unsafe { ffi::SSL_SESSION_get0_peer(session.as_ptr()) }
    }

    /// Without the number that bears on early data only.
    fn without_age(session: &[u8]) -> (SessionParts<'_>, Vec<u8>) {
        let parts = SessionParts::of(session).expect("parts");
        let common = parts.common();
        (SessionParts::of(session).map(SessionParts::without_rest).expect("parts"), common)
    }

    #[test]
    fn a_copy_is_what_openssl_would_have_decoded_and_shares_the_certificate() {
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let (decoder, client) = (decoder(), Client::new());
            let all = [&b""[..], b"rj one", b"", b"of another length"]
                .map(|data| written(version, &client, data));
            let decoded = all.each_ref().map(|value| decoder.decode(value).expect("a session"));
            for (session, value) in decoded.iter().zip(&all) {
                let again = session.to_der().expect("written");
                assert_eq!(without_age(&again), without_age(value), "{version:?}");
                assert!(session.timeout() > 0 && session.time() == without_age(value).0.time_s);
            }
            assert_eq!(peer(&decoded[1]), peer(&decoded[2]), "decoded once");
            assert_eq!(decoder.templates.kept().0, 1);
            // Each has its own secret, and the template none.
            let secrets = all.each_ref().map(|value| without_age(value).0.secret.to_vec());
            assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2]);
            let template = decoder.templates.get(&without_age(&all[0]).1).expect("a template");
            let bytes = template.to_der().expect("written");
            assert!(without_age(&bytes).0.secret.iter().all(|byte| *byte == 0));
            assert!(without_age(&bytes).0.id.is_empty());
        }
    }

    #[test]
    fn nobody_gets_anothers_certificate() {
        let decoder = decoder();
        let clients = [Client::new(), Client::new(), Client::new()];
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            for client in clients.iter().cycle().take(9) {
                let value = written(version, client, b"");
                let session = decoder.decode(&value).expect("a session");
                let certificate = session.to_der().expect("written");
                let der = client.certificate.to_der().expect("written");
                assert!(certificate.windows(der.len()).any(|bytes| bytes == der), "{version:?}");
            }
        }
        assert_eq!(decoder.templates.kept().0, 6);
    }

    #[test]
    fn without_room_all_is_decoded_anew() {
        let (decoder, client) = (SessionDecoder::new(0, [6; 2]), Client::new());
        let value = written(SslVersion::TLS1_3, &client, b"");
        let [one, other] = [0; 2].map(|_| decoder.decode(&value).expect("a session"));
        assert_ne!(peer(&one), peer(&other));
        assert_eq!(one.to_der().expect("written"), value);
    }

    #[test]
    fn what_is_no_session_stays_none() {
        let (decoder, client) = (decoder(), Client::new());
        let mut value = written(SslVersion::TLS1_2, &client, b"");
        for at in 0..value.len() {
            value[at] ^= 0x11;
            let _ = decoder.decode(&value);
            value[at] ^= 0x11;
        }
        assert!(decoder.decode(&value[1..]).is_none());
        assert!(ErrorStack::get().errors().is_empty());
        let session = decoder.decode(&value).expect("a session");
        assert_eq!(session.to_der().expect("written"), value);
    }
}
