//! The savings from sharing sessions (paper 004 §IV.B).
//!
//! A [`Sharing`] takes the handshakes of captures, one capture after the other. It counts the full
//! handshakes that would remain if applications reused their own sessions, if all applications of a
//! device shared theirs, and if the servers of a provider shared theirs too.
//!
//! Only classified handshakes count. They must begin with the first byte of their connection, use
//! no client certificate nor resume a session that was made with one, and not be contained in an
//! earlier capture.

mod best;
mod counted;
mod duplicates;
mod findings;
mod interned;
mod lifetimes;
mod measured;
mod not_resumed;
mod over_time;
mod services;
mod steps;
mod uses;

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::digest::Digest;
use crate::handshake::Handshake;
use crate::networks::Networks;
use counted::{CountedHandshake, Ids, Network, Target};
use duplicates::{Mark, Outcome, Seen, SeenHandshakes};
use interned::{InternedCertificates, InternedTexts, NONE};
use uses::Uses;

pub use findings::{Bytes, Findings, PassedOver, Resumed, Wire};
pub use lifetimes::Assumptions;
pub use measured::{Measured, Times};
pub use not_resumed::{Cause, CauseCount, NotResumed, Party};
pub use over_time::{Interval, OverTime};
pub use services::{Host, Service};
pub use steps::Counts;

/// The rules that group handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    /// The unit that counts as one application.
    pub application: Application,
    /// The applications that could share sessions on one device.
    pub device: Device,
    /// Seed of the hashes. Keep it secret if captures may be hostile.
    pub hash_seed: u64,
}

/// The unit that counts as one application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Application {
    /// The name passed to [`Sharing::begin`] for the capture.
    #[default]
    Capture,
    /// The client's address.
    Client,
    /// The client's program where it is known, else the JA4 fingerprint of its ClientHello, else the name
    /// passed to [`Sharing::begin`].
    Program,
}

/// The applications that could share sessions on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// All of them: they count as programs of one device whatever their addresses, as in the paper.
    #[default]
    One,
    /// Those with the same client address.
    Client,
}

/// Counts the savings from sharing. It keeps about 32 bytes for each handshake, 12 more while its capture is read, 12
/// for each ticket and session ID that it shows, and each distinct name, address and list of certificate names once.
#[derive(Debug)]
pub struct Sharing {
    scope: Scope,
    networks: Networks,
    texts: InternedTexts,
    certificates: InternedCertificates,
    seen: SeenHandshakes,
    /// The tickets and session IDs that were issued where a client certificate was seen.
    with_certificate: HashSet<Digest, FixedState>,
    application: u32,
    /// The handshakes that count, and behind them all those of the current capture, not yet sorted.
    uses: Uses,
    /// The identities of those of the current capture.
    marks: Vec<Mark>,
    passed_over: PassedOver,
}

impl Sharing {
    /// Creates an empty count.
    pub fn new(scope: Scope, networks: Networks) -> Self {
        let seed = || FixedState::with_seed(scope.hash_seed);
        Self {
            scope,
            networks,
            texts: InternedTexts::new(seed()),
            certificates: InternedCertificates::new(seed()),
            seen: SeenHandshakes::new(scope.hash_seed),
            with_certificate: HashSet::with_hasher(seed()),
            application: 0,
            uses: Uses::new(seed()),
            marks: Vec::new(),
            passed_over: PassedOver::default(),
        }
    }

    /// Begins a capture. Give the captures in the order of their names.
    pub fn begin(&mut self, application: &str) {
        self.settle(false);
        self.application = self.texts.intern(application);
    }

    /// Adds a handshake of the current capture, in any order.
    pub fn add(&mut self, handshake: &Handshake) {
        if handshake.client_auth == Some(true) {
            let issued = [handshake.issued_ticket_hash, handshake.session_id_hash];
            self.with_certificate.extend(issued.into_iter().flatten());
        }
        let used = self.used(handshake);
        self.uses.add(&used, handshake);
        self.marks.push(self.seen.mark(handshake));
    }

    /// Ends the current capture. Returns for each of its handshakes, in the order in which they were added, whether it is
    /// new: no copy, and in no earlier capture, not even in part.
    pub fn end(&mut self) -> Vec<bool> {
        self.settle(true)
    }

    /// Returns the results, with at most `top` services.
    pub fn findings(mut self, assumptions: &Assumptions, top: usize) -> Findings {
        self.settle(false);
        drop(self.seen);
        self.passed_over.client_certificate +=
            self.uses.remove_resumptions(&mut self.with_certificate);
        drop(self.with_certificate);
        let uses = &self.uses;
        let stays_full = steps::StaysFull::of(uses, &self.certificates, &self.texts);
        let (services, top_services) = services::top(uses, &stays_full, &self.texts, top);
        Findings {
            networks_given: !self.networks.is_empty(),
            applications: distinct(uses.iter().map(|used| used.ids.application)),
            services,
            hosts: distinct(uses.iter().map(|used| used.ids.host)),
            ideal: stays_full.counts(uses),
            realistic: lifetimes::counts(uses, assumptions),
            resumed_by: Resumed::of(uses),
            passed_over: self.passed_over,
            without_time: uses.iter().filter(|used| !used.has_time).count() as u64,
            measured: measured::of(uses),
            over_time: OverTime::of(uses),
            not_resumed: not_resumed::of(uses, &self.texts, top),
            wire: Wire::of(uses),
            top_services,
        }
    }

    /// Brings the handshakes of the current capture into the order of time, and keeps those that count. If asked, tells
    /// which are new.
    fn settle(&mut self, tells_new: bool) -> Vec<bool> {
        let mut marks = std::mem::take(&mut self.marks);
        let first = self.uses.len() - marks.len();
        let begun_us = |uses: &Uses, place: usize| uses.begun_us((first + place) as u32);
        let mut order: Vec<u32> = (0..marks.len() as u32).collect();
        order.sort_unstable_by_key(|at| (begun_us(&self.uses, *at as usize), *at));
        uses::arrange(&mut marks, &order);
        self.uses.arrange(first, &order);
        if !tells_new {
            order = Vec::new();
        }
        let nature = |place: usize| self.uses.nature((first + place) as u32);
        let seen = self.seen.see(&marks, nature, |place| begun_us(&self.uses, place));
        drop(marks);
        let mut is_new = vec![false; order.len()];
        for (seen, at) in seen.iter().zip(order) {
            is_new[at as usize] = *seen == Seen::New;
        }
        let passed_over = &mut self.passed_over;
        let counts = seen.into_iter().enumerate().map(|(place, seen)| {
            let reason = match nature(place).outcome {
                _ if seen == Seen::Duplicate => &mut passed_over.duplicate,
                _ if seen == Seen::Copy => &mut passed_over.copy,
                Outcome::Counts => return true,
                Outcome::Unclassified => &mut passed_over.unclassified,
                Outcome::Indirect => &mut passed_over.indirect,
                Outcome::ClientCertificate => &mut passed_over.client_certificate,
            };
            *reason += 1;
            false
        });
        let counts: Vec<bool> = counts.collect();
        self.uses.keep(first, &counts);
        is_new
    }

    fn used(&mut self, handshake: &Handshake) -> CountedHandshake {
        let client = self.texts.address(handshake.client());
        let host = self.texts.address(handshake.server_ip);
        let name = handshake.sni.as_deref().map(|name| self.texts.name(name));
        let asn = self.networks.asn(handshake.server_ip);
        let certificate = handshake.certificate.as_ref();
        let ids = Ids {
            application: match self.scope.application {
                Application::Capture => self.application,
                Application::Client => client,
                Application::Program => self.program(handshake),
            },
            device: match self.scope.device {
                Device::One => 0,
                Device::Client => client,
            },
            client,
            host,
            target: name.map_or(Target::Host(host), Target::Name),
            network: asn.map_or(Network::Host(host), Network::Asn),
            certificate: certificate
                .map_or(NONE, |c| self.certificates.intern(&c.sha256, &c.names)),
        };
        CountedHandshake::of(handshake, ids)
    }
}

impl Sharing {
    fn program(&mut self, handshake: &Handshake) -> u32 {
        match (&handshake.program, &handshake.ja4) {
            (Some(program), _) => self.texts.intern(&format!("program {program}")),
            (None, Some(ja4)) => self.texts.intern(&format!("ja4 {ja4}")),
            (None, None) => self.application,
        }
    }
}

fn distinct(ids: impl Iterator<Item = u32>) -> u64 {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len() as u64
}
