//! The settings of every server context of a process, or of one of them.

use std::sync::Arc;
use std::time::Duration;

use rejoin_cache::SessionStore;

use crate::context_name::ContextName;
use crate::sessions::{AnySessions, ServerSessions};
use crate::ticket_keys::{TicketHistory, TicketKeys};

/// The settings of every server context of a process, or of one of them.
#[derive(Debug, Default)]
pub struct Everywhere {
    pub(crate) sessions: Option<Arc<AnySessions>>,
    pub(crate) tickets: Option<(Arc<TicketKeys>, TicketHistory)>,
    pub(crate) stateful: bool,
    pub(crate) resumable_for: Option<Duration>,
    pub(crate) context: Option<ContextName>,
    pub(crate) is_single_use: bool,
    pub(crate) is_vouched: bool,
    pub(crate) accepts_early_once: bool,
    pub(crate) when_off: Option<Tell>,
    pub(crate) when_filled: Option<Tell>,
}

/// Called when something is left to the program.
type Tell = Hook<dyn Fn() + Send + Sync>;

/// A function that has nothing to print.
pub(crate) struct Hook<F: ?Sized>(pub(crate) Box<F>);

impl<F: ?Sized> std::fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Everywhere {
    /// Keeps sessions in this store. With `stateful` these are the sessions of all clients, and no context issues
    /// stateless tickets. Without it, where the program leaves stateless tickets on, they are the sessions of TLS 1.2
    /// clients that know no tickets.
    #[must_use]
    pub fn with_sessions<S>(mut self, sessions: &Arc<ServerSessions<S>>, stateful: bool) -> Self
    where
        S: SessionStore + Send + Sync + 'static,
    {
        let sessions: Arc<AnySessions> = Arc::<ServerSessions<S>>::clone(sessions);
        (self.sessions, self.stateful) = (Some(sessions), stateful);
        self
    }

    /// Seals stateless tickets under these keys instead of the program's, where the program leaves tickets on.
    #[must_use]
    pub fn with_tickets(mut self, keys: &Arc<TicketKeys>, history: TicketHistory) -> Self {
        self.tickets = Some((Arc::clone(keys), history));
        self
    }

    /// Sets how long a client may resume until it must make a full handshake, however often its session is renewed:
    /// [`crate::RESUMABLE_FOR`] by default. Stateless tickets must carry history for this.
    #[must_use]
    pub fn resumable_for(mut self, longest: Duration) -> Self {
        self.resumable_for = Some(longest);
        self
    }

    /// Resumes each stored session of TLS 1.3 at most once, in whichever process. A client that opens several
    /// connections with one session resumes one of them. It does not hold for stateless tickets.
    #[must_use]
    pub fn single_use(mut self, is_single_use: bool) -> Self {
        self.is_single_use = is_single_use;
        self
    }

    /// Accepts early data (0-RTT) where the program does, but none twice. Sessions over TLS 1.3 are stateful there, and
    /// each is taken as it is looked up: it resumes at most once, unless the store says otherwise. Early data is accepted only with a session that was taken just now, and certainly not
    /// before ([`Visit::is_certain`](rejoin_cache::Visit::is_certain)). OpenSSL's own protection, which knows one process,
    /// is not needed then, and its checks of age, protocol and cipher stay, as does the program's callback. Sessions and
    /// ticket keys of ours are needed for this.
    #[must_use]
    pub fn early_data_once(mut self, accepts_early_once: bool) -> Self {
        self.accepts_early_once = accepts_early_once;
        self
    }

    /// Makes all contexts one, of this name (at most 255 bytes). A session of any of them resumes in any other, in
    /// other programs of this name, too, whatever its session-id context, and over TLS 1.2 where the other has its
    /// cipher. Hosts, and the certificate policies for clients, are still kept apart.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.context = Some(ContextName::new(name.as_bytes()));
        self
    }

    /// Vouches that all programs under the name of [`Self::named`] check client certificates alike, where these checks
    /// cannot be seen, too: in callbacks, in folders of authorities, and in stricter demands of single server names.
    /// Their sessions then resume in other contexts and processes that visibly ask for the same: verify mode, flags and
    /// depth, authorities and revocation lists in memory, and the names that are sent to clients.
    #[must_use]
    pub fn vouched(mut self, is_vouched: bool) -> Self {
        self.is_vouched = is_vouched;
        self
    }

    /// Calls `tell` for each connection on a context that is left alone, because the program neither keeps its sessions
    /// nor issues tickets, and the sessions are not wanted regardless of that ([`Self::with_sessions`]).
    #[must_use]
    pub fn when_off(mut self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        self.when_off = Some(Hook(Box::new(tell)));
        self
    }

    /// Calls `tell` for each context whose tickets stay the program's own, under the program's keys, because the program
    /// may put data of its own into them (`SSL_CTX_set_session_ticket_cb(3)`), and did not attach the context itself. Nothing is stateful there that is a ticket
    /// without Rejoin, and no early data is accepted by [`Self::early_data_once`]. Where the program may keep data with
    /// sessions (`SSL_SESSION_get_ex_new_index(3)`), all of them stay its own, too.
    #[must_use]
    pub fn when_filled(mut self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        self.when_filled = Some(Hook(Box::new(tell)));
        self
    }
}
