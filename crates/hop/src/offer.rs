//! The key that a program's ClientHello offers, the offers whose ClientHello is still to come, and the hop that
//! an offer leads to.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rejoin_abi::gate::{Gated, Locked, outside};
use rejoin_client::hop::Hop;
use rejoin_client::protocol::{Connected, HopKey, Token};
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::held::Held;
use crate::hello::{ClientHello, STATUS_REQUEST};
use crate::waiting::{self, Waiting};

/// The longest wait for the manager's description of the server. The manager sends it before its part of the
/// handshake with the program, so that it is there already unless the manager fails.
const PATIENCE: Duration = Duration::from_secs(3);

/// A key for one connection. The ClientHello offers it beside everything that the program offers by itself.
pub struct Offer {
    pub(crate) identity: Token,
    identity_text: String,
    pub(crate) key: HopKey,
    /// Extensions of the ClientHello that the manager may leave out.
    pub(crate) leaves_out: &'static [u16],
    /// The ClientHello's wishes that the manager serves, once they are known.
    asks: OnceLock<Asks>,
    /// The hop, once the manager has the connection.
    hop: Mutex<Option<Held<Hop>>>,
    /// The descriptor under which the program waits for the manager's decision, or -1.
    waits_at: AtomicI32,
}

/// Extensions of a ClientHello that matter where the server's answer is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asks {
    /// A stapled OCSP response (RFC 6066, section 8).
    pub staple: bool,
    /// Extended master secrets (RFC 7627).
    pub extended_master_secret: bool,
}

/// A connection that the manager made, and that the program has not verified yet. Dropping it ends the connection: the
/// manager forwards nothing before it hears that the program goes on.
#[derive(Debug)]
pub struct Taken {
    hop: Held<Hop>,
}

impl Offer {
    /// Makes an offer. From now on the ClientHello with its key is recognised, until the offer is
    /// [withdrawn](Self::withdraw). The program can do without the extensions in `leaves_out`.
    pub fn make(leaves_out: &'static [u16]) -> Option<Arc<Self>> {
        let mut random = Zeroizing::new([0_u8; 48]);
        let made = getrandom(&mut *random, GetRandomFlags::empty());
        if made.ok()? < random.len() {
            return None;
        }
        let identity = Token(*random.first_chunk()?);
        let key = Zeroizing::new(*random.last_chunk()?);
        let offer = Arc::new(Self {
            identity,
            identity_text: identity.to_string(),
            key: key.into(),
            leaves_out,
            asks: OnceLock::new(),
            hop: Mutex::default(),
            waits_at: AtomicI32::new(-1),
        });
        let mut pending = lock_pending();
        if pending.len() < MOST_PENDING {
            pending.insert(identity.0, Arc::clone(&offer));
        }
        count(&pending);
        drop(pending);
        Some(offer)
    }

    /// Returns the PSK identity in the ClientHello.
    pub fn identity(&self) -> &str {
        &self.identity_text
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8; 32] {
        self.key.expose()
    }

    /// Forgets the offer: its ClientHello will not come any more.
    ///
    /// A forked child may do so while its parent goes on with the connection, or the other way round. So nothing is said
    /// to the manager, and nothing read: a connection that no process has any more ends by itself.
    pub fn withdraw(&self) {
        drop(self.take_waiting());
    }

    /// Ends the wait for the ClientHello, or for the manager's decision. Returns the connection if it was waiting for
    /// that.
    fn take_waiting(&self) -> Option<Waiting> {
        if PENDING.load(Ordering::Relaxed) > 0 {
            take_pending(&self.identity);
        }
        let descriptor = self.waits_at.swap(-1, Ordering::Relaxed);
        if descriptor < 0 { None } else { waiting::take(descriptor, self) }
    }

    /// Returns the hop after the handshake. `None`: the manager took no part in the connection, or only forwarded it.
    pub fn taken(&self) -> Option<Taken> {
        let ended = self.take_waiting().and_then(Waiting::end);
        ended.or_else(|| self.lock().take()).map(|hop| Taken { hop })
    }

    /// Records what the ClientHello asks for.
    pub(crate) fn note(&self, hello: &ClientHello<'_>) {
        // A ClientHello is looked for once.
        let _ = self.asks.set(Asks {
            staple: hello.wants_more.contains(&STATUS_REQUEST),
            extended_master_secret: hello.offers_extended_master_secret,
        });
    }

    /// Returns what the ClientHello asks the server for: nothing before it is sent.
    pub fn asks(&self) -> Asks {
        self.asks.get().copied().unwrap_or_default()
    }

    /// Records that the manager has the connection.
    pub(crate) fn given(&self, hop: Hop) {
        *self.lock() = Some(Held::new(hop));
    }

    /// Records that the manager has not decided yet.
    pub(crate) fn waits_at(&self, descriptor: RawFd) {
        self.waits_at.store(descriptor, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held<Hop>>> {
        self.hop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Taken {
    /// Returns the manager's description of the server. The manager sends it before its part of the handshake.
    pub fn described(&self) -> Option<Connected> {
        let hop = self.hop.get()?;
        outside(|| hop.described(PATIENCE)).ok()
    }

    /// Tells the manager that the program goes on, and has not verified the server, or not yet. Returns true if the
    /// manager has heard it.
    pub fn accept(&self) -> bool {
        self.hop.get().is_some_and(|hop| hop.accept().is_ok())
    }

    /// Tells the manager that the program's verification found nothing wrong, so that other programs may resume the
    /// session. Returns true if the manager has heard it.
    pub fn verified(self) -> bool {
        self.hop.take().is_some_and(|hop| hop.verified().is_ok())
    }
}

/// The number of offers whose ClientHello is still to come. At zero, nothing that a program sends is read.
pub(crate) static PENDING: AtomicUsize = AtomicUsize::new(0);
/// The most offers that are pending at a time. A connection beyond them goes directly.
const MOST_PENDING: usize = 4_096;

type Pending = BTreeMap<[u8; 16], Arc<Offer>>;

static OFFERS: Gated<Pending> = Gated::new(Pending::new());

/// Removes and returns the pending offer of this identity.
pub(crate) fn take_pending(identity: &Token) -> Option<Arc<Offer>> {
    let mut pending = lock_pending();
    let taken = pending.remove(&identity.0);
    count(&pending);
    taken
}

fn count(pending: &Pending) {
    PENDING.store(pending.len(), Ordering::Relaxed);
}

fn lock_pending() -> Locked<'static, Pending> {
    OFFERS.lock()
}
