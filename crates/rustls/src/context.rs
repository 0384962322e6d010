//! The context that sessions and tickets belong to, outside of which they never resume.

use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use rejoin_cache::ContextTag;
use rejoin_tickets::{Error, LONGEST_TICKET_LIFETIME_S, Label};

use crate::session_value;

/// A server's name, and its requirements on clients. Configurations with equal contexts resume each other's sessions, in
/// all processes and machines that share a store or ticket keys.
///
/// rustls compares the server name and the cipher suite of a session with those of the connection, and negotiates ALPN
/// anew. It does not check a client's certificate again, and does not ask whether the configuration that resumes a
/// session would have demanded one. So the context must tell: a session resumes only where clients' certificates are
/// checked in exactly the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    name: Box<[u8]>,
    checks: Option<[u8; CHECKS_BYTES]>,
    resumable_for_s: u64,
}

const CHECKS_BYTES: usize = 32;
/// The release of rustls whose sessions these are. Another one may write them in another form.
const RELEASE: &[u8] = b"rustls 0.23";

impl Context {
    /// The longest name, in bytes.
    pub const LONGEST_NAME_BYTES: usize = 255;

    /// Makes the context of a server that asks for no client certificates. The name has 1 to
    /// [`Self::LONGEST_NAME_BYTES`] bytes.
    ///
    /// A session of a client that has shown a certificate neither begins nor resumes in this context.
    ///
    /// # Errors
    /// [`Error::BadLabel`] for a name of another length.
    pub fn new(name: &[u8]) -> Result<Self, Error> {
        let longest = Self::LONGEST_NAME_BYTES;
        if name.is_empty() || name.len() > longest {
            return Err(Error::BadLabel { length: name.len(), longest });
        }
        let resumable_for_s = LONGEST_TICKET_LIFETIME_S;
        Ok(Self { name: name.into(), checks: None, resumable_for_s })
    }

    /// Makes it the context of a server that asks for client certificates. `checks` is all that its verifier goes by:
    /// the authorities and revocation lists in DER, and a word for everything else, such as whether a client may come
    /// without a certificate. Servers whose checks differ do not resume each other's sessions.
    #[must_use]
    pub fn asking<C: AsRef<[u8]>>(mut self, checks: impl IntoIterator<Item = C>) -> Self {
        let mut hash = digest::Context::new(&SHA256);
        for check in checks {
            let check = check.as_ref();
            hash.update(&(check.len() as u64).to_le_bytes());
            hash.update(check);
        }
        let mut digest = [0; CHECKS_BYTES];
        digest.copy_from_slice(hash.finish().as_ref());
        self.checks = Some(digest);
        self
    }

    /// Sets the longest time between a client's full handshakes, however often its session is renewed: seven days by
    /// default. Fractions of a second are dropped. A handshake outside of [`Connection::scope`](crate::Connection::scope)
    /// counts as a full one.
    #[must_use]
    pub fn resumable_for(mut self, longest: Duration) -> Self {
        self.resumable_for_s = longest.as_secs();
        self
    }

    pub(crate) fn is_overdue(&self, authenticated_s: u64, now_s: u64) -> bool {
        is_overdue(authenticated_s, self.resumable_for_s, now_s)
    }

    /// Returns the same where there is no context, after the longest time that RFC 8446, section 4.6.1, allows one ticket.
    pub(crate) fn is_overdue_anywhere(authenticated_s: u64, now_s: u64) -> bool {
        is_overdue(authenticated_s, LONGEST_TICKET_LIFETIME_S, now_s)
    }

    /// Returns true if a session, as rustls writes it, may be one of this context.
    pub(crate) fn allows(&self, session: &[u8]) -> bool {
        session_value::shows_certificate(session)
            .is_some_and(|shows| !shows || self.checks.is_some())
    }

    /// Returns true if a session may be resumed in this context now: it may be one of it, and the certificate that its
    /// client has shown has not expired, which rustls does not check again.
    pub(crate) fn resumes(&self, session: &[u8], now_s: u64) -> bool {
        self.allows(session) && !session_value::has_expired(session, now_s)
    }

    /// Returns what the context's keys and seals are made for.
    pub(crate) fn label(&self) -> Label {
        let checks = self.checks.as_ref().map_or(&[][..], |checks| checks);
        let length = [self.name.len() as u8];
        let label = [RELEASE, &length, &self.name, checks].concat();
        Label::new(&label).unwrap_or_else(|_| unreachable!("its parts are bounded"))
    }

    /// Returns the tag that a cache keeps of the context.
    pub(crate) fn tag(label: &Label, id_key: &[u8; 16]) -> ContextTag {
        const FOR_TAGS: u8 = 0x5c;
        ContextTag::of(label.as_bytes(), &id_key.map(|byte| byte ^ FOR_TAGS))
    }
}

fn is_overdue(authenticated_s: u64, resumable_for_s: u64, now_s: u64) -> bool {
    // A time in the future, by a clock that stepped back, is allowed.
    now_s.saturating_sub(authenticated_s) > resumable_for_s
}

const _: () =
    assert!(RELEASE.len() + 1 + Context::LONGEST_NAME_BYTES + CHECKS_BYTES <= Label::LONGEST_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_differ_by_name_and_by_checks() {
        let named = |name: &str| Context::new(name.as_bytes()).expect("a name");
        let all = [
            named("a"),
            named("b"),
            named("a").asking(["ca"]),
            named("a").asking(["ca", "optional"]),
            named("a").asking(["caoptional"]),
            named("a").asking([""; 0]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other.label() != one.label()), "{at}");
        }
        assert_eq!(named("a").asking(["ca"]).label(), named("a").asking([b"ca"]).label());
        assert!(Context::new(b"").is_err() && Context::new(&[b'a'; 256]).is_err());
    }

    #[test]
    fn a_client_is_overdue_after_the_time_that_it_may_resume() {
        let context = Context::new(b"a").expect("a name").resumable_for(Duration::from_secs(10));
        assert!(!context.is_overdue(100, 110) && context.is_overdue(100, 111));
        assert!(!context.is_overdue(200, 100), "the clock stepped back");
    }
}
