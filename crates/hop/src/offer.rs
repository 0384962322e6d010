//! The key that a program's ClientHello offers, and what became of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_client::hop::Hop;
use rejoin_client::protocol::{Connected, HopKey, Token};
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::pending;

/// A manager that has told the server's part has said before what it found.
const PATIENCE: Duration = Duration::from_secs(3);

/// A key for one connection, which is offered beside all that the program would offer.
pub struct Offer {
    pub(crate) identity: Token,
    identity_text: String,
    pub(crate) key: HopKey,
    /// Extensions of the ClientHello that the manager may leave out.
    pub(crate) leaves_out: &'static [u16],
    /// The manager has the connection.
    hop: Mutex<Option<Hop>>,
}

/// A connection that the manager made, and that the program has not verified yet. Dropped, it ends: the
/// manager passes nothing on before it hears that the program goes on.
#[derive(Debug)]
pub struct Taken {
    hop: Hop,
}

impl Offer {
    /// A new one, which is known by its ClientHello from now on, until it is [`withdrawn`](Self::withdraw).
    /// The program does not miss what it asks for by the extensions in `leaves_out`.
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
            hop: Mutex::default(),
        });
        pending::add(&offer);
        Some(offer)
    }

    /// What the ClientHello calls the key.
    pub fn identity(&self) -> &str {
        &self.identity_text
    }

    /// The key.
    pub fn key(&self) -> &[u8; 32] {
        self.key.expose()
    }

    /// No ClientHello will come any more.
    pub fn withdraw(&self) {
        pending::forget(&self.identity);
    }

    /// The handshake is over. `None`: if the manager had a part in it, it was in passing on.
    pub fn taken(&self) -> Option<Taken> {
        self.withdraw();
        self.lock().take().map(|hop| Taken { hop })
    }

    pub(crate) fn given(&self, hop: Hop) {
        *self.lock() = Some(hop);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Hop>> {
        self.hop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Taken {
    /// What the manager found at the server; it came before the manager's part of the handshake.
    pub fn described(&self) -> Option<Connected> {
        self.hop.described(PATIENCE).ok()
    }

    /// The program goes on, and has not verified the server, or not yet. Returns whether the manager has
    /// heard it.
    pub fn accept(&self) -> bool {
        self.hop.accept().is_ok()
    }

    /// The program's verification found nothing wrong: it goes on, and other programs may resume the
    /// session. Returns as above.
    pub fn verified(self) -> bool {
        self.hop.verified().is_ok()
    }
}
