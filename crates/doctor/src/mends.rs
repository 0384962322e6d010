//! The mend of each cause, by server.

use serde::Serialize;

use crate::findings::Cause;

/// The changes to make, with the server's own means and with Rejoin.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Mends {
    /// For nginx.
    pub nginx: &'static str,
    /// For HAProxy.
    pub haproxy: &'static str,
    /// For Apache.
    pub apache: &'static str,
    /// For Envoy.
    pub envoy: &'static str,
    /// For Caddy.
    pub caddy: &'static str,
    /// For programs of one's own; empty if there is nothing to add.
    pub own: &'static str,
    /// With Rejoin, which reaches servers on a shared libssl: of these nginx, HAProxy and Apache.
    pub rejoin: &'static str,
}

impl Mends {
    /// Returns the names and the mends.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            ("nginx", self.nginx),
            ("HAProxy", self.haproxy),
            ("Apache", self.apache),
            ("Envoy", self.envoy),
            ("Caddy", self.caddy),
            ("own program", self.own),
            ("with Rejoin", self.rejoin),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty())
    }
}

const NOTHING_KEPT: Mends = Mends {
    nginx: "`ssl_session_tickets on` (the default), or `ssl_session_cache shared:tls:10m` in `http`",
    haproxy: "remove `no-tls-tickets` from `bind`, and `tune.ssl.cachesize 0`",
    apache: "`SSLSessionTickets on`, and `SSLSessionCache shmcb:/run/apache2/tls(5120000)`",
    envoy: "remove `disable_stateless_session_resumption`",
    caddy: "remove `disabled` from `session_tickets`",
    own: "OpenSSL: `SSL_CTX_set_num_tickets` above 0, and no `SSL_OP_NO_TICKET` without a cache",
    rejoin: "nginx, HAProxy, Apache: `rejoin run -- SERVER`, which brings a cache and ticket keys (docs/servers.md); Envoy and \
             Caddy issue tickets by themselves, under keys of `rejoin share` if several are to share them (docs/keys.md)",
};

const SAME_KEYS: Mends = Mends {
    nginx: "the same `ssl_session_ticket_key FILE` (80 random bytes) in each, and `shared:`, not `builtin`, for \
            `ssl_session_cache`",
    haproxy: "the same `tls-ticket-keys FILE` (three keys) at `bind`",
    apache: "the same `SSLSessionTicketKeyFile FILE` (48 bytes) in each, but not on OpenSSL 3 (docs/keys.md)",
    envoy: "the same keys in each: `session_ticket_keys_sds_secret_config`",
    caddy: "one `storage` for all, and `\"key_source\": {\"provider\": \"distributed\"}` in `session_tickets`",
    own: "OpenSSL: one key for all by `SSL_CTX_set_tlsext_ticket_key_evp_cb`",
    rejoin: "nginx, HAProxy, Apache: `rejoin run -- SERVER` for the processes of a machine (docs/servers.md), `rejoin cluster` \
             for several machines (docs/cluster.md); Envoy, Caddy and others: ticket keys by `rejoin keys export` or `rejoin \
             share` (docs/keys.md)",
};

const NEVER_OPEN: Mends = Mends {
    nginx: "with `ssl_session_tickets off`: `ssl_session_cache shared:tls:10m`, without which nothing is kept; or \
            the default server of the address has other settings: set them in `http`; or several machines: one \
            `ssl_session_ticket_key`",
    haproxy: "with `no-tls-tickets`: `tune.ssl.cachesize` above 0",
    apache: "with `SSLSessionTickets off`: `SSLSessionCache shmcb:/run/apache2/tls(5120000)`",
    envoy: "the same keys in each: `session_ticket_keys_sds_secret_config`",
    caddy: "one `storage` for all, if several are behind the address",
    own: "OpenSSL: with `SSL_VERIFY_PEER`, call `SSL_CTX_set_session_id_context`; with `SSL_OP_NO_TICKET`, keep a cache",
    rejoin: NOTHING_KEPT.rejoin,
};

const OFFER_BREAKS: Mends = Mends {
    nginx: "sets a session-id context itself: see its error log",
    haproxy: "sets a session-id context itself: see its log",
    apache: "sets a session-id context itself: see its error log",
    envoy: "sets a session-id context itself: see its log",
    caddy: "has no such context: see its log",
    own: "OpenSSL asks for client certificates without a session-id context, and then refuses every session: call \
            `SSL_CTX_set_session_id_context`",
    rejoin: "it changes no session-id context: the program must set one",
};

const NAME_APART: Mends = Mends {
    nginx: "a connection begins in the default server of its address: set `ssl_session_cache`, `ssl_session_tickets` and \
            `ssl_session_ticket_key` in `http`, for all of them alike",
    haproxy: "one `bind` with a `crt-list` for all names, and options of sessions at the `bind`",
    apache: "set `SSLSessionTickets` and `SSLSessionCache` outside of virtual hosts",
    envoy: "the same `session_ticket_keys` in each filter chain",
    caddy: "the same `session_tickets` for all: it is one setting of the program",
    own: "OpenSSL looks a session up in the context that the connection began with: give all contexts the same \
            session-id context and keys",
    rejoin: "the default server decides, too: set it alike in `http`",
};

const CACHE_TOO_SMALL: Mends = Mends {
    nginx: "a larger `ssl_session_cache shared:tls:50m` (a MB holds about 4,000 sessions), or tickets",
    haproxy: "a larger `tune.ssl.cachesize`, or tickets",
    apache: "a larger `SSLSessionCache shmcb:/run/apache2/tls(51200000)`, or tickets",
    envoy: "tickets: remove `disable_stateless_session_resumption`",
    caddy: "tickets, which it has by default",
    own: "OpenSSL: `SSL_CTX_sess_set_cache_size`",
    rejoin: "nginx, HAProxy, Apache: a larger `capacity`; `rejoin plan` computes it, and its eviction keeps the sessions \
            that return soon (docs/servers.md)",
};

const FORGOTTEN_EARLY: Mends = Mends {
    nginx: "a longer `ssl_session_timeout` (5 minutes by default), or a larger cache",
    haproxy: "a longer `tune.ssl.lifetime` (300 s by default), or a larger `tune.ssl.cachesize`",
    apache: "a longer `SSLSessionCacheTimeout` (300 s by default), or a larger cache",
    envoy: "a longer `session_timeout`; keep the last key as the second",
    caddy: "a longer `rotation_interval`, or more `max_keys`, in `session_tickets`",
    own: "OpenSSL: `SSL_CTX_set_timeout`; keep old ticket keys for as long as tickets live",
    rejoin: "nginx, HAProxy, Apache: `ticket_lifetime`, and `capacity` for sessions (docs/servers.md)",
};

const KEY_NOT_ROTATED: Mends = Mends {
    nginx: "no `ssl_session_ticket_key`, but `ssl_session_cache shared:`, with which it rotates by itself (1.23.2 or \
            later); or a new file and a reload each day",
    haproxy: "`set ssl tls-key` on its socket, each day",
    apache: "a new `SSLSessionTicketKeyFile` and a graceful restart each day, but none on OpenSSL 3 (docs/keys.md)",
    envoy: "a new key first in the list each day; `watched_directory` has it read",
    caddy: "remove `disable_rotation`: it rotates by itself",
    own: "OpenSSL: a new key each day by `SSL_CTX_set_tlsext_ticket_key_evp_cb`",
    rejoin: "keys rotate by themselves (`rotate_every`, 12 hours; docs/servers.md)",
};

const REPLAY_ANSWERED: Mends = Mends {
    nginx: "`ssl_early_data off`; or pass `Early-Data: $ssl_early_data` on, and have the application answer 425 where a \
            request must not be repeated",
    haproxy: "no `allow-0rtt`; or `http-request wait-for-handshake` for such requests",
    apache: "accepts no early data",
    envoy: "accepts no early data over TCP",
    caddy: "accepts no early data over TCP",
    own: "OpenSSL: no `SSL_OP_NO_ANTI_REPLAY`, which suffices for one process",
    rejoin: "nginx, HAProxy, OpenSSL's servers: `early_data = once` (docs/servers.md)",
};

const ONLY_TLS12: Mends = Mends {
    nginx: "`ssl_protocols TLSv1.2 TLSv1.3`",
    haproxy: "no `ssl-max-ver TLSv1.2`, no `no-tlsv13`",
    apache: "`SSLProtocol -all +TLSv1.2 +TLSv1.3`",
    envoy: "no `tls_maximum_protocol_version: TLSv1_2`",
    caddy: "`protocols tls1.2 tls1.3`, its default",
    own: "",
    rejoin: "",
};

const VERSIONS_APART: Mends = Mends {
    nginx: "`ssl_protocols TLSv1.2 TLSv1.3` in each",
    haproxy: "in each no `ssl-max-ver TLSv1.2`, no `no-tlsv13`",
    apache: "`SSLProtocol -all +TLSv1.2 +TLSv1.3` in each",
    envoy: "in each no `tls_maximum_protocol_version: TLSv1_2`",
    caddy: "`protocols tls1.2 tls1.3`, its default, in each",
    own: "OpenSSL: the same `SSL_CTX_set_max_proto_version` in each",
    rejoin: "it changes no versions: set the same in each",
};

/// Returns the mend of a cause.
pub(crate) const fn mends(cause: Cause) -> Option<&'static Mends> {
    Some(match cause {
        Cause::NothingIssued | Cause::NoTickets | Cause::IdsNeverFound => &NOTHING_KEPT,
        Cause::TicketsNeverOpen => &NEVER_OPEN,
        Cause::WorkersApart | Cause::MachinesApart => &SAME_KEYS,
        Cause::OfferBreaks => &OFFER_BREAKS,
        Cause::VersionsApart => &VERSIONS_APART,
        Cause::NameApart => &NAME_APART,
        Cause::CacheTooSmall => &CACHE_TOO_SMALL,
        Cause::ForgottenEarly => &FORGOTTEN_EARLY,
        Cause::KeyNotRotated => &KEY_NOT_ROTATED,
        Cause::ReplayAnswered => &REPLAY_ANSWERED,
        Cause::OnlyTls12 => &ONLY_TLS12,
        Cause::NoKeyAgreement
        | Cause::NoHandshake
        | Cause::HandshakesFail
        | Cause::VersionFails
        | Cause::SometimesLost
        | Cause::OnlyTls13
        | Cause::NoIds
        | Cause::NoTicketsTls12
        | Cause::KeptByServer
        | Cause::NamesShare
        | Cause::Certificate
        | Cause::ClientCertificate => return None,
    })
}
