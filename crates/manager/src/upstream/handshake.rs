//! The handshake with a server for a program's request: the session that is offered, and the report on its outcome.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::{Resumption, TicketRequest, Tls12Resumption};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion};
use tokio::time::Instant;

use crate::downstream::descriptors::PassedDescriptor;
use crate::downstream::program::Program;
use crate::failure::Failure;
use crate::protocol::{
    Base64, Certificate, Connect, Connected, EarlyData, ErrorKind, MOST_DEADLINE_MS, MinVersion,
    Offers, Token, Trust, Why,
};
use crate::sessions::{
    CacheKey, ConnectionStore, Family, Offer, Offered, Partition, Secret, SessionQuery, Sessions,
};
use crate::settings::Settings;
use crate::state::{State, random};
use crate::trust::context::{self, HandshakeContext};
use crate::trust::identity::Identity;
use crate::trust::judge::{Judge, valid_for};
use crate::upstream::connection::Upstream;
use crate::upstream::dial::dial;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::policy::{Policy, Terms};
use crate::upstream::tcp::Tcp;

/// A program's request after the checks that need no connection.
#[derive(Debug)]
struct HandshakeRequest<'a> {
    connect: &'a Connect,
    judge: Arc<Judge>,
    policy: Arc<Policy>,
    config: ClientConfig,
    identity: Arc<Identity>,
    cache_key: CacheKey,
    /// `Err`: the reason why no sessions are shared.
    shares: Result<(), Why>,
    early: Option<ZeroRtt<'a>>,
    asks_for_staple: bool,
}

/// 0-RTT data: sent with the first flight, if a session allows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZeroRtt<'a> {
    pub(crate) data: &'a [u8],
    /// True if the server may get it twice.
    pub(crate) may_be_repeated: bool,
}

/// The parameters of one handshake.
#[derive(Debug)]
pub(crate) struct Attempt {
    offered: Option<(Offered, u64)>,
    why_not: Option<Why>,
    sent_early: bool,
}

/// Makes a connection.
///
/// If a server fails the handshake when offered a session, tries again without one, because the program would have
/// connected without Rejoin. It does not if the server may have data that must not come twice.
pub(crate) async fn connect(
    state: &State,
    program: &Program,
    (connect, offers, early): (&Connect, Option<&Offers>, Option<ZeroRtt<'_>>),
    socket: Option<PassedDescriptor>,
) -> Result<(Upstream, Connected), Failure> {
    let deadline = deadline(connect);
    let judge = state.judges.of(&connect.trust);
    let judge = judge.map_err(|detail| Failure::new(ErrorKind::BadRequest, detail))?;
    let request = HandshakeRequest::of(state, program, (connect, offers), judge)?;
    let request = HandshakeRequest { early, ..request };
    let lookups = (&state.lookups, program.uid);
    let had_socket = socket.is_some();
    let tcp = dial(lookups, connect, socket, deadline).await?;
    let (mut upstream, attempt) = begin_over(state, &request, tcp, true)?;
    let sent_early = attempt.sent_early;
    let must_not_repeat = sent_early && early.is_some_and(|early| !early.may_be_repeated);
    let made = match try_session(state, &request, (&mut upstream, &attempt), deadline).await {
        Ok(()) => finish(state, &request, &upstream, attempt),
        Err(failure) if attempt.offered.is_none() => Err(failure),
        Err(failure) if must_not_repeat || failure.kind != ErrorKind::TlsFailed => Err(failure),
        Err(_) if had_socket => {
            let detail = "the handshake failed when a session was offered, and a passed socket cannot be used again";
            Err(Failure::new(ErrorKind::Busy, detail))
        }
        Err(_) => {
            let tcp = dial(lookups, connect, None, deadline).await?;
            let (again, mut attempt) = begin_over(state, &request, tcp, false)?;
            upstream = again;
            attempt.why_not = Some(Why::Refused);
            shake_hands(state, &request, &mut upstream, deadline).await?;
            finish(state, &request, &upstream, attempt)
        }
    };
    let (connected, OfferedSession(offered)) =
        made.map_err(|failure| Failure { sent_early, ..failure })?;
    // Programs with a TLS library of their own may resume it, and do not take such servers.
    match request.shares.is_ok() && upstream.renegotiates_securely() {
        // Without certificates there is nothing to store.
        true => {
            let _ = upstream.keep_sessions(state, &request.cache_key, offered.as_ref());
        }
        false => upstream.keep_nothing(),
    }
    Ok((upstream, connected))
}

/// The deadline of a handshake for a program that can fall back to its own TLS.
const PATIENCE: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_millis(MOST_DEADLINE_MS as u64);
/// The time for which a server is not tried again after a failed handshake.
pub(crate) const FOREIGN_MS: u64 = 10 * 60 * 1_000;

/// A connection that its program has not verified yet. No sessions are stored before it has.
#[derive(Debug)]
pub(crate) struct Unverified {
    pub(crate) upstream: Upstream,
    pub(crate) connected: Connected,
    pub(crate) resumes: OfferedSession,
}

/// The session that a connection offered, if any, and its expiry.
#[derive(Debug)]
pub(crate) struct OfferedSession(Option<(Offered, u64)>);

/// The handshake with an origin for a program that has a TLS library of its own and verifies the server itself.
#[derive(Debug)]
pub(crate) struct OriginHandshake<'a> {
    state: &'a State,
    request: HandshakeRequest<'a>,
    deadline: Instant,
}

impl<'a> OriginHandshake<'a> {
    /// Checks a request of a program that asks the server for a stapled OCSP response, or not. Refuses programs and hosts
    /// that do not share, servers with which the manager failed recently, and, if the caller needs a session, servers
    /// without one that it may use.
    pub(crate) fn of(
        state: &'a State,
        program: &Program,
        wish: (&'a Connect, Option<&Offers>),
        needs_session: bool,
        asks_for_staple: bool,
    ) -> Result<Self, Failure> {
        let request = HandshakeRequest::of(state, program, wish, state.judges.of_program())?;
        let request = HandshakeRequest { asks_for_staple, ..request };
        let none = |detail| Err(Failure::new(ErrorKind::NoSession, detail));
        match request.shares {
            Err(_) => none("the settings do not allow this program or this host to share sessions"),
            Ok(()) if state.foreign.holds(&request.case(), state.settings.clock.now_ms()) => {
                none("the manager's last handshake with this server failed")
            }
            Ok(()) if needs_session && !request.may_resume(state) => {
                none("no session is stored that it may use, and the program passed no spare socket")
            }
            // A program that cannot fall back has the longest deadline.
            Ok(()) if needs_session => {
                Ok(Self { state, request, deadline: Instant::now() + LONGEST })
            }
            Ok(()) => Ok(Self { state, request, deadline: Instant::now() + PATIENCE }),
        }
    }

    pub(crate) fn wish(&self) -> &Connect {
        self.request.connect
    }

    pub(crate) fn cache_key(&self) -> &CacheKey {
        &self.request.cache_key
    }

    /// Returns the server and the terms for which what is learned about it holds.
    pub(crate) fn case(&self) -> (CacheKey, Terms) {
        self.request.case()
    }

    /// Returns true if there is a session that may be usable.
    pub(crate) fn may_resume(&self) -> bool {
        self.request.may_resume(self.state)
    }

    /// Makes the connection over the program's socket.
    pub(crate) async fn run(&self, tcp: Tcp) -> Result<Unverified, Failure> {
        let (endpoint, attempt) = self.begin(peer(&tcp)?)?;
        let mut upstream = Upstream::new(endpoint, tcp);
        let tried = (&mut upstream, &attempt);
        try_session(self.state, &self.request, tried, self.deadline).await?;
        let (connected, resumes) = self.finish(&upstream, attempt)?;
        if !upstream.renegotiates_securely() {
            if let OfferedSession(Some((offered, _))) = &resumes {
                // Later connections without a spare socket would be made because of it.
                self.state.sessions.refused(self.cache_key(), upstream.peer.ip(), offered);
            }
            let detail = "the server does not support secure renegotiation (RFC 5746)";
            return Err(Failure::new(ErrorKind::TlsFailed, detail));
        }
        let hello = upstream.server_hello();
        let extended_master_secret = hello.map(|hello| hello.has_extended_master_secret);
        let connected = Connected { extended_master_secret, ..connected };
        Ok(Unverified { upstream, connected, resumes })
    }

    /// Begins a handshake with this server, which the caller completes.
    pub(crate) fn begin(&self, peer: SocketAddr) -> Result<(Endpoint, Attempt), Failure> {
        begin(self.state, &self.request, peer, true)
    }

    /// Returns a guard for the session that was offered.
    pub(crate) fn offer<'s>(&'s self, attempt: &'s Attempt, peer: SocketAddr) -> OfferGuard<'s> {
        OfferGuard::new(self.state, &self.request, attempt, peer)
    }

    /// Completes the handshake: reports the outcome, with the stapled OCSP response.
    pub(crate) fn finish(
        &self,
        endpoint: &Endpoint,
        attempt: Attempt,
    ) -> Result<(Connected, OfferedSession), Failure> {
        let (connected, resumes) = finish(self.state, &self.request, endpoint, attempt)?;
        let staple = match &resumes {
            OfferedSession(Some((offered, _))) if connected.resumed => {
                offered.family.stapled.response().filter(|_| self.request.asks_for_staple)
            }
            _ => endpoint.context.staple.as_ref(),
        };
        let staple = staple.map(|staple| Base64(staple.to_vec().into()));
        Ok((Connected { staple, ..connected }, resumes))
    }

    /// Notes that the handshake failed, so that this server is not tried again for a while.
    pub(crate) fn failed(&self) {
        let now_ms = self.state.settings.clock.now_ms();
        self.state.foreign.note(self.case(), now_ms + FOREIGN_MS);
    }

    /// Stores issued sessions: the program has verified the server. Checks the name and the validity here, because the
    /// program may not check the name. Of a server without secure renegotiation nothing is kept: other programs may
    /// resume it, and do not take such servers.
    pub(crate) fn keep(&self, endpoint: &mut Endpoint, resumes: &OfferedSession) {
        let (state, OfferedSession(offered)) = (self.state, resumes);
        let cache_key = &self.request.cache_key;
        let (name, unix_s) = (cache_key.host.server_name(), state.settings.clock.unix_s());
        let own = endpoint.tls.peer_certificates().and_then(<[_]>::first);
        let is_valid = own.is_some_and(|own| valid_for(own, &name, unix_s).is_ok());
        match is_valid && endpoint.renegotiates_securely() {
            // Without certificates there is nothing to store.
            true => {
                let _ = endpoint.keep_sessions(state, cache_key, offered.as_ref());
                endpoint.store_issued(state);
            }
            false => endpoint.keep_nothing(),
        }
    }

    /// Notes that the program rejected the server, or left without having sent anything, as a program does whose own
    /// rule the manager does not know. If a session was resumed, the server may have other certificates now: sessions
    /// with these are not offered before a full handshake has shown which. If none was, nothing is kept.
    pub(crate) fn refused(&self, endpoint: &Endpoint, resumes: &OfferedSession) {
        let (OfferedSession(offered), sessions) = (resumes, &self.state.sessions);
        match (offered.as_ref().filter(|_| endpoint.is_resumed()), endpoint.family()) {
            (Some((offered, _)), _) => {
                sessions.doubted(self.cache_key(), endpoint.peer.ip(), offered);
            }
            (None, Some(family)) => sessions.rejected(self.cache_key(), family),
            (None, None) => {}
        }
    }
}

fn deadline(connect: &Connect) -> Instant {
    Instant::now() + Duration::from_millis(connect.deadline_ms.into())
}

/// Performs the first handshake of a connection, and notes what a failure says about the offered session.
async fn try_session(
    state: &State,
    request: &HandshakeRequest<'_>,
    (upstream, attempt): (&mut Upstream, &Attempt),
    deadline: Instant,
) -> Result<(), Failure> {
    let offer_guard = OfferGuard::new(state, request, attempt, upstream.peer);
    let shaken = shake_hands(state, request, upstream, deadline).await;
    offer_guard.answered(shaken)
}

/// A guard for an offered session. If it is dropped before the server has answered, the session is given up.
pub(crate) struct OfferGuard<'a> {
    sessions: &'a Sessions,
    cache_key: &'a CacheKey,
    address: IpAddr,
    offered: Option<&'a Offered>,
    sent_early: bool,
}

impl<'a> OfferGuard<'a> {
    fn new(
        state: &'a State,
        request: &'a HandshakeRequest<'_>,
        attempt: &'a Attempt,
        peer: SocketAddr,
    ) -> Self {
        Self {
            sessions: &state.sessions,
            cache_key: &request.cache_key,
            address: peer.ip(),
            offered: attempt.offered.as_ref().map(|(offered, _)| offered),
            sent_early: attempt.sent_early,
        }
    }

    /// Notes what the handshake's outcome says about the session.
    pub(crate) fn answered(mut self, shaken: Result<(), Failure>) -> Result<(), Failure> {
        let offered = self.offered.take();
        if let (Err(failure), Some(offered)) = (&shaken, offered) {
            let is_silent = matches!(failure.kind, ErrorKind::Timeout | ErrorKind::Unreachable);
            // A server that is silent when offered a session may answer without one the next time.
            if failure.is_break || is_silent {
                self.sessions.broken(self.cache_key, self.address, offered);
            } else if failure.kind == ErrorKind::TlsFailed {
                self.sessions.refused(self.cache_key, self.address, offered);
            }
        }
        shaken.map_err(|failure| Failure { sent_early: self.sent_early, ..failure })
    }
}

impl Drop for OfferGuard<'_> {
    fn drop(&mut self) {
        if let Some(offered) = self.offered {
            self.sessions.given_up(self.cache_key, offered);
        }
    }
}

impl<'a> HandshakeRequest<'a> {
    fn of(
        state: &State,
        program: &Program,
        (connect, offers): (&'a Connect, Option<&Offers>),
        judge: Arc<Judge>,
    ) -> Result<Self, Failure> {
        let policy = Policy::new(offers, connect.min_version == Some(MinVersion::Tls13));
        let config = state.config(&policy).map_err(|error| {
            Failure::new(ErrorKind::NoSession, format!("the program's own parameters: {error}"))
        })?;
        let identity = state.identities.of(connect.identity.as_ref());
        let invalid = |detail| Failure::new(ErrorKind::ClientCertificateInvalid, detail);
        let identity = identity.map_err(invalid)?;
        let cache_key = CacheKey {
            host: connect.host.clone(),
            port: connect.port.get(),
            partition: Partition {
                uid: program.uid,
                label: connect.label.clone(),
                identity: identity.sha256,
                // No server is told an address.
                is_named: connect.server_name || connect.host.is_address(),
            },
        };
        let shares = shares(state, program, connect, &judge);
        let (policy, early, asks_for_staple) = (policy.into(), None, false);
        Ok(Self {
            connect,
            judge,
            policy,
            config,
            identity,
            cache_key,
            shares,
            early,
            asks_for_staple,
        })
    }

    fn may_resume(&self, state: &State) -> bool {
        state.sessions.may_have(&self.cache_key, self.policy.accepts(), self.asks_for_staple)
    }

    fn case(&self) -> (CacheKey, Terms) {
        (self.cache_key.clone(), self.policy.accepts())
    }
}

fn shares(
    State { settings, overflow_uid, .. }: &State,
    program: &Program,
    connect: &Connect,
    judge: &Judge,
) -> Result<(), Why> {
    match () {
        () if connect.trust == Trust::None || !judge.verifies() => Err(Why::NotVerified),
        () if !connect.share => Err(Why::NotWanted),
        () if program.uid == *overflow_uid => Err(Why::NotShared),
        () if !settings.shares_host(&connect.host) => Err(Why::NotShared),
        () if !settings.shares_program(|| program.name()) => Err(Why::NotShared),
        () => Ok(()),
    }
}

async fn shake_hands(
    state: &State,
    request: &HandshakeRequest<'_>,
    upstream: &mut Upstream,
    deadline: Instant,
) -> Result<(), Failure> {
    upstream.handshake(deadline).await?;
    let is_silent = || state.silent.holds(&request.case(), state.settings.clock.now_ms());
    let waits = upstream.is_to_be_judged() && !is_silent();
    if waits && !upstream.await_verdict(deadline).await? {
        state.silent.note(request.case(), u64::MAX);
    }
    Ok(())
}

fn begin_over(
    state: &State,
    request: &HandshakeRequest<'_>,
    tcp: Tcp,
    offers: bool,
) -> Result<(Upstream, Attempt), Failure> {
    let (endpoint, attempt) = begin(state, request, peer(&tcp)?, offers)?;
    Ok((Upstream::new(endpoint, tcp), attempt))
}

/// Takes a session, if there is one that may be offered, and begins a handshake with it. The TCP
/// connection is established by then, so no ticket is lost to an unreachable server.
fn begin(
    state: &State,
    request: &HandshakeRequest<'_>,
    peer: SocketAddr,
    offers: bool,
) -> Result<(Endpoint, Attempt), Failure> {
    let HandshakeRequest { connect, judge, policy, config, identity, cache_key, .. } = request;
    let shares = &request.shares;
    let unix_s = state.settings.clock.unix_s();
    let taken = shares.and_then(|()| match offers {
        true => take(state, request, peer.ip(), unix_s),
        false => Err(Why::Refused),
    });
    let (offer, why_not) = match taken {
        Ok(offer) => (Some(offer), None),
        Err(why) => (None, Some(why)),
    };
    let early_data = request.early.map(|early| early.data);
    let early_data =
        early_data.filter(|data| offer.as_ref().is_some_and(|of| may_be_early(of, data, connect)));
    let offered = offer.as_ref().map(|offer| (offer.offered(), offer.expires_ms));
    let hint = || state.sessions.group(cache_key, policy.accepts());
    let group = shares.is_ok().then(hint).flatten();
    let connection_store =
        ConnectionStore::new(offer.map(|offer| offer.secret), group, shares.is_ok());
    let mut config = config.clone();
    config.alpn_protocols = connect.alpn.iter().map(|name| name.as_str().into()).collect();
    config.client_auth_cert_resolver = identity.clone();
    config.enable_sni = connect.server_name;
    config.resumption = Resumption::store(connection_store.clone())
        .tls12_resumption(Tls12Resumption::SessionIdOrTickets);
    config.enable_early_data = early_data.is_some();
    let wanted = || tickets_wanted(&state.settings, offered.is_some());
    config.send_ticket_request = shares.is_ok().then(wanted);
    let (judge, policy, identity) = (Arc::clone(judge), Arc::clone(policy), Arc::clone(identity));
    let mut context = HandshakeContext {
        judge,
        policy,
        signed: Terms::NONE,
        unix_s,
        certificate_requested: false,
        staple: None,
    };
    let tls = context::scope(&mut context, || {
        ClientConnection::new(Arc::new(config), connect.host.server_name())
    });
    let wrong = |error: rustls::Error| Failure::of_tls(&error, false, false);
    let mut tls = tls.map_err(wrong)?;
    tls.set_buffer_limit(None);
    let mut sent_early = false;
    if let (Some(data), Some(mut early)) = (early_data, tls.early_data()) {
        use std::io::Write;
        // The data fits; otherwise it would not be offered.
        sent_early = early.write_all(data).is_ok();
    }
    let attempt = Attempt { offered, why_not, sent_early };
    Ok((Endpoint::new(tls, peer, (context, identity), connection_store), attempt))
}

/// Returns the server's address.
fn peer(tcp: &Tcp) -> Result<SocketAddr, Failure> {
    let gone = |_| Failure::broken("the server closed the connection before the handshake");
    let mut peer = tcp.peer_addr().map_err(gone)?;
    peer.set_ip(peer.ip().to_canonical());
    Ok(peer)
}

fn take(
    state: &State,
    request: &HandshakeRequest<'_>,
    address: IpAddr,
    unix_s: u64,
) -> Result<Offer, Why> {
    let now_ms = state.settings.clock.now_ms();
    let host = &request.cache_key.host;
    let stands = |family: &Family| {
        state.judges.still_stands(&request.judge, &family.chain, host, now_ms, unix_s)
    };
    state.sessions.take(&SessionQuery {
        cache_key: &request.cache_key,
        address,
        accepts: request.policy.accepts(),
        // The certificates of the other name might not be those that the program wants.
        may_cross_names: !request.judge.is_programs(),
        asks_for_staple: request.asks_for_staple,
        stands: &stands,
        unix_s,
    })
}

/// Returns true if 0-RTT data may be sent: with a session of the same name only, if all of it fits, and if the ALPN
/// protocol of the session is offered again (RFC 9846, section 4.2.10).
fn may_be_early(offer: &Offer, data: &[u8], connect: &Connect) -> bool {
    let Secret::Tls13(value) = &offer.secret else { return false };
    let fits = !data.is_empty() && data.len() <= value.max_early_data_size() as usize;
    let same_protocol = match &offer.alpn {
        Some(alpn) => connect.alpn.iter().any(|name| name.as_str().as_bytes() == alpn),
        None => connect.alpn.is_empty(),
    };
    fits && same_protocol && offer.session_of.is_none()
}

/// Returns the ticket request of RFC 9149: as many tickets as are kept, and one for a resumed session. Section 3
/// suggests none for a full handshake when a session is offered. But a refused session drops its family, and the next
/// programs need new tickets.
fn tickets_wanted(settings: &Settings, offers: bool) -> TicketRequest {
    TicketRequest { new_session_count: settings.tickets as u8, resumption_count: u8::from(offers) }
}

/// Reports the outcome of a handshake to the session store and to the program.
fn finish(
    state: &State,
    request: &HandshakeRequest<'_>,
    endpoint: &Endpoint,
    attempt: Attempt,
) -> Result<(Connected, OfferedSession), Failure> {
    let Attempt { offered, why_not, sent_early } = attempt;
    let resumed = endpoint.is_resumed();
    let early = sent_early && endpoint.tls.is_early_data_accepted();
    if let Some((offered, _)) = &offered {
        if resumed {
            state.sessions.resumed(&request.cache_key, endpoint.peer.ip(), offered);
        } else {
            state.sessions.refused(&request.cache_key, endpoint.peer.ip(), offered);
        }
        let alpn = endpoint.tls.alpn_protocol();
        if early && alpn != offered.alpn.as_deref() {
            let detail = "the server accepted 0-RTT data for a different ALPN protocol";
            return Err(Failure::new(ErrorKind::TlsFailed, detail));
        }
    }
    if endpoint.has_unusable_staple(state) {
        state.sessions.outdated(&request.cache_key, state.settings.clock.now_ms());
    }
    let session_of = offered.as_ref().and_then(|(offered, _)| offered.session_of.clone());
    let session_of = session_of.filter(|_| resumed);
    let why = match (resumed, &session_of, why_not) {
        (true, None, _) => Why::Resumed,
        (true, Some(_), _) => Why::ResumedOtherName,
        (false, _, Some(why)) => why,
        (false, _, None) => Why::Refused,
    };
    let early_data = match (sent_early, early) {
        (false, _) => EarlyData::NotOffered,
        (true, true) => EarlyData::Accepted,
        (true, false) => EarlyData::Rejected,
    };
    let session_of = session_of.map(|host| host.to_string());
    let connected = Connected { why, session_of, early_data, ..described(request, endpoint)? };
    Ok((connected, OfferedSession(offered)))
}

fn described(request: &HandshakeRequest<'_>, endpoint: &Endpoint) -> Result<Connected, Failure> {
    let tls = &endpoint.tls;
    let version = match tls.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let certificate = |der: &rustls::pki_types::CertificateDer<'_>| {
        let sha256 = crate::protocol::Fingerprint::of(der);
        let is_known = request.connect.known.contains(&sha256);
        let der = (!is_known).then(|| Base64(der.to_vec().into()));
        Certificate { sha256, der }
    };
    let suite = tls.negotiated_cipher_suite();
    let group = tls.negotiated_key_exchange_group();
    let token = random().map_err(|error| Failure::new(ErrorKind::Busy, error.to_string()))?;
    Ok(Connected {
        connection: Token(token),
        resumed: endpoint.is_resumed(),
        why: Why::NoSession,
        version: version.to_owned(),
        cipher: suite.map(|suite| format!("{:?}", suite.suite())).unwrap_or_default(),
        group: group.map(|group| format!("{:?}", group.name())),
        alpn: tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
        peer: endpoint.peer.to_string(),
        session_of: None,
        early_data: EarlyData::NotOffered,
        staple: None,
        extended_master_secret: None,
        chain: tls.peer_certificates().into_iter().flatten().map(certificate).collect(),
    })
}
