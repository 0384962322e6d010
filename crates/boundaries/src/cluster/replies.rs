//! Valkey's answers, whatever they are: a session is found only as it was stored under its id, and a ring is followed
//! only if a machine of the cluster wrote it, and never one that is older.

use std::cell::RefCell;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Arbitrary;
use rejoin_cache::{ContextTag, SecretBytes, SessionId};
use rejoin_cluster::sessions::{Bounds, Entry, Found, NEVER_MS, Past, Sessions};
use rejoin_cluster::{ClusterKeys, ClusterSecret, Error, Link, NodeAddress, Place, Servers};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{KeyRing, SECRET_BYTES, Schedule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::structured;

/// The question, and what Valkey answers to each command of it.
type Step = (Asked, Answer);

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Asked {
    Put(u8),
    Get(u8),
    Take(u8),
    Remove(u8),
    Expect(u8),
    Evict,
    Counts,
    Follow,
}

#[derive(Debug, Arbitrary)]
enum Answer {
    Nothing,
    Number(i64),
    Numbers(Vec<i64>),
    Refused(u8),
    /// The session that was stored last, with changed bytes.
    Session(Vec<(u16, u8)>),
    /// A ring that was stored, with changed bytes, under a version later than its own; or none that is new.
    Ring {
        at: Option<u8>,
        changes: Vec<(u16, u8)>,
        later: u8,
        leased: bool,
        replaced: bool,
    },
    /// Any bytes, and then the end.
    Any(Vec<u8>),
}

const NIL: &[u8] = b"$-1\r\n";
const MOST_STEPS: usize = 12;
const NOW_MS: u64 = 1_800_000_000_000;
const EXPIRES_MS: u64 = NOW_MS + 3_600_000;
const CONTEXT: ContextTag = ContextTag(5);
/// Longer than all steps take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn check(bytes: &[u8]) {
    let Some(steps) = structured::<Vec<Step>>(bytes) else { return };
    // One for all, as in the agent: a client that connects again when its runtime ends is never freed.
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));
    let valkey = RefCell::<Valkey>::default();
    RUNTIME.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked = tokio::time::timeout(PATIENCE, ask(port, steps, &valkey));
        tokio::select! {
            _ = serve(&listener, &valkey) => unreachable!("it has no end"),
            done = asked => done.expect("an answer or an error"),
        }
    });
}

/// The part of Valkey: it says what it is told to, and remembers what it was given.
#[derive(Default)]
struct Valkey {
    says: Option<Answer>,
    /// The session that was stored last.
    session: Vec<u8>,
    /// The rings that were stored, with their versions.
    rings: Vec<(u64, Vec<u8>)>,
}

/// Asks all, until the connection ends.
async fn ask(port: u16, steps: Vec<Step>, valkey: &RefCell<Valkey>) {
    let address = NodeAddress::new("127.0.0.1", port).expect("a host");
    let servers = Servers::new(Place::Primary(vec![address]));
    let Ok(mut link) = Link::connect(&servers).await else { return };
    let bounds = Bounds { shards: 1, sessions: 100, bytes: 1 << 20, grace_ms: 0 };
    let ring = ring();
    let sessions = Sessions::new(link.clone(), "shop", &[3; 32], bounds, &ring).expect("in range");
    let mut keys = keys();
    for (asked, answer) in steps.into_iter().take(MOST_STEPS) {
        let is_last = matches!(answer, Answer::Any(_));
        valkey.borrow_mut().says = Some(answer);
        match asked {
            Asked::Put(number) => {
                let (id, value) = (id(number), value(number));
                drop(sessions.put(NOW_MS, &entry(&id, &value)).await);
            }
            Asked::Get(number) => is_own(sessions.get(NOW_MS, &id(number)).await, number),
            Asked::Take(number) => is_own(sessions.take(NOW_MS, &id(number)).await, number),
            Asked::Remove(number) => drop(sessions.remove(&id(number)).await),
            Asked::Expect(number) => {
                let past = Past::default();
                drop(sessions.expect(&id(number), past, NEVER_MS, EXPIRES_MS).await);
            }
            Asked::Evict => drop(sessions.evict(NOW_MS, 0, 0, 10).await),
            Asked::Counts => drop(sessions.total().await),
            Asked::Follow => follow(&mut keys, &mut link, valkey).await,
        }
        if is_last {
            return;
        }
    }
}

fn is_own(found: Result<Option<Found>, Error>, number: u8) {
    if let Ok(Some(Found { context, value: found, expires_ms, .. })) = &found {
        assert_eq!((&**found, *context, *expires_ms), (&*value(number), CONTEXT, EXPIRES_MS));
    }
}

async fn follow(keys: &mut ClusterKeys, link: &mut Link, valkey: &RefCell<Valkey>) {
    let before = keys.version();
    drop(keys.follow(link, NOW_MS / 1_000).await);
    let version = keys.version();
    assert!(version >= before, "version {version} after {before}");
    if let Some(ring) = keys.ring() {
        let is_ours = valkey.borrow().rings.iter().any(|(of, _)| *of == version);
        assert!(is_ours && ring.list(0).count() > 0, "nobody wrote version {version}");
    }
}

async fn serve(listener: &TcpListener, valkey: &RefCell<Valkey>) {
    loop {
        let (mut client, _) = listener.accept().await.expect("a client");
        // The client does not wait for what is lost with the connection.
        let _ = client.set_zero_linger();
        converse(&mut client, valkey).await;
    }
}

/// Answers commands until the client has gone, or any bytes were said.
async fn converse(client: &mut TcpStream, valkey: &RefCell<Valkey>) {
    let mut said = Vec::new();
    loop {
        while let Some((words, length)) = command(&said) {
            said.drain(..length);
            let (answer, is_last) = valkey.borrow_mut().answer(&words);
            let is_sent = client.write_all(&answer).await.is_ok();
            if is_last || !is_sent {
                // What was said arrives before the end does.
                let _ = client.shutdown().await;
                let _ = client.read_to_end(&mut Vec::new()).await;
                return;
            }
        }
        if !client.read_buf(&mut said).await.is_ok_and(|bytes| bytes > 0) {
            return;
        }
    }
}

impl Valkey {
    /// Returns the answer, and true if it is the last on the connection.
    fn answer(&mut self, words: &[Vec<u8>]) -> (Vec<u8>, bool) {
        // The link asks it between the steps.
        if words.first().is_some_and(|word| word == b"INFO") {
            return (bulk(b"role:master\r\n"), false);
        }
        // Scripts are known by the numbers of their keys and arguments, and a ring by its length.
        let (mut is_ring, mut is_take) = (false, false);
        match words {
            [_, _, _, _, _, _, _, _, value, _, _, _, _, _, _] => self.session.clone_from(value),
            [_, _, keys, _, _, _, _, _, ..] if keys == b"4" => is_take = true,
            [_, _, _, _, _, _, _, version, page, _, _] if page.len() > 100 => {
                let version = String::from_utf8_lossy(version).parse().expect("a number");
                self.rings.push((version, page.clone()));
                is_ring = true;
            }
            _ => {}
        }
        let answer = match &self.says {
            None | Some(Answer::Nothing) => NIL.to_vec(),
            Some(Answer::Number(number)) => integer(*number),
            Some(Answer::Numbers(all)) => {
                let each: Vec<u8> = all.iter().flat_map(|number| integer(*number)).collect();
                [format!("*{}\r\n", all.len()).as_bytes(), &each].concat()
            }
            Some(Answer::Refused(kind)) => {
                let kinds = ["ERR no", "NOSCRIPT none", "OOM full", "LOADING soon", "MOVED 1 x:1"];
                format!("-{}\r\n", kinds[usize::from(*kind) % kinds.len()]).into_bytes()
            }
            Some(Answer::Session(changes)) if is_take => {
                let (master, at_us) = (bulk(b"a master"), bulk(b"1800000000000000"));
                let value = bulk(&changed(&self.session, changes));
                [b"*3\r\n", &value[..], &master, &at_us].concat()
            }
            Some(Answer::Session(changes)) => bulk(&changed(&self.session, changes)),
            Some(Answer::Ring { replaced, .. }) if is_ring => integer((*replaced).into()),
            Some(Answer::Ring { at, changes, later, leased, .. }) => {
                let ring =
                    at.and_then(|at| self.rings.get(usize::from(at) % self.rings.len().max(1)));
                let (version, page) =
                    ring.map_or((0, None), |(version, page)| (*version, Some(page)));
                let version = version.wrapping_add(u64::from(*later)).to_string();
                let page = page.map_or_else(|| NIL.to_vec(), |page| bulk(&changed(page, changes)));
                let leased = integer((*leased).into());
                let now_s = bulk((NOW_MS / 1_000).to_string().as_bytes());
                [b"*4\r\n", &bulk(version.as_bytes())[..], &page, &leased, &now_s].concat()
            }
            Some(Answer::Any(bytes)) => return (bytes.clone(), true),
        };
        (answer, false)
    }
}

fn changed(bytes: &[u8], changes: &[(u16, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, with) in changes {
        if let Some(place) = usize::from(*place).checked_rem(bytes.len()) {
            bytes[place] ^= with;
        }
    }
    bytes
}

fn integer(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Reads a command: its words, and the length of all. `None`: there is more to come.
fn command(said: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut rest = said;
    let count = number(&mut rest)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(&mut rest)?;
        let (word, after) = rest.split_at_checked(length)?;
        words.push(word.to_vec());
        rest = after.get(2..)?;
    }
    Some((words, said.len() - rest.len()))
}

/// Reads a line with a mark and a number.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let number = str::from_utf8(rest.get(1..end)?).ok()?.parse().expect("a client's number");
    *rest = &rest[end + 2..];
    Some(number)
}

fn entry<'e>(id: &'e SessionId, value: &'e SecretBytes) -> Entry<'e> {
    let past = Past::default();
    Entry { id, context: CONTEXT, value, expires_ms: EXPIRES_MS, past, returns_ms: NEVER_MS }
}

fn id(number: u8) -> SessionId {
    SessionId::new(&[number; SessionId::LONGEST]).expect("32 bytes")
}

fn value(number: u8) -> SecretBytes {
    SecretBytes::from([number].repeat(1 + usize::from(number)))
}

fn ring() -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(NOW_MS / 1_000, &mut [9; SECRET_BYTES]).expect("a key");
    ring
}

fn keys() -> ClusterKeys {
    let folder = Folder::below(Path::new(Store::FOLDER));
    let key = ClusterSecret::create(&folder.path().join("cluster.key")).expect("a new file");
    ClusterKeys::new("shop".parse().expect("a name"), &key, None)
        .expect("the usual schedule")
        .trusting_clock()
}
