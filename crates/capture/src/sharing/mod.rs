//! What sharing sessions would save (paper 004 §IV.B).
//!
//! A [`Sharing`] is given the handshakes of captures, one capture after the other, and counts how
//! many full handshakes there would have been if applications had reused their own sessions, if all
//! applications of a device had shared theirs, and if the servers of a provider had, too.
//!
//! Only classified handshakes count, that began with the first byte of their connection, used no
//! client certificate, and do not stand in an earlier capture.

mod findings;
mod lifetimes;
mod once;
mod services;
mod steps;
mod texts;
mod used;

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::handshake::{Class, Handshake};
use crate::networks::Networks;
use once::{Mark, Once};
use texts::{Certificates, NONE, Texts};
use used::{Asked, Network, Places, Use};

pub use findings::{Bytes, Findings, PassedOver, Resumed, Wire};
pub use lifetimes::Assumptions;
pub use services::{Host, Service};
pub use steps::Counts;

/// How handshakes are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    /// What an application is.
    pub application: Application,
    /// Which applications could share on their device.
    pub device: Device,
    /// Seeds the hashes: a secret, if captures may be hostile.
    pub hash_seed: u64,
}

/// What an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Application {
    /// What [`Sharing::begin`] says of the capture.
    #[default]
    Capture,
    /// The client's address.
    Client,
}

/// Which applications could share on their device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// All: whatever their addresses were, they count as programs of one device, as in the paper.
    #[default]
    One,
    /// Those with the same address.
    Client,
}

/// Counts what sharing would save. It keeps about 100 bytes for each handshake that counts, those
/// of the last capture twice, and each distinct name, address and list of a certificate's names once.
#[derive(Debug)]
pub struct Sharing {
    scope: Scope,
    networks: Networks,
    texts: Texts,
    certificates: Certificates,
    once: Once,
    application: u32,
    uses: Vec<Use>,
    /// Of this capture, not yet in order.
    pending: Vec<Pending>,
    passed_over: PassedOver,
}

#[derive(Debug)]
struct Pending {
    begun_us: i64,
    mark: Mark,
    outcome: Outcome,
}

/// What a handshake counts as, if it is not a duplicate.
#[derive(Debug)]
enum Outcome {
    Counts(Use),
    Unclassified,
    Indirect,
    ClientCertificate,
}

impl Sharing {
    /// Nothing was seen yet.
    pub fn new(scope: Scope, networks: Networks) -> Self {
        let seed = || FixedState::with_seed(scope.hash_seed);
        Self {
            scope,
            networks,
            texts: Texts::new(seed),
            certificates: Certificates::new(seed()),
            once: Once::new(scope.hash_seed),
            application: 0,
            uses: Vec::new(),
            pending: Vec::new(),
            passed_over: PassedOver::default(),
        }
    }

    /// A capture begins. Captures come in the order of their names.
    pub fn begin(&mut self, application: &str) {
        self.end();
        self.application = self.texts.place(application);
    }

    /// The next handshake of this capture, in any order.
    pub fn add(&mut self, handshake: &Handshake) {
        let outcome = match handshake {
            Handshake { cls: Class::Unknown | Class::NoServerhello, .. } => Outcome::Unclassified,
            Handshake { direct: false, .. } => Outcome::Indirect,
            Handshake { client_auth: Some(true), .. } => Outcome::ClientCertificate,
            _ => Outcome::Counts(self.used(handshake)),
        };
        let (begun_us, mark) = (used::begun_us(handshake), self.once.mark(handshake));
        self.pending.push(Pending { begun_us, mark, outcome });
    }

    /// What was found, with so many services at most.
    pub fn findings(mut self, assumptions: &Assumptions, top: usize) -> Findings {
        self.end();
        let uses = &self.uses;
        let stays_full = steps::Stays::of(uses, &self.certificates, &self.texts);
        let (services, top_services) = services::top(uses, &stays_full, &self.texts, top);
        Findings {
            applications: distinct(uses.iter().map(|used| used.places.application)),
            services,
            hosts: distinct(uses.iter().map(|used| used.places.host)),
            ideal: stays_full.counts(uses),
            realistic: lifetimes::counts(uses, assumptions),
            resumed_by: Resumed::of(uses),
            passed_over: self.passed_over,
            wire: Wire::of(uses),
            top_services,
        }
    }

    /// The capture is over: its handshakes count in order of time.
    fn end(&mut self) {
        self.pending.sort_by_key(|pending| pending.begun_us);
        for (place, pending) in self.pending.drain(..).enumerate() {
            let passed_over = &mut self.passed_over;
            let reason = match pending.outcome {
                _ if !self.once.is_new(pending.mark, place) => &mut passed_over.duplicate,
                Outcome::Counts(used) => {
                    self.uses.push(used);
                    continue;
                }
                Outcome::Unclassified => &mut passed_over.unclassified,
                Outcome::Indirect => &mut passed_over.indirect,
                Outcome::ClientCertificate => &mut passed_over.client_certificate,
            };
            *reason += 1;
        }
        self.once.end();
    }

    fn used(&mut self, handshake: &Handshake) -> Use {
        let client = self.texts.address(handshake.client_ip);
        let host = self.texts.address(handshake.server_ip);
        let name = handshake.sni.as_deref().map(|name| self.texts.name(name));
        let asn = self.networks.asn(handshake.server_ip);
        let certificate = handshake.certificate.as_ref();
        let places = Places {
            application: match self.scope.application {
                Application::Capture => self.application,
                Application::Client => client,
            },
            device: match self.scope.device {
                Device::One => 0,
                Device::Client => client,
            },
            host,
            asked: name.map_or(Asked::Host(host), Asked::Name),
            network: asn.map_or(Network::Host(host), Network::Asn),
            certificate: certificate.map_or(NONE, |c| self.certificates.place(&c.sha256, &c.names)),
        };
        Use::of(handshake, places)
    }
}

fn distinct(places: impl Iterator<Item = u32>) -> u64 {
    places.collect::<HashSet<_>>().len() as u64
}
