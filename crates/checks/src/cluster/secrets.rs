//! The secrets of sessions, the ring and the key file, searched for in all that passes between
//! agents and Valkey, and in all that Valkey has.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rejoin_tickets::PAGE_BYTES;

use super::relay::Relay;
use super::{Effort, Found};
use rejoin_testkit::machines::{Cluster, Plan, ask};
use rejoin_testkit::site::{Client, Versions};

const PLAN: Plan = Plan::of_sessions("check-secrets");
/// A word that is in clear on the wire and in Valkey.
const MARKER: &[u8] = b"rejoin:{web";
/// Searched for at a time: what is in part there is found, too.
const PART_BYTES: usize = 16;
/// The layout of a page: where the keys begin, the length of each, and the offset of its secret.
const KEYS_AT: usize = 40;
const KEY_BYTES: usize = 48;
const SECRET_AT: usize = 16;

const DIGITS: &str = "its digits";
/// Master secrets, ids, tickets, ticket keys, the wrapping key, its digits.
const KINDS: usize = 6;

/// A secret's kind and its bytes.
type Secret = (&'static str, Vec<u8>);

pub(crate) fn unseen(effort: Effort) -> Option<Found> {
    let mut cluster = Cluster::without_machines(PLAN)?;
    let relay = Relay::recording(SocketAddr::from(([127, 0, 0, 1], cluster.port)));
    cluster.agents_ask = vec![relay.address.port()];
    cluster.add_machines()?;
    let mut secrets = session_secrets(&cluster, if effort.quick { 5 } else { 50 });
    secrets.extend(ring_secrets(&cluster));
    secrets.extend(key_file(&cluster));
    // The last session is stored.
    thread::sleep(Duration::from_secs(2));
    let Seen { wire, dump } = Seen::of(&cluster, &relay)?;
    let (on_wire, in_dump) = (found(&secrets, &wire), found(&secrets, &dump));
    let is_marked = [&wire, &dump].iter().all(|texts| {
        texts.iter().any(|text| text.windows(MARKER.len()).any(|part| part == MARKER))
    });
    // The search finds what is there.
    let digits = fs::read_to_string(cluster.key_file()).expect("the key");
    ask(relay.address.port(), &["SET", "leaked", digits.trim()]);
    let leaked = Seen::of(&cluster, &relay)?;
    let is_found = [&leaked.wire, &leaked.dump].map(|texts| found(&secrets, texts) == [DIGITS]);
    let kinds: HashSet<_> = secrets.iter().map(|(what, _)| *what).collect();
    let figure = format!(
        "of {} secrets of {} kinds {on_wire:?} in {} bytes of the wire, {in_dump:?} in {} bytes of the \
         dump; the cluster's name and a key that was put there are {}",
        secrets.len(),
        kinds.len(),
        bytes(&wire),
        bytes(&dump),
        if is_marked && is_found == [true; 2] { "found in both" } else { "NOT FOUND" }
    );
    let none = on_wire.is_empty() && in_dump.is_empty() && kinds.len() == KINDS;
    Some(Found { figure, holds: none && is_marked && is_found == [true; 2] })
}

/// All that is there to be searched.
struct Seen {
    wire: Vec<Vec<u8>>,
    dump: Vec<Vec<u8>>,
}

impl Seen {
    fn of(cluster: &Cluster, relay: &Relay) -> Option<Self> {
        let saved = cluster.ask_valkey(&["SAVE"]);
        assert_eq!(saved.trim(), "OK", "Valkey writes all it has to a file");
        let dump = fs::read(cluster.folder.join("dump.rdb")).ok()?;
        Some(Self { wire: relay.recorded(), dump: vec![dump] })
    }
}

fn bytes(texts: &[Vec<u8>]) -> usize {
    texts.iter().map(Vec::len).sum()
}

/// Which of them are there.
fn found<'s>(secrets: &'s [Secret], texts: &[Vec<u8>]) -> Vec<&'s str> {
    let there: HashSet<&[u8]> = texts.iter().flat_map(|text| text.windows(PART_BYTES)).collect();
    let is_there =
        |secret: &Secret| secret.1.chunks_exact(PART_BYTES).any(|part| there.contains(part));
    secrets.iter().filter(|secret| is_there(secret)).map(|(what, _)| *what).collect()
}

/// The secrets of clients that go from one machine to the other, and resume there.
fn session_secrets(cluster: &Cluster, times: usize) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = cluster.client(versions);
        for _ in 0..times {
            let resumed = cluster.go_round(&mut client, 2);
            assert!(resumed[1], "sessions go from machine to machine");
            secrets.extend(of_session(&client, versions));
        }
    }
    secrets
}

fn of_session(client: &Client, versions: Versions) -> Vec<Secret> {
    let session = client.session.lock().expect("no panic");
    let session = session.as_ref().expect("the server issued one");
    let id = match versions {
        Versions::Tls12 => ("session id", session.id().to_vec()),
        Versions::Tls13 => ("ticket", ticket(&session.to_der().expect("serialised"))),
    };
    let mut master = vec![0; session.master_key(&mut [])];
    session.master_key(&mut master);
    vec![("master secret", master), id]
}

/// The ticket in a serialised session (`[10]`, an octet string): over TLS 1.3 the session's id.
fn ticket(session: &[u8]) -> Vec<u8> {
    let ids = session.windows(4).position(|tags| {
        matches!(tags, [0xaa, outer, 0x04, inner] if *outer == inner + 2 && *inner as usize >= PART_BYTES)
    });
    let at = ids.expect("a ticket") + 4;
    session[at..at + session[at - 1] as usize].to_vec()
}

fn ring_secrets(cluster: &Cluster) -> Vec<Secret> {
    let store = cluster.machines[0].store().expect("there");
    let ring = store.ring().expect("not locked").expect("the agent made one");
    let mut page = [0; PAGE_BYTES];
    ring.to_page(&mut page);
    let keys = page[KEYS_AT..].chunks(KEY_BYTES).take(ring.list(0).count());
    keys.map(|key| ("ticket key", key[SECRET_AT..].to_vec())).collect()
}

fn key_file(cluster: &Cluster) -> Vec<Secret> {
    let digits = fs::read_to_string(cluster.key_file()).expect("the key");
    let digits = digits.trim();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    let key = (0..digits.len()).step_by(2).map(byte).collect();
    vec![("wrapping key", key), (DIGITS, digits.as_bytes().to_vec())]
}
