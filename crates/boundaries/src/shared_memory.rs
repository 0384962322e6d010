//! A cluster's cache in memory to which another process writes anything at any time: nothing panics, stops the program
//! or waits for long, and no session is believed under another id or in another context, or with other bytes.
//!
//! The index's key is random, so that not every run of an input is the same.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use rejoin_cache::{Capacity, ContextTag, IdSeal, NewSession, SecretBytes, SessionId};
use rejoin_cache::{SessionStore, Settings};
use rejoin_store::{Asked, CacheName, Mailbox, Reset, Says, Store, Tiered, now_ms};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{KeyRing, SECRET_BYTES, Schedule};

use crate::structured;

/// The actions of the server, the cluster's agent, or the other process.
#[derive(Debug, Arbitrary)]
enum Step {
    Write { page: u8, place: u16, bytes: Vec<u8> },
    Cut { page: u8 },
    Insert { number: u8, bytes: u8 },
    Get { number: u8, elsewhere: bool },
    Take { number: u8, elsewhere: bool },
    Remove { number: u8 },
    Retire { number: u8 },
    Hint { number: u8, interval_ms: u32 },
    Receive { is_linked: bool },
    Leave,
    AdoptRing { version: u64 },
    Read,
    Reset,
    Open,
}

const MOST_STEPS: usize = 40;
/// Sessions are numbered from 0.
const NUMBERS: u8 = 64;
const PAGE_BYTES: u64 = 4_096;
const CONTEXTS: [&[u8]; 2] = [b"one", b"two"];
/// Longer than all waits of so many steps.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn check(bytes: &[u8]) {
    let Some(steps) = structured::<Vec<Step>>(bytes) else { return };
    let began = Instant::now();
    let mut machine = Machine::new(bytes);
    for step in steps.iter().take(MOST_STEPS) {
        machine.take(step);
    }
    machine.read();
    drop(Store::remove(machine.folder.path(), &machine.name));
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

struct Machine {
    folder: Folder,
    name: CacheName,
    file: File,
    file_bytes: u64,
    agent: Store,
    server: Arc<Store>,
    sessions: Tiered,
    seal: IdSeal,
    /// All bytes that were stored under each number.
    stored: HashMap<u8, Vec<Vec<u8>>>,
}

impl Machine {
    fn new(input: &[u8]) -> Self {
        let (folder, name) = (Folder::below(Path::new(Store::FOLDER)), name());
        let settings = Settings { shards: Some(2), ..Settings::new(Capacity::Sessions(8)) };
        // A fuzzer that sees what is compared must not learn a tag.
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let mut key = [7; 16];
        key[..8].copy_from_slice(&hasher.finish().to_le_bytes());
        let agent = Store::open_for_cluster(folder.path(), &name, Some(&settings), &key);
        let server = Arc::new(Store::open(folder.path(), &name, None).expect("it was made"));
        let path = folder.path().join(name.file_name());
        let file = File::options().read(true).write(true).open(path).expect("ours");
        let file_bytes = file.metadata().expect("open").len();
        let sessions = Tiered::new(Arc::clone(&server));
        let (agent, seal) = (agent.expect("a cache"), IdSeal::new(key));
        Self {
            folder,
            name,
            file,
            file_bytes,
            agent,
            server,
            sessions,
            seal,
            stored: HashMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Write { page, place, bytes } => {
                let start = PAGE_BYTES * u64::from(*page) + u64::from(*place) % PAGE_BYTES;
                let start = start % self.file_bytes;
                let room = bytes.len().min((self.file_bytes - start) as usize);
                self.file.write_all_at(&bytes[..room], start).expect("memory");
            }
            Step::Cut { page } => {
                let end = PAGE_BYTES * u64::from(*page) % self.file_bytes;
                self.file.set_len(end).expect("ours");
            }
            Step::Insert { number, bytes } => self.insert(*number, (*bytes).into()),
            Step::Get { number, elsewhere } => {
                self.look(*number, *elsewhere, |sessions, id, context, value| {
                    sessions.get(now_ms(), id, context, value).found
                })
            }
            Step::Take { number, elsewhere } => {
                self.look(*number, *elsewhere, |sessions, id, context, value| {
                    sessions.take(now_ms(), id, context, value).found
                })
            }
            Step::Remove { number } => {
                self.sessions.remove(&id(*number));
            }
            Step::Retire { number } => self.sessions.retire(&id(*number)),
            Step::Hint { number, interval_ms } => {
                self.sessions.hint(now_ms(), &id(*number), (*interval_ms).into());
            }
            Step::Receive { is_linked } => self.receive(*is_linked),
            Step::Leave => mailbox(&self.agent).leave(),
            Step::AdoptRing { version } => self.adopt_ring(*version),
            Step::Read => self.read(),
            Step::Reset => self.server.reset(Reset::Both),
            Step::Open => drop(Store::open(self.folder.path(), &self.name, None)),
        }
    }

    fn insert(&mut self, number: u8, bytes: usize) {
        let session = [number].repeat(1 + 4 * bytes);
        let mut value = SecretBytes::from(session.clone());
        self.seal.seal_value(&id(number), name_of(number), &mut value);
        let new = NewSession::new(id(number), &value, now_ms() + 1_000_000, context(number));
        if self.sessions.insert(now_ms(), &new).is_ok() {
            self.stored.entry(number % NUMBERS).or_default().push(session);
        }
    }

    /// Looks a session up, in its context or in the other one.
    fn look(
        &self,
        number: u8,
        elsewhere: bool,
        by: impl Fn(&Tiered, &SessionId, ContextTag, &mut SecretBytes) -> bool,
    ) {
        let (id, mut value) = (id(number), SecretBytes::default());
        let here = number ^ u8::from(elsewhere);
        if !by(&self.sessions, &id, context(here), &mut value) {
            return;
        }
        // A server resumes a session only if its seal is whole.
        if let Some(session) = self.seal.open_value(&id, name_of(here), &value) {
            assert!(!elsewhere, "in the other context");
            let mut stored = self.stored.get(&(number % NUMBERS)).into_iter().flatten();
            assert!(stored.any(|stored| stored == session), "other bytes");
        }
    }

    /// Does what an agent does with its letters.
    fn receive(&self, is_linked: bool) {
        let mut letters = Vec::new();
        mailbox(&self.agent).receive(&mut letters, Duration::ZERO, is_linked);
        for letter in letters {
            let mut value = SecretBytes::default();
            let found = self.agent.cache().look(now_ms(), &letter.id, letter.context, &mut value);
            if let Says::Wanted(asker) | Says::Taken(asker) = letter.says {
                let asked = if found.is_some() { Asked::Certain } else { Asked::Missing };
                mailbox(&self.agent).answer(asker, asked);
            }
        }
    }

    fn adopt_ring(&self, version: u64) {
        let mut ring = KeyRing::new(Schedule::default());
        let secret = version.to_le_bytes().repeat(SECRET_BYTES / 8);
        let mut secret: [u8; SECRET_BYTES] = secret.try_into().expect("as long");
        if ring.rotate(1_800_000_000, &mut secret).is_ok()
            && self.agent.adopt_ring(&ring, version).is_ok()
        {
            let held = self.agent.ring().ok().flatten();
            let ids = |ring: &KeyRing| ring.list(0).map(|key| key.id).collect::<Vec<_>>();
            // A file that was cut short holds none.
            assert!(held.is_none_or(|held| ids(&held) == ids(&ring)));
        }
    }

    /// Reads all that commands show.
    fn read(&self) {
        for store in [&self.agent, &*self.server] {
            let _ = (store.facts(), store.counters(), store.occupancy(now_ms()), store.check());
            let _ = (store.ring(), store.ring_version(), store.ticket_counters(), store.emptied());
            let _ = mailbox(store).facts();
        }
    }
}

fn name() -> CacheName {
    "test".parse().expect("a name")
}

fn mailbox(store: &Store) -> &Mailbox {
    store.mailbox().expect("a cluster's")
}

/// Returns the id of a session: of any length.
fn id(number: u8) -> SessionId {
    let bytes = [number % NUMBERS; SessionId::LONGEST];
    SessionId::new(&bytes[..1 + usize::from(number) % SessionId::LONGEST]).expect("at most 32")
}

fn name_of(number: u8) -> &'static [u8] {
    CONTEXTS[usize::from(number % 2)]
}

fn context(number: u8) -> ContextTag {
    ContextTag(3 + u32::from(number % 2))
}
