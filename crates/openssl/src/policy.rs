//! A server's requirements on client certificates, digested to a few bytes.
//!
//! A client that has shown its certificate resumes without showing it again, and OpenSSL does not check it
//! again. OpenSSL keeps session-id contexts apart. But many programs give the same word to all of their contexts, and
//! a server may switch to a stricter virtual server after OpenSSL has resumed. Without Rejoin each context has a cache
//! of its own, within one process and between two reloads. Where all contexts share a cache, a session resumes only
//! under exactly the policy that it was made under.
//!
//! The policy of a connection is known after the servername callback, but sessions are looked up before it. So in a
//! process that asks any client for a certificate, the policy of each context and host is learned from handshakes of
//! the process and its [`family`], together with the settings of the connection that were visible when sessions were
//! looked up. Until a handshake to that host with these settings is done, handshakes are full.
//!
//! Two things cannot be seen: the checks of a program's own callback, and authorities in a folder. nginx is known to put
//! all that it checks by itself into a hash, which is its session-id context ([`crate::known`]). In all other programs, a
//! context that asks for certificates shares with no other, unless the operator vouches
//! ([`crate::Everywhere::vouched`]). What can be seen is in the policy there, too: the same context may ask for something
//! else tomorrow. Its authorities are not: OpenSSL adds those of a folder to the store when they are first needed, in each
//! process by itself, and one more keeps out nobody who was let in. A program that trusts fewer makes another store, at
//! another address, which is in the policy (that of a store which was freed may come back: then OpenSSL alone decides). Revocation lists count as the store had them when the connection began, because
//! they may come from a folder, too.
//!
//! A connection that resumes may not show the policy, because OpenSSL leaves out the certificate callback. The session that
//! it makes has the policy that it was resumed under, and only a demand teaches something.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use foreign_types::ForeignTypeRef;
use libc::{c_int, c_ulong, time_t};
use openssl::sha::Sha256;
use openssl::stack::StackRef;
use openssl::x509::X509Name;
use openssl_sys::{
    EVP_MD, OPENSSL_STACK, SSL, SSL_SESSION, SSL_VERIFY_FAIL_IF_NO_PEER_CERT, SSL_VERIFY_PEER,
    X509_STORE,
};

use crate::attachment::{Attachment, Own, attachment_of};
use crate::board::{self, Certificates};
use crate::clock::libcrypto_now_s;
use crate::family::{self, Family, family};
use crate::{ffi, known};

/// The digest of a server's requirements on client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy([u8; Self::BYTES]);

impl Policy {
    const BYTES: usize = 16;
    /// The policy of a server that asks for no certificates.
    pub(crate) const ASKS_NOBODY: Self = Self([0; Self::BYTES]);
    /// The bit of the first byte that marks the policy of a context that shares with no other. What is learned is the same
    /// for all processes, and [`Judged::resolved`] makes of it what may differ between them.
    const ALONE: u8 = 0x80;
    /// Stands for demands that nobody has seen, of a context that shares with no other. It is never learned.
    const UNSEEN: Self = Self([0xff; Self::BYTES]);
    /// Stands for what a servername callback decides for each connection anew: it is not known ahead.
    const VARIES: Self = Self([0x7e; Self::BYTES]);

    /// Returns the digest, or an empty slice for [`Self::ASKS_NOBODY`].
    pub(crate) fn as_bytes(&self) -> &[u8] {
        if *self == Self::ASKS_NOBODY { &[] } else { &self.0 }
    }

    fn of_digest(digest: &[u8; 32]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&digest[..Self::BYTES]);
        bytes[0] &= !Self::ALONE;
        Self(bytes)
    }

    /// Returns the policy of a context that visibly asks for this, by these revocation lists, and shares with no other.
    fn alone(self, now: &Circumstances, lists: &Held) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"rejoin alone here");
        hash.update(&self.0);
        hash.update(&now.callback.to_le_bytes());
        hash.update(&now.identity);
        hash.update(&now.store.to_le_bytes());
        hash.update(&lists.count.to_le_bytes());
        hash.update(&lists.sum.to_le_bytes());
        let Self(mut bytes) = Self::of_digest(&hash.finish());
        bytes[0] |= Self::ALONE;
        Self(bytes)
    }

    fn is_alone(&self) -> bool {
        self.0[0] & Self::ALONE != 0
    }
}

/// True once a context of the process was seen to ask for certificates.
static ASKS: AtomicBool = AtomicBool::new(false);

/// Notes the verify mode of a context or a connection.
pub(crate) fn note(verify_mode: c_int) {
    if verify_mode & SSL_VERIFY_PEER != 0 {
        ASKS.store(true, Ordering::Relaxed);
    }
}

/// Returns true for a verify mode by which a handshake fails without a client certificate.
pub(crate) fn demands(verify_mode: c_int) -> bool {
    const DEMANDS: c_int = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    verify_mode & (DEMANDS | ffi::SSL_VERIFY_POST_HANDSHAKE) == DEMANDS
}

/// Returns true if a context of the process was seen to ask for certificates.
pub(crate) fn is_anybody_asked() -> bool {
    ASKS.load(Ordering::Relaxed)
}

/// The connections to one host that begin in one context.
pub(crate) struct Judged<'a> {
    own: &'a Own,
    attachment: &'a Attachment,
    /// As the client wrote it.
    host: &'a [u8],
}

/// The subjects of what is learned, in circumstances.
#[derive(Hash)]
enum Subject<'a> {
    /// The policy that connections to a host end with, if these are their circumstances while sessions are looked up.
    Ahead(&'a [u8]),
    /// The same, whatever authorities the store has by then. Only a policy that shares with no other is read there.
    AheadOfMore(&'a [u8]),
    /// The policy in these circumstances, of a connection that began in those.
    Here(&'a Circumstances),
}

/// The inputs of a policy that are quick to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Circumstances {
    mode: c_int,
    /// The flags of the connection, and those of the store, which hold beside them: nginx demands revocation lists there.
    flags: [c_ulong; 2],
    depth: c_int,
    /// The security levels of the connection and of its checks: the bits that a key must have.
    levels: [c_int; 2],
    /// The address of the program's callback, or 0.
    callback: usize,
    /// The context that the connection is in: its address, which another may get later, and its identity, which none
    /// gets again (0 if it has none).
    context: usize,
    identity: [u8; 16],
    /// The address of the store, if the context has it: then it is the same one in all connections and forked processes,
    /// until the program replaces it. 0 for a store that the connection alone has, and where nobody is asked.
    store: usize,
    /// nginx asks responders about clients. A session from before may lack what it needs for that.
    asks_responders: bool,
    authorities: Held,
    lists: Held,
}

/// The certificates, or the revocation lists, that a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Held {
    count: c_int,
    /// The number of those whose time is over.
    over: c_int,
    /// The sum of their digests.
    sum: u64,
}

impl<'a> Subject<'a> {
    /// Returns what is learned ahead of connections to a host that begin so, and in which circumstances.
    fn all_ahead(
        host: &'a [u8],
        began: &Circumstances,
    ) -> impl Iterator<Item = (Self, Circumstances)> {
        let more = (Self::AheadOfMore(host), began.with_any_authorities());
        let more = (began.store != 0).then_some(more);
        [(Self::Ahead(host), *began)].into_iter().chain(more)
    }
}

impl<'a> Judged<'a> {
    /// Returns `None` where nothing is learned, because the program attached sessions itself.
    pub(crate) fn by(attachment: &'a Attachment, host: &'a [u8]) -> Option<Self> {
        let own = attachment.own.as_deref()?;
        Some(Self { own, attachment, host })
    }

    /// Returns the policy that this connection will end up with, or `None` if it is not known. To be called while
    /// sessions are looked up, with what is visible on it now.
    ///
    /// # Safety
    /// `ssl` is valid, and began in this context.
    pub(crate) unsafe fn expected(
        &self,
        ssl: *mut SSL,
        now: Option<&Circumstances>,
    ) -> Option<Policy> {
        let Some(now) = now else { return Some(Policy::ASKS_NOBODY) };
        let learned = self.learned_ahead(now);
        if learned == Some(Policy::VARIES) {
            return None;
        }
        // Nobody vouches for a host that asks only after the servername callback.
        let is_vouched = self.attachment.is_vouched && now.asks();
        // SAFETY: the caller vouches for `ssl`.
        let here = || is_vouched.then(|| unsafe { self.here(ssl, now, now) });
        learned.or_else(here).map(|policy| self.resolved(policy))
    }

    /// Returns the policy of the sessions that this connection makes, after the servername callback. `began` was seen at
    /// its beginning, or when sessions were looked up, under `expected`.
    ///
    /// # Safety
    /// `ssl` is valid, and began in this context.
    pub(crate) unsafe fn asked(
        &self,
        ssl: *mut SSL,
        began: Option<Circumstances>,
        expected: Option<Policy>,
    ) -> Policy {
        // SAFETY: the caller vouches for `ssl`.
        let now = unsafe { Circumstances::seen(ssl) };
        let Some(now) = now else { return Policy::ASKS_NOBODY };
        // SAFETY: the caller vouches for `ssl`.
        let policy = unsafe { self.here(ssl, &now, &began.unwrap_or(now)) };
        self.sharing(policy).into_iter().for_each(|sharing| board::asks(self.own, sharing));
        // SAFETY: the caller vouches for `ssl`; the call reads a flag.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        if is_resumed && policy == Policy::ASKS_NOBODY {
            // OpenSSL has left out the certificate callback, which may demand certificates (`SSL_CTX_set_cert_cb(3)`).
            return expected.unwrap_or_else(|| self.resolved(Policy::UNSEEN));
        }
        // A connection that resumes shows nothing that was not seen when sessions were looked up, unless a callback has
        // changed something since: it may have left out the switch to another context.
        if !(is_resumed && began == Some(now)) {
            if let Some(began) = began.filter(|began| *began != now) {
                self.learn_ahead(&began, policy);
            }
            // A program may have switched contexts before sessions are looked up: then the next connection is here then, too.
            // It begins with what has been added to the store since this one began.
            // SAFETY: the caller vouches for `ssl`.
            let next = unsafe { self.here(ssl, &now, &now) };
            self.learn_ahead(&now, next);
        }
        // The client was checked when the session was made that it has resumed, and not again.
        expected.filter(|_| is_resumed).unwrap_or_else(|| self.resolved(policy))
    }

    /// Returns true if a client without a key was served under this host, by a certificate or by none, in a handshake that
    /// began in this context.
    pub(crate) fn serves_without_keys(&self) -> bool {
        family().is_some_and(|family| family.get(self.key_without_keys(family)).is_some())
    }

    pub(crate) fn learn_without_keys(&self) {
        const SERVED: [u8; Policy::BYTES] = [1; Policy::BYTES];
        if let Some(family) = family().filter(|_| !self.serves_without_keys()) {
            family.put(self.key_without_keys(family), SERVED);
        }
    }

    fn key_without_keys(&self, family: &Family) -> family::Key {
        family.key(&(self.own.identity, "without keys", self.name()))
    }

    /// Learns that nothing is known ahead of connections that begin so.
    pub(crate) fn varies(&self, began: &Circumstances) {
        let name = self.name();
        for (ahead, began) in Subject::all_ahead(&name, began) {
            self.learn(&ahead, &began, Policy::VARIES);
        }
    }

    /// Returns the host as all clients' spellings of it are known.
    fn name(&self) -> Vec<u8> {
        self.host.to_ascii_lowercase()
    }

    fn learn_ahead(&self, began: &Circumstances, policy: Policy) {
        // It varies with whatever authorities.
        if self.learned_ahead(began) == Some(Policy::VARIES) {
            return;
        }
        let name = self.name();
        for (ahead, began) in Subject::all_ahead(&name, began) {
            if self.learned(&ahead, &began) != Some(Policy::VARIES) {
                self.learn(&ahead, &began, policy);
            }
        }
    }

    /// Returns what is known ahead. No authority that is added to a store makes OpenSSL refuse a client: where a context
    /// shares with no other, what was learned with other authorities holds.
    fn learned_ahead(&self, now: &Circumstances) -> Option<Policy> {
        let name = self.name();
        let mut all = Subject::all_ahead(&name, now).filter_map(|(ahead, now)| {
            let is_exact = matches!(ahead, Subject::Ahead(_));
            let holds =
                |policy: &Policy| is_exact || policy.is_alone() || *policy == Policy::VARIES;
            self.learned(&ahead, &now).filter(holds)
        });
        all.next()
    }

    /// Returns the policy in these circumstances, which are the connection's now. It began in others.
    ///
    /// # Safety
    /// `ssl` is valid, and began in this context.
    unsafe fn here(&self, ssl: *mut SSL, now: &Circumstances, began: &Circumstances) -> Policy {
        self.learned(&Subject::Here(began), now).unwrap_or_else(|| {
            // SAFETY: the caller vouches for `ssl`.
            let policy = unsafe { self.policy(ssl, now, began) };
            self.learn(&Subject::Here(began), now, policy);
            policy
        })
    }

    /// # Safety
    /// `ssl` is valid, and began in this context.
    unsafe fn policy(&self, ssl: *mut SSL, now: &Circumstances, began: &Circumstances) -> Policy {
        let Attachment { is_named, is_vouched, .. } = *self.attachment;
        if !now.asks() {
            return Policy::ASKS_NOBODY;
        }
        // SAFETY: the caller vouches for `ssl`.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        // Under a name the session-id context may be another program's.
        // SAFETY: the connection's session, or null.
        let is_known =
            || known::hashes_what_it_checks(now.callback, unsafe { id_context(session) });
        let is_shared = is_vouched || (!is_named && is_known());
        // An authority that is added to the context's store keeps nobody out, and a store that replaces it has another
        // address. A connection's own store may be another one at the same address.
        let is_lasting = !is_shared && now.store != 0;
        // What OpenSSL found in a folder during this handshake, the next process does not have when it looks.
        let before = if is_lasting && began.store == now.store { began } else { now };
        // SAFETY: the caller vouches for `ssl`.
        let seen = if is_lasting { Vec::new() } else { unsafe { believed_by_sha256(ssl) } };
        // SAFETY: the caller vouches for `ssl`.
        let visible = unsafe { fingerprint(ssl, now, before.over(), &seen) };
        if is_shared { visible } else { visible.alone(now, &before.lists) }
    }

    /// Returns the policy that no other context has, if this is one of a context that shares with no other. Where the
    /// program issues tickets, they resume in all processes that have the context, and so do sessions. Where it does not,
    /// sessions resume in this process alone.
    fn resolved(&self, policy: Policy) -> Policy {
        if !policy.is_alone() {
            return policy;
        }
        let mut hash = Sha256::new();
        hash.update(b"rejoin alone");
        hash.update(&policy.0);
        hash.update(&self.own.identity);
        if !self.attachment.issues_tickets {
            hash.update(&this_process().to_le_bytes());
        }
        Policy::of_digest(&hash.finish())
    }

    /// Returns how far sessions resume under a policy. `None` if nobody is asked.
    fn sharing(&self, policy: Policy) -> Option<Certificates> {
        match policy {
            Policy::ASKS_NOBODY => None,
            policy if !policy.is_alone() => Some(Certificates::Shared),
            _ if self.attachment.issues_tickets => Some(Certificates::Context),
            _ => Some(Certificates::Process),
        }
    }

    fn learned(&self, subject: &Subject<'_>, when: &Circumstances) -> Option<Policy> {
        let family = family()?;
        family.get(self.key(family, subject, when)).map(Policy)
    }

    fn learn(&self, subject: &Subject<'_>, when: &Circumstances, policy: Policy) {
        if let Some(family) = family().filter(|_| self.learned(subject, when) != Some(policy)) {
            family.put(self.key(family, subject, when), policy.0);
        }
    }

    fn key(&self, family: &Family, subject: &Subject<'_>, when: &Circumstances) -> family::Key {
        family.key(&(self.own.identity, subject, when))
    }
}

/// Returns a random number that stands for this process, and for none that it forked or was forked from.
fn this_process() -> u64 {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    if PROCESS.load(Ordering::Acquire) != process {
        NUMBER.store(u128::from_ne_bytes(family::random()) as u64, Ordering::Relaxed);
        PROCESS.store(process, Ordering::Release);
    }
    NUMBER.load(Ordering::Relaxed)
}

impl Circumstances {
    pub(crate) fn demands(&self) -> bool {
        demands(self.mode)
    }

    fn asks(&self) -> bool {
        self.mode & SSL_VERIFY_PEER != 0
    }

    /// Returns the number of objects in the store whose time is over: OpenSSL accepts no client by them.
    fn over(&self) -> c_int {
        self.authorities.over + self.lists.over
    }

    /// Returns the same with any authorities in the store, as long as no other of them is over.
    fn with_any_authorities(self) -> Self {
        let over = self.authorities.over;
        Self { authorities: Held { over, ..Held::default() }, ..self }
    }

    /// Returns what is visible on a connection now, or `None` if no context of the process was seen to ask for
    /// certificates, this connection's included.
    ///
    /// # Safety
    /// `ssl` is valid.
    pub(crate) unsafe fn seen(ssl: *mut SSL) -> Option<Self> {
        // SAFETY: the caller vouches for `ssl`.
        note(unsafe { openssl_sys::SSL_get_verify_mode(ssl) });
        // SAFETY: the caller vouches for `ssl`.
        is_anybody_asked().then(|| unsafe { Self::of(ssl) })
    }

    /// Returns what is visible on a connection now.
    ///
    /// # Safety
    /// `ssl` is valid.
    pub(crate) unsafe fn of(ssl: *mut SSL) -> Self {
        // SAFETY: the caller vouches for `ssl`.
        let mode = unsafe { openssl_sys::SSL_get_verify_mode(ssl) };
        // SAFETY: the caller vouches for `ssl`.
        let parameters = unsafe { ffi::SSL_get0_param(ssl) };
        // SAFETY: the connection's own.
        let own_flags = unsafe { ffi::X509_VERIFY_PARAM_get_flags(parameters) };
        // SAFETY: the connection's own.
        let depth = unsafe { ffi::X509_VERIFY_PARAM_get_depth(parameters) };
        // SAFETY: the caller vouches for `ssl`; the call reads a number.
        let level = unsafe { ffi::SSL_get_security_level(ssl) };
        // SAFETY: the connection's own.
        let levels = [level, unsafe { ffi::X509_VERIFY_PARAM_get_auth_level(parameters) }];
        // SAFETY: the caller vouches for `ssl`; the callback is not called.
        let callback = unsafe { ffi::SSL_get_verify_callback(ssl) };
        let callback = callback.map_or(0, |callback| callback as usize);
        // SAFETY: the caller vouches for `ssl`.
        let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
        // SAFETY: the connection holds it, and nothing is attached to a context in use.
        let own = unsafe { attachment_of(context) }.and_then(|found| found.own.as_ref());
        let identity = own.map_or([0; 16], |own| own.identity);
        // Nobody is asked: the store is not read, which a client without a certificate need not wait for.
        let asks = mode & SSL_VERIFY_PEER != 0;
        // SAFETY: the caller vouches for `ssl`.
        let [authorities, lists] = if asks { unsafe { held(ssl) } } else { Default::default() };
        // SAFETY: the caller vouches for `ssl`.
        let store_flags = if asks { unsafe { store_flags(ssl) } } else { 0 };
        // SAFETY: the caller vouches for `ssl`.
        let store = if asks { unsafe { store_of_context(ssl) } } else { 0 };
        // SAFETY: the connection holds the context.
        let asks_responders = asks && unsafe { known::asks_responders(context) }.unwrap_or(false);
        Self {
            mode,
            flags: [own_flags, store_flags],
            depth,
            levels,
            callback,
            context: context as usize,
            identity,
            store,
            asks_responders,
            authorities,
            lists,
        }
    }
}

/// Returns what the store holds: certificates, and revocation lists. The digests are those that OpenSSL keeps with them.
///
/// # Safety
/// `ssl` is valid.
unsafe fn held(ssl: *mut SSL) -> [Held; 2] {
    // SAFETY: a constant of OpenSSL's. It has computed SHA-1 of each certificate, and of no other kind.
    let sha1 = unsafe { openssl_sys::EVP_sha1() };
    // SAFETY: the caller vouches for `ssl`.
    let digests: Vec<(Kind, [u8; 20])> = unsafe { believed(ssl, sha1) };
    let mut held = [Held::default(); 2];
    for (kind, digest) in &digests {
        let held = &mut held[*kind as usize];
        let first = digest.first_chunk().copied().unwrap_or_default();
        held.count += 1;
        held.sum = held.sum.wrapping_add(u64::from_le_bytes(first));
    }
    // SAFETY: the caller vouches for `ssl`.
    let over = unsafe { over(ssl, held.map(|held| held.sum)) };
    [held[0].over, held[1].over] = over;
    held
}

/// Returns the session-id context that a session was made in. Empty without a session.
///
/// # Safety
/// `session` is valid for `'a`, or null.
unsafe fn id_context<'a>(session: *const SSL_SESSION) -> &'a [u8] {
    if session.is_null() {
        return &[];
    }
    let mut length = 0;
    // SAFETY: the caller vouches for `session`.
    let start = unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
    if start.is_null() {
        return &[];
    }
    // SAFETY: the session's own bytes, as many as it says.
    unsafe { std::slice::from_raw_parts(start, length as usize) }
}

/// Digests the verify mode, flags and depth, these authorities and revocation lists, and the names that are sent to
/// clients, of the context that the connection is in now.
///
/// # Safety
/// `ssl` is valid.
unsafe fn fingerprint(
    ssl: *mut SSL,
    now: &Circumstances,
    over: c_int,
    believed: &[[u8; 32]],
) -> Policy {
    let mut hash = Sha256::new();
    let [own_flags, store_flags] = now.flags;
    hash.update(b"rejoin policy");
    hash.update(&now.mode.to_le_bytes());
    hash.update(&own_flags.to_le_bytes());
    hash.update(&now.depth.to_le_bytes());
    hash.update(&over.to_le_bytes());
    now.levels.iter().for_each(|level| hash.update(&level.to_le_bytes()));
    hash.update(&store_flags.to_le_bytes());
    if now.asks_responders {
        hash.update(b"asks");
    }
    believed.iter().for_each(|digest| hash.update(digest));
    hash.update(b"named");
    // SAFETY: the caller vouches for `ssl`.
    unsafe { named(ssl) }.iter().for_each(|digest| hash.update(digest));
    Policy::of_digest(&hash.finish())
}

/// The kinds of objects in a store.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Authority,
    List,
}

/// Returns the digests of the authorities and revocation lists that clients' certificates are checked by, in order.
///
/// # Safety
/// `ssl` is valid.
unsafe fn believed_by_sha256(ssl: *mut SSL) -> Vec<[u8; 32]> {
    // SAFETY: a constant of OpenSSL's.
    let sha256 = unsafe { openssl_sys::EVP_sha256() };
    // SAFETY: the caller vouches for `ssl`.
    let digests = unsafe { believed(ssl, sha256) };
    let mut digests: Vec<_> = digests.into_iter().map(|(_, digest)| digest).collect();
    digests.sort_unstable();
    digests
}

/// Returns the kinds and digests of the authorities and revocation lists that clients' certificates are checked by.
///
/// # Safety
/// `ssl` is valid, and digests of this kind have `N` bytes.
unsafe fn believed<const N: usize>(ssl: *mut SSL, by: *const EVP_MD) -> Vec<(Kind, [u8; N])> {
    let digests = |objects: *const OPENSSL_STACK, count| {
        let object = |at| {
            // SAFETY: within the stack.
            let object = unsafe { openssl_sys::OPENSSL_sk_value(objects, at) };
            // SAFETY: an object of the store; the caller vouches for the digests.
            unsafe { digest(object.cast(), by) }
        };
        (0..count).filter_map(object).collect()
    };
    // SAFETY: the caller vouches for `ssl`.
    unsafe { with_objects(ssl, digests) }
}

/// Returns the store that clients' certificates are checked by: that of the context, unless the program has set one for
/// this purpose.
///
/// # Safety
/// `ssl` is valid.
unsafe fn store(ssl: *mut SSL) -> *mut X509_STORE {
    let mut store: *mut X509_STORE = std::ptr::null_mut();
    let (what, into) = (ffi::SSL_CTRL_GET_VERIFY_CERT_STORE, (&raw mut store).cast());
    // SAFETY: the caller vouches for `ssl`; the call writes a pointer into the variable, which may be null.
    unsafe { openssl_sys::SSL_ctrl(ssl, what, 0, into) };
    if store.is_null() {
        // SAFETY: the caller vouches for `ssl`.
        let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
        // SAFETY: the connection holds the context, which has a store.
        store = unsafe { openssl_sys::SSL_CTX_get_cert_store(context) };
    }
    store
}

/// Returns the address of the store if the context has it, and 0 if the connection alone has it.
///
/// # Safety
/// `ssl` is valid.
unsafe fn store_of_context(ssl: *mut SSL) -> usize {
    // SAFETY: the caller vouches for `ssl`.
    let store = unsafe { store(ssl) };
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: the connection holds the context.
    let own = unsafe { openssl_sys::SSL_CTX_get_cert_store(context) };
    let mut for_clients: *mut X509_STORE = std::ptr::null_mut();
    let (what, into) = (ffi::SSL_CTRL_GET_VERIFY_CERT_STORE, (&raw mut for_clients).cast());
    // SAFETY: the connection holds the context; the call writes a pointer into the variable, which may be null.
    unsafe { openssl_sys::SSL_CTX_ctrl(context, what, 0, into) };
    if store == own || store == for_clients { store as usize } else { 0 }
}

/// Returns the flags of the store.
///
/// # Safety
/// `ssl` is valid.
unsafe fn store_flags(ssl: *mut SSL) -> c_ulong {
    // SAFETY: the caller vouches for `ssl`.
    let store = unsafe { store(ssl) };
    // SAFETY: the connection or its context holds the store.
    let parameters = unsafe { ffi::X509_STORE_get0_param(store) };
    // SAFETY: the store's own.
    unsafe { ffi::X509_VERIFY_PARAM_get_flags(parameters) }
}

/// Lends the objects of [`store`], and their number. Threads that add to the store meanwhile wait.
///
/// # Safety
/// `ssl` is valid.
unsafe fn with_objects<T>(ssl: *mut SSL, look: impl FnOnce(*const OPENSSL_STACK, c_int) -> T) -> T {
    // SAFETY: the caller vouches for `ssl`.
    let store = unsafe { store(ssl) };
    // SAFETY: the connection or its context holds the store.
    unsafe { ffi::X509_STORE_lock(store) };
    // SAFETY: the store is locked, so that nobody adds to it.
    let objects = unsafe { openssl_sys::X509_STORE_get0_objects(store) };
    // SAFETY: a stack.
    let count = unsafe { openssl_sys::OPENSSL_sk_num(objects.cast()) };
    let looked = look(objects.cast(), count);
    // SAFETY: locked above.
    unsafe { ffi::X509_STORE_unlock(store) };
    looked
}

/// Returns the kind and the digest of a certificate or a revocation list.
///
/// # Safety
/// `object` is valid, and digests of this kind have `N` bytes.
unsafe fn digest<const N: usize>(
    object: *mut openssl_sys::X509_OBJECT,
    by: *const EVP_MD,
) -> Option<(Kind, [u8; N])> {
    let mut digest = [0; N];
    let (start, length) = (digest.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the caller vouches for `object`; null if it is no certificate.
    let certificate = unsafe { openssl_sys::X509_OBJECT_get0_X509(object) };
    // SAFETY: the caller vouches for `object`; null if it is no revocation list.
    let list = unsafe { ffi::X509_OBJECT_get0_X509_CRL(object) };
    let (kind, done) = if !certificate.is_null() {
        // SAFETY: the certificate is valid, and the digest has as many bytes.
        let done = unsafe { openssl_sys::X509_digest(certificate, by, start.cast(), length) };
        (Kind::Authority, done)
    } else if !list.is_null() {
        // SAFETY: the list is valid, and the digest has as many bytes.
        (Kind::List, unsafe { ffi::X509_CRL_digest(list, by, start, length) })
    } else {
        return None;
    };
    (done == 1).then_some((kind, digest))
}

/// Returns how many certificates, and how many revocation lists, are over. They are counted once in a second of OpenSSL's
/// clock for the store with these sums, because many servers have the authorities of the whole world.
///
/// # Safety
/// `ssl` is valid.
unsafe fn over(ssl: *mut SSL, sums: [u64; 2]) -> [c_int; 2] {
    thread_local! {
        static LAST: Cell<([u64; 2], time_t, [c_int; 2])> = const { Cell::new(([0; 2], 0, [0; 2])) };
    }
    let now_s = libcrypto_now_s();
    let (of, at_s, counted) = LAST.get();
    if (of, at_s) == (sums, now_s) {
        return counted;
    }
    let count = |objects: *const OPENSSL_STACK, count| {
        let mut counted = [0; 2];
        for at in 0..count {
            // SAFETY: within the stack.
            let object = unsafe { openssl_sys::OPENSSL_sk_value(objects, at) };
            // SAFETY: an object of the store.
            if let Some(kind) = unsafe { kind_if_over(object.cast()) } {
                counted[kind as usize] += 1;
            }
        }
        counted
    };
    // SAFETY: the caller vouches for `ssl`.
    let counted = unsafe { with_objects(ssl, count) };
    LAST.set((sums, now_s, counted));
    counted
}

/// Returns the kind of a certificate or of a revocation list whose time is over.
///
/// # Safety
/// `object` is valid.
unsafe fn kind_if_over(object: *mut openssl_sys::X509_OBJECT) -> Option<Kind> {
    // SAFETY: the caller vouches for `object`; null if it is no certificate.
    let certificate = unsafe { openssl_sys::X509_OBJECT_get0_X509(object) };
    // SAFETY: the caller vouches for `object`; null if it is no revocation list.
    let list = unsafe { ffi::X509_OBJECT_get0_X509_CRL(object) };
    let (kind, end) = if !certificate.is_null() {
        // SAFETY: the certificate is valid.
        (Kind::Authority, unsafe { ffi::X509_get0_notAfter(certificate.cast()) })
    } else if !list.is_null() {
        // SAFETY: the list is valid, and may have no end.
        (Kind::List, unsafe { ffi::X509_CRL_get0_nextUpdate(list) })
    } else {
        return None;
    };
    // SAFETY: a time. -1 is a time in the past.
    (!end.is_null() && unsafe { ffi::X509_cmp_current_time(end) } < 0).then_some(kind)
}

/// Returns the digests of the authorities' names that are sent to clients.
///
/// # Safety
/// `ssl` is valid.
unsafe fn named(ssl: *mut SSL) -> Vec<[u8; 32]> {
    // SAFETY: the caller vouches for `ssl`.
    let names = unsafe { ffi::SSL_get_client_CA_list(ssl) };
    if names.is_null() {
        return Vec::new();
    }
    // SAFETY: the connection's or its context's own list, which lives as long.
    let names: &StackRef<X509Name> = unsafe { StackRef::from_ptr(names.cast()) };
    names
        .iter()
        .filter_map(|name| name.to_der().ok())
        .map(|der| openssl::sha::sha256(&der))
        .collect()
}
