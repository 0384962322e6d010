//! The board: notes of a family's processes on their contexts and handshakes, for `rejoin status`.
//!
//! It is the start of the family's memory. Another process finds that memory by its name in `/proc/PID/maps`, copies it
//! and reads the copy ([`Notes::read`]). The notes hold no secret, and nothing in Rejoin depends on them. Nobody waits:
//! a number that two processes write at once is one of the two, and a text may be a mix.
//!
//! A note costs a few relaxed additions and no system call, but for the first one of a process and of a context.

mod notes;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use foreign_types::ForeignTypeRef;
use openssl::nid::Nid;
use openssl::ssl::SslRef;
use openssl_sys::SSL;
use rejoin_store::now_ms;

use crate::attachment::Own;
use crate::family::{Family, family};
use crate::ffi;

pub use notes::{ContextNotes, Handshakes, Notes, ProcessNotes, Unreadable};

/// The board, which begins as zeros.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Board {
    /// The words up to the version stay in place whatever the layout.
    magic: AtomicU64,
    layout: AtomicU64,
    version: Text<3>,
    standing: AtomicU64,
    features: AtomicU64,
    /// The connections that were made, and those that began to shake hands, as a client and as a server.
    connections: AtomicU64,
    connecting: AtomicU64,
    serving: AtomicU64,
    /// Connections whose context has no attachment, because it was made before Rejoin came.
    unattached: AtomicU64,
    /// The claims of processes, which number them.
    claims: AtomicU64,
    /// Contexts that found no slot, once for each process that looked for one.
    refused: AtomicU64,
    /// The handshakes of slots that another context or process got, and of contexts while they had none.
    earlier_contexts: Counts,
    earlier_processes: Counts,
    texts: [Text<31>; Subject::COUNT],
    contexts: [ContextSlot; CONTEXTS],
    processes: [ProcessSlot; PROCESSES],
}

const MAGIC: u64 = u64::from_ne_bytes(*b"rejoin-b");
/// The version of this layout.
const LAYOUT: u64 = 2;
const CONTEXTS: usize = 128;
const PROCESSES: usize = 256;
/// The time after which another context may have the slot of one without a connection.
const IDLE_MS: u64 = 60_000;
/// The attempts to get a slot that others want, too.
const ATTEMPTS: usize = 4;

/// The subject of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The cache's name.
    Cache,
    /// The folder of the caches.
    Folder,
    /// The file that the settings were read from.
    Configuration,
    /// The name under which contexts share sessions with those of other programs.
    Context,
    /// The reason for which Rejoin is not attached, or has no cache.
    Trouble,
}

impl Subject {
    const COUNT: usize = 5;
}

/// The state of the library in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is attached, and opens its cache with the first handshake.
    Ready = 1,
    /// It is attached, and its cache is open.
    Open,
    /// It is attached, and its cache cannot be opened. It tries again.
    Trying,
    /// It gave up: the server runs without Rejoin.
    GaveUp,
}

/// The settings that a board shows as one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// No context issues stateless tickets.
    pub stateful: bool,
    /// A session of TLS 1.3 resumes at most once.
    pub single_use: bool,
    /// Stateless tickets are sealed under the cache's keys.
    pub shares_ticket_keys: bool,
}

/// The outcome of the beginning of a server's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Rejoin serves the connection.
    Attached = 1,
    /// There is no cache yet.
    NoCache,
    /// The program accepts early data, and OpenSSL's replay protection needs its own cache.
    EarlyData,
    /// The program switched resumption off.
    Off,
}

/// The sharing of the sessions of clients that are asked for certificates, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificates {
    /// They resume in all contexts that ask for the same.
    Shared = 1,
    /// They resume in their context, in all processes that were forked with it.
    Context,
    /// They resume in their context, in their process alone.
    Process,
}

/// A text, of which only the beginning is kept.
#[derive(Debug)]
#[repr(C)]
struct Text<const WORDS: usize> {
    bytes: AtomicU64,
    words: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C)]
struct Counts {
    full: AtomicU64,
    resumed: AtomicU64,
}

/// The notes on a context, which is the same in all processes that were forked after it was made.
#[derive(Debug)]
#[repr(C, align(64))]
struct ContextSlot {
    /// A digest of the context's identity; 0 in a free slot.
    mark: AtomicU64,
    outcome: AtomicU64,
    /// The connections that began, by their outcome.
    began: [AtomicU64; 4],
    handshakes: Counts,
    last_ms: AtomicU64,
    certificates: AtomicU64,
    /// The name in the server's certificate.
    name: Text<5>,
}

/// The notes on a process that has shaken hands as a server.
#[derive(Debug)]
#[repr(C, align(64))]
struct ProcessSlot {
    /// The slot's place and the number of the claim; 0 in a free slot.
    claim: AtomicU64,
    id: AtomicU64,
    since_ms: AtomicU64,
    last_ms: AtomicU64,
    handshakes: Counts,
}

/// A context, as one process knows it.
#[derive(Debug)]
pub(crate) struct Place {
    mark: u64,
    /// The place of its slot, or [`Place::NONE`].
    at: AtomicUsize,
    /// The time at which it last found no slot, or 0.
    refused_ms: AtomicU64,
}

impl Place {
    const NONE: usize = usize::MAX;

    /// Makes the place of a context, from its identity.
    pub(crate) fn of(identity: &[u8; 16]) -> Self {
        Self::marked(family().map_or(1, |family| family.mark(identity)))
    }

    const fn marked(mark: u64) -> Self {
        Self { mark, at: AtomicUsize::new(Self::NONE), refused_ms: AtomicU64::new(0) }
    }

    /// Returns true for a while after it found no slot. To look for one at every handshake would cost too much.
    fn is_refused(&self) -> bool {
        match self.refused_ms.load(Relaxed) {
            0 => false,
            refused_ms => now_ms() < refused_ms.saturating_add(IDLE_MS),
        }
    }
}

/// Posts a text for `rejoin status`. The memory is made first, if there is none.
pub fn post(subject: Subject, text: &str) {
    with_board(|board| board.texts[subject as usize].set(text));
}

/// Posts the state of the library for `rejoin status`.
pub fn post_standing(standing: Standing) {
    with_board(|board| board.standing.store(standing as u64, Relaxed));
}

/// Posts settings for `rejoin status`.
pub fn post_features(features: Features) {
    with_board(|board| board.features.store(features.bits(), Relaxed));
}

fn with_board(work: impl FnOnce(&Board)) {
    crate::family::make();
    if let Some(family) = family() {
        work(family.board());
    }
}

/// Counts a connection that is made.
pub(crate) fn connection_made() {
    if let Some(family) = family() {
        add(&family.board().connections);
    }
}

/// Counts a connection that begins in a context without an attachment.
pub(crate) fn unattached() {
    if let Some(board) = family().map(Family::board) {
        add(&board.unattached);
    }
}

/// Counts a connection that begins to shake hands as a client.
pub(crate) fn connects() {
    if let Some(family) = family() {
        add(&family.board().connecting);
    }
}

/// Notes that a connection begins to shake hands as a server.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn began(own: &Own, outcome: Outcome, ssl: *mut SSL) {
    let Some(family) = family() else { return };
    add(&family.board().serving);
    let Some(slot) = family.board().context(&own.place) else { return };
    if slot.name.bytes.load(Relaxed) == 0 {
        // SAFETY: the caller vouches for `ssl`.
        let name = unsafe { certified_name(ssl) }.filter(|name| !name.is_empty());
        slot.name.set(name.as_deref().unwrap_or(NAMELESS));
    }
    slot.outcome.store(outcome as u64, Relaxed);
    add(&slot.began[outcome as usize - 1]);
}

/// Notes how a context shares the sessions of clients that it asks for certificates.
pub(crate) fn asks(own: &Own, certificates: Certificates) {
    let Some(family) = family() else { return };
    if let Some(slot) = family.board().context(&own.place) {
        slot.certificates.fetch_max(certificates as u64, Relaxed);
    }
}

/// Counts a handshake that is done as a server.
pub(crate) fn done(own: &Own, is_resumed: bool) {
    let Some(family) = family() else { return };
    let (board, now_ms) = (family.board(), now_ms());
    board.count(&own.place, is_resumed, now_ms);
    if let Some(slot) = family.noted().and_then(|noted| board.process(noted, now_ms)) {
        slot.handshakes.count(is_resumed);
        slot.last_ms.store(now_ms, Relaxed);
    }
}

/// Stands for a certificate without a name, which is not looked for again.
const NAMELESS: &str = "–";

/// Returns the name in the certificate that a server will show: the common name, or the first host. `None` if it has no
/// certificate yet, or one without a name.
///
/// # Safety
/// `ssl` is valid.
unsafe fn certified_name(ssl: *mut SSL) -> Option<String> {
    // SAFETY: the caller vouches for `ssl`, which nobody changes meanwhile.
    let certificate = unsafe { SslRef::from_ptr(ssl) }.certificate()?;
    let mut common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    if let Some(name) = common.next() {
        return Some(String::from_utf8_lossy(name.data().as_slice()).into_owned());
    }
    // A malformed extension leaves an error in OpenSSL's queue, which the program must not see.
    // SAFETY: the function takes no arguments.
    unsafe { ffi::ERR_set_mark() };
    let names = certificate.subject_alt_names();
    // SAFETY: the function takes no arguments.
    unsafe { ffi::ERR_pop_to_mark() };
    names?.iter().find_map(|name| name.dnsname().map(str::to_owned))
}

fn add(to: &AtomicU64) {
    to.fetch_add(1, Relaxed);
}

impl Features {
    fn bits(self) -> u64 {
        let flags = [self.stateful, self.single_use, self.shares_ticket_keys];
        flags.iter().enumerate().map(|(at, flag)| u64::from(*flag) << at).sum()
    }

    fn of_bits(bits: u64) -> Self {
        let [stateful, single_use, shares_ticket_keys] = [0, 1, 2].map(|at| bits >> at & 1 == 1);
        Self { stateful, single_use, shares_ticket_keys }
    }
}

impl Board {
    /// Marks the memory as a board.
    pub(crate) fn begin(&self) {
        self.layout.store(LAYOUT, Relaxed);
        self.version.set(env!("CARGO_PKG_VERSION"));
        self.magic.store(MAGIC, Relaxed);
    }

    /// Returns the slot of a context, and claims one if it has none. `None` if others have all of them.
    fn context(&self, place: &Place) -> Option<&ContextSlot> {
        let at = place.at.load(Relaxed);
        match self.contexts.get(at) {
            Some(slot) if slot.mark.load(Relaxed) == place.mark => Some(slot),
            _ if place.is_refused() => None,
            _ => self.find_context(place),
        }
    }

    /// Counts a handshake in a context.
    fn count(&self, place: &Place, is_resumed: bool, now_ms: u64) {
        let Some(slot) = self.context(place) else {
            return self.earlier_contexts.count(is_resumed);
        };
        slot.handshakes.count(is_resumed);
        slot.last_ms.store(now_ms, Relaxed);
    }

    #[cold]
    fn find_context(&self, place: &Place) -> Option<&ContextSlot> {
        let has_it = |slot: &ContextSlot| slot.mark.load(Relaxed) == place.mark;
        let found = self.contexts.iter().position(has_it);
        let found = found.or_else(|| self.claim_context(place.mark));
        if found.is_none() && place.refused_ms.swap(now_ms().max(1), Relaxed) == 0 {
            add(&self.refused);
        }
        place.at.store(found.unwrap_or(Place::NONE), Relaxed);
        self.contexts.get(found?)
    }

    fn claim_context(&self, mark: u64) -> Option<usize> {
        let now_ms = now_ms();
        for _ in 0..ATTEMPTS {
            let key = |slot: &ContextSlot| match slot.mark.load(Relaxed) {
                0 => 0,
                _ => slot.last_ms.load(Relaxed).max(1),
            };
            let (at, last_ms) = first_by_time(&self.contexts, key)?;
            if last_ms.saturating_add(IDLE_MS) > now_ms {
                return None;
            }
            let slot = &self.contexts[at];
            let before = slot.mark.load(Relaxed);
            if slot.mark.compare_exchange(before, mark, Relaxed, Relaxed).is_ok() {
                slot.handshakes.move_to(&self.earlier_contexts);
                slot.name.bytes.store(0, Relaxed);
                let numbers = [&slot.outcome, &slot.certificates];
                numbers.into_iter().chain(&slot.began).for_each(|number| number.store(0, Relaxed));
                slot.last_ms.store(now_ms, Relaxed);
                return Some(at);
            }
        }
        None
    }

    /// Returns the slot of this process, and claims one if it has none, or if another process got it. `noted` is the
    /// process's own, and 0 after a fork.
    fn process(&self, noted: &AtomicU64, now_ms: u64) -> Option<&ProcessSlot> {
        let claim = noted.load(Relaxed);
        let slot = self.processes.get(place_of(claim));
        match slot.filter(|slot| claim != 0 && slot.claim.load(Relaxed) == claim) {
            None => self.claim_process(noted, claim, now_ms),
            slot => slot,
        }
    }

    /// Claims a free slot, or that of the process whose last handshake is the oldest. Whether that process still lives
    /// is not asked: this process may not be allowed to.
    #[cold]
    fn claim_process(&self, noted: &AtomicU64, known: u64, now_ms: u64) -> Option<&ProcessSlot> {
        for _ in 0..ATTEMPTS {
            let key = |slot: &ProcessSlot| match slot.claim.load(Relaxed) {
                0 => 0,
                _ => slot.last_ms.load(Relaxed).max(1),
            };
            let (at, _) = first_by_time(&self.processes, key)?;
            let slot = &self.processes[at];
            let before = slot.claim.load(Relaxed);
            let number = self.claims.fetch_add(1, Relaxed).wrapping_add(1);
            let claim = (at as u64) << PLACE_SHIFT | number & ((1 << PLACE_SHIFT) - 1);
            if slot.claim.compare_exchange(before, claim, Relaxed, Relaxed).is_err() {
                continue;
            }
            slot.handshakes.move_to(&self.earlier_processes);
            slot.id.store(std::process::id().into(), Relaxed);
            slot.since_ms.store(now_ms, Relaxed);
            slot.last_ms.store(now_ms, Relaxed);
            let Err(other) = noted.compare_exchange(known, claim, Relaxed, Relaxed) else {
                return Some(slot);
            };
            // Another thread of this process was faster.
            slot.claim.store(0, Relaxed);
            return self.processes.get(place_of(other));
        }
        None
    }
}

/// The place of a claim is above this bit, its number below.
const PLACE_SHIFT: u32 = 48;

fn place_of(claim: u64) -> usize {
    (claim >> PLACE_SHIFT) as usize
}

/// Returns the place and the time of the slot with the least time.
fn first_by_time<S>(slots: &[S], time: impl Fn(&S) -> u64) -> Option<(usize, u64)> {
    slots.iter().map(time).enumerate().min_by_key(|(_, time)| *time)
}

impl Counts {
    fn count(&self, is_resumed: bool) {
        add(if is_resumed { &self.resumed } else { &self.full });
    }

    fn move_to(&self, earlier: &Self) {
        for (from, to) in [(&self.full, &earlier.full), (&self.resumed, &earlier.resumed)] {
            to.fetch_add(from.swap(0, Relaxed), Relaxed);
        }
    }
}

impl<const WORDS: usize> Text<WORDS> {
    fn set(&self, text: &str) {
        let kept = text.as_bytes().chunks(size_of::<u64>()).zip(&self.words);
        let mut bytes = 0;
        for (part, word) in kept {
            let mut whole = [0; size_of::<u64>()];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(whole), Relaxed);
            bytes += part.len() as u64;
        }
        self.bytes.store(bytes, Relaxed);
    }

    fn get(&self) -> String {
        let bytes: Vec<u8> =
            self.words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let length = usize::try_from(self.bytes.load(Relaxed)).unwrap_or(0).min(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}
