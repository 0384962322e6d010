//! The state that all connections of a manager share.

use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::{ClientConfig, NoKeyLog, version};

use crate::Error;
use crate::counts::Counts;
use crate::downstream::descriptors::Closers;
use crate::downstream::endings::Endings;
use crate::downstream::messages::Rooms;
use crate::downstream::program::overflow_uid;
use crate::downstream::sandbox::namespace_of;
use crate::downstream::succession::Succession;
use crate::downstream::user_threads::UserThreads;
use crate::hop::tls::Hops;
use crate::protocol::{End, Token};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::trust::certificates::Certificates;
use crate::trust::identity::Identities;
use crate::trust::judge::Judges;
use crate::trust::verdicts::Verdicts;
use crate::trust::verifier::Verifier;
use crate::upstream::dial::Lookups;
use crate::upstream::key_shares::READY_MADE;
use crate::upstream::own_connections::OwnConnections;
use crate::upstream::policy::Policy;

/// A connection's view: the settings when it began, and the state that all connections share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Arc<Settings>,
    pub(crate) judges: Judges,
    /// The uid of users that this namespace does not map: it may stand for any of them.
    pub(crate) overflow_uid: u32,
    shared: Arc<Shared>,
}

impl Deref for State {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) certificates: Certificates,
    pub(crate) identities: Identities,
    pub(crate) sessions: Sessions,
    pub(crate) endings: Endings,
    pub(crate) closers: Closers,
    pub(crate) user_threads: UserThreads,
    pub(crate) lookups: Lookups,
    pub(crate) rooms: Rooms,
    /// Servers that do not comment on a client's certificate after the handshake.
    pub(crate) silent: Verdicts,
    /// Servers with which the manager failed to complete a handshake.
    pub(crate) foreign: Verdicts,
    /// Servers that issued no session to a connection of the manager's own.
    pub(crate) barren: Verdicts,
    pub(crate) own_connections: OwnConnections,
    pub(crate) hops: Hops,
    pub(crate) counts: Counts,
    pub(crate) succession: Succession,
    /// The manager's network namespace. `None`: the kernel does not tell.
    pub(crate) namespace: Option<u64>,
    provider: Arc<CryptoProvider>,
    verifier: Arc<Verifier>,
}

impl State {
    pub(crate) fn new(settings: Settings, succession: Succession) -> Result<Self, Error> {
        let settings = Arc::new(settings);
        let shared = Shared::new(&settings, succession)?;
        Ok(Self {
            judges: judges(&shared.provider, &settings)?,
            overflow_uid: overflow_uid(),
            settings,
            shared: Arc::new(shared),
        })
    }

    /// Returns the same state under new settings, for new connections.
    pub(crate) fn renewed(&self, settings: Settings) -> Result<Self, Error> {
        let settings = Arc::new(Settings { clock: self.settings.clock.clone(), ..settings });
        let judges = judges(&self.shared.provider, &settings)?;
        self.sessions.set(Arc::clone(&settings));
        let (overflow_uid, shared) = (self.overflow_uid, Arc::clone(&self.shared));
        Ok(Self { settings, judges, overflow_uid, shared })
    }

    /// Returns how a user's connection ended.
    pub(crate) fn end_of(&self, connection: Token, uid: u32) -> End {
        self.endings.of(connection, uid, self.settings.clock.now_ms())
    }

    /// Returns the configuration that a connection with this policy starts from.
    ///
    /// # Errors
    /// The manager supports nothing that the policy accepts.
    pub(crate) fn config(&self, policy: &Policy) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(policy.provider(&self.provider));
        let clock = Arc::new(self.settings.clock.clone());
        let mut config = ClientConfig::builder_with_details(provider, clock)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier.clone())
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        // No secret is logged, even if SSLKEYLOGFILE is set.
        config.key_log = Arc::new(NoKeyLog);
        Ok(config)
    }
}

fn judges(provider: &Arc<CryptoProvider>, settings: &Settings) -> Result<Judges, Error> {
    Judges::new(Arc::clone(provider), settings.system_bundle.as_deref(), &settings.revoked)
}

impl Shared {
    fn new(settings: &Arc<Settings>, succession: Succession) -> Result<Self, Error> {
        let provider = Arc::new(provider());
        // One verifier for all sessions that are ever stored: rustls compares the objects.
        let verifier = Arc::new(Verifier::new(Arc::clone(&provider)));
        Ok(Self {
            verifier,
            certificates: Certificates::default(),
            identities: Identities::new(Arc::clone(&provider)),
            sessions: Sessions::new(Arc::clone(settings), random()?),
            endings: Endings::default(),
            closers: Closers::new().map_err(|cause| Error::Process {
                what: "prepare for programs that keep it from closing sockets",
                cause,
            })?,
            user_threads: UserThreads::default(),
            lookups: Lookups::default(),
            rooms: Rooms::default(),
            silent: Verdicts::default(),
            foreign: Verdicts::default(),
            barren: Verdicts::default(),
            own_connections: OwnConnections::default(),
            hops: Hops::new().map_err(|error| Error::Process {
                what: "prepare TLS for programs with a TLS library of their own",
                cause: error.into(),
            })?,
            counts: Counts::default(),
            succession,
            namespace: UnixStream::pair().ok().and_then(|(socket, _)| namespace_of(&socket)),
            provider,
        })
    }
}

/// Returns the cryptography of upstream connections. A post-quantum key exchange comes first. AES-256 is the first
/// cipher, as in OpenSSL and GnuTLS: unmodified programs see, and print, the one that was negotiated.
fn provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![&READY_MADE, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        ..aws_lc_rs::default_provider()
    }
}

/// Returns random bytes.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).map_err(|_| Error::Process {
        what: "obtain random bytes",
        cause: std::io::Error::other("the source of randomness failed"),
    })?;
    Ok(bytes)
}
