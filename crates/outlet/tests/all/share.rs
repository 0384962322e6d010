//! The share's protocol over a real socket, on a real cache.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_cache::{Capacity, Settings};
use rejoin_outlet::{Peers, Share, follow};
use rejoin_store::{SharedKeys, Store};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::Reschedule;
use serde_json::{Value, json};
use tokio::net::UnixListener;

/// A share in a thread.
struct Served {
    folder: Folder,
    store: Arc<Store>,
}

impl Served {
    fn start() -> Self {
        Self::complaining(|_| {})
    }

    fn complaining(complain: fn(&str)) -> Self {
        let folder = Folder::new();
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .expect("set");
        let settings = Settings::new(Capacity::Bytes(1 << 20));
        let store = Store::open(folder.path(), &"web".parse().expect("a name"), Some(&settings));
        let store = Arc::new(store.expect("a cache"));
        let keys = SharedKeys::open(Arc::clone(&store), None, None, now_s(), |_| {}).expect("keys");
        let (listening, ready) = std::sync::mpsc::channel();
        let (socket, shared) = (folder.join("socket"), Arc::clone(&store));
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = UnixListener::bind(socket).expect("a socket");
                listening.send(()).expect("the test waits");
                let (rings, followed) = tokio::sync::watch::channel(None);
                let share =
                    Share::new(Arc::clone(&shared), followed, Peers::new([])).complaining(complain);
                let lost = || (!shared.facts().is_named).then_some(());
                tokio::select! {
                    never = share.serve(listener) => match never {},
                    _ = follow(Arc::new(keys), rings, lost) => {}
                }
            });
        });
        ready.recv().expect("it listens");
        Self { folder, store }
    }

    fn connect(&self, first: Value) -> Client {
        let stream = UnixStream::connect(self.folder.join("socket")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let mut client = Client(stream);
        client.send(&first);
        client
    }

    fn sessions(&self, context: &str) -> Client {
        let mut client = self.connect(json!({"rejoin": 1, "sessions": {"context": context}}));
        assert_eq!(client.receive()["sessions"]["longest_session"], 16 * 1024 - 8);
        client
    }
}

struct Client(UnixStream);

impl Client {
    fn send(&mut self, message: &Value) {
        self.send_bytes(message.to_string().as_bytes());
    }

    fn send_bytes(&mut self, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        self.0.write_all(&[&length, message].concat()).expect("sent");
    }

    fn receive(&mut self) -> Value {
        self.try_receive().expect("an answer")
    }

    /// Returns `None` at the end of the connection.
    fn try_receive(&mut self) -> Option<Value> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut message).expect("a whole answer");
        Some(serde_json::from_slice(&message).expect("JSON"))
    }

    fn ask(&mut self, message: Value) -> Value {
        self.send(&message);
        self.receive()
    }

    fn states(&mut self) -> Vec<String> {
        let keys = self.receive()["keys"].clone();
        let keys = keys.as_array().expect("a list").clone();
        keys.iter().map(|key| key["state"].as_str().expect("a state").to_owned()).collect()
    }
}

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

fn id(name: &str) -> String {
    STANDARD.encode(name)
}

fn put(name: &str, after: Option<&str>) -> Value {
    let session = STANDARD.encode(format!("session {name}"));
    let mut put = json!({"id": id(name), "session": session, "lifetime_s": 3_600});
    after.into_iter().for_each(|after| put["after"] = id(after).into());
    json!({ "put": put })
}

fn session(name: &str) -> Value {
    json!({"session": STANDARD.encode(format!("session {name}"))})
}

#[test]
fn keys_follow_the_ring_and_differ_by_context_and_form() {
    let served = Served::start();
    let keys = |context: &str, form: &str| {
        let mut client =
            served.connect(json!({"rejoin": 1, "keys": {"context": context, "form": form}}));
        let first = client.receive();
        assert_eq!(first["ticket_lifetime_s"], 86_400);
        assert!(first["changes_in_s"].as_u64().is_some_and(|in_s| in_s > 40_000), "{first}");
        let key = first["keys"][0]["key"].as_str().expect("a key").to_owned();
        (client, STANDARD.decode(key).expect("base64"))
    };
    let (mut follower, first) = keys("shop", "raw80");
    assert_eq!((first.len(), &keys("shop", "raw80").1), (80, &first));
    assert_ne!(keys("blog", "raw80").1, first);
    let (raw48, raw32) = (keys("shop", "raw48").1, keys("shop", "raw32").1);
    assert_eq!((raw48.len(), raw32.len()), (48, 32));
    let has = |whole: &[u8], part: &[u8]| whole.windows(16).any(|window| window == part);
    assert!(raw48.chunks(16).chain(raw32.chunks(16)).all(|part| !has(&first, part)));
    let made = served.store.rotate_keys(now_s()).expect("a key");
    assert_eq!(follower.states(), ["encrypting", "upcoming"]);
    assert!(served.store.retire_key(&made).expect("there"));
    assert_eq!(follower.states(), ["encrypting"]);
}

/// A process that has the cache still would make keys that nobody else has.
#[test]
fn no_keys_follow_the_removal_of_the_cache() {
    let removed_after = |after_ms| {
        let served = Served::start();
        let first = json!({"rejoin": 1, "keys": {"context": "shop", "form": "raw80"}});
        let mut client = served.connect(first);
        client.receive();
        std::thread::sleep(Duration::from_millis(after_ms));
        let name = "web".parse().expect("a name");
        assert!(Store::remove(served.folder.path(), &name).expect("removed"));
        assert_eq!(client.try_receive(), None);
    };
    let all = (0..12).map(|turn| std::thread::spawn(move || removed_after(turn * 83)));
    all.collect::<Vec<_>>().into_iter().for_each(|one| one.join().expect("it ends"));
}

#[test]
fn a_new_lifetime_of_tickets_is_sent_at_once() {
    let served = Served::start();
    let mut client =
        served.connect(json!({"rejoin": 1, "keys": {"context": "shop", "form": "raw80"}}));
    assert_eq!(client.receive()["ticket_lifetime_s"], 24 * 3_600);
    let longer = Reschedule::new(None, Some(36 * 3_600));
    let store = Arc::clone(&served.store);
    SharedKeys::open_rescheduled(store, longer, None, now_s(), |_| {}).expect("keys");
    assert_eq!(client.receive()["ticket_lifetime_s"], 36 * 3_600);
}

#[test]
fn a_session_is_taken_once_and_only_in_its_context() {
    let served = Served::start();
    let (mut shop, mut other) = (served.sessions("shop"), served.sessions("blog"));
    assert_eq!(shop.ask(put("one", None)), json!({"stored": true}));
    let none = json!({"session": null});
    assert_eq!(other.ask(json!({"take": id("one")})), none);
    assert_eq!(served.sessions("shop").ask(json!({"get": id("one")})), session("one"));
    assert_eq!(shop.ask(json!({"take": id("one")})), session("one"));
    assert_eq!(shop.ask(json!({"take": id("one")})), none);
    assert_eq!(shop.ask(put("two", Some("one"))), json!({"stored": true}));
    assert_eq!(
        shop.ask(json!({"hint": {"id": id("two"), "returns_in_s": 60}})),
        json!({"hinted": true})
    );
    assert_eq!(shop.ask(json!({"remove": id("two")})), json!({"removed": true}));
    assert_eq!(shop.ask(json!({"get": id("two")})), none);
    // No request reaches a session of another context, whatever its id.
    assert_eq!(shop.ask(put("three", None)), json!({"stored": true}));
    let hint = json!({"hint": {"id": id("three"), "returns_in_s": 60}});
    assert_eq!(other.ask(hint), json!({"hinted": false}));
    assert_eq!(other.ask(json!({"remove": id("three")})), json!({"removed": false}));
    let theirs = json!({"id": id("three"), "session": STANDARD.encode("theirs"), "lifetime_s": 60});
    assert_eq!(other.ask(json!({"put": theirs})), json!({"stored": true}));
    assert_eq!(shop.ask(json!({"take": id("three")})), session("three"));
    let theirs = json!({"session": STANDARD.encode("theirs")});
    assert_eq!(other.ask(json!({"take": id("three")})), theirs);
    // Several requests before the first answer.
    shop.send(&put("three", None));
    shop.send(&json!({"take": id("three")}));
    assert_eq!((shop.receive(), shop.receive()), (json!({"stored": true}), session("three")));
}

#[test]
fn a_history_is_kept_for_the_sessions_found_last() {
    let served = Served::start();
    let mut shop = served.sessions("shop");
    let get = |shop: &mut Client, name: &str| {
        assert_eq!(shop.ask(json!({"get": id(name)})), session(name));
    };
    for name in 0..=1_024 {
        shop.ask(put(&name.to_string(), None));
    }
    (0..1_024).for_each(|name| get(&mut shop, &name.to_string()));
    get(&mut shop, "0");
    get(&mut shop, "1024");
    let full = |served: &Served| served.store.cache().counters().full_handshakes;
    let before = full(&served);
    shop.ask(put("next", Some("0")));
    assert_eq!(full(&served), before, "0 was found last but one");
    shop.ask(put("other", Some("1")));
    assert_eq!(full(&served), before + 1, "1 was found before 1,024 others");
}

/// A program that knows how a handshake went says so: the client of the next session may be unknown.
#[test]
fn a_handshake_is_counted_as_the_program_says() {
    let served = Served::start();
    let mut shop = served.sessions("shop");
    let mut fulls = |name: &str, after: Option<&str>, resumed: Option<bool>| {
        let mut request = put(name, after);
        resumed.into_iter().for_each(|resumed| request["put"]["resumed"] = resumed.into());
        assert_eq!(shop.ask(request), json!({"stored": true}));
        assert_eq!(shop.ask(json!({"get": id(name)})), session(name));
        served.store.cache().counters().full_handshakes
    };
    assert_eq!(fulls("one", None, None), 1);
    assert_eq!(fulls("two", None, Some(true)), 1);
    assert_eq!(fulls("three", Some("two"), Some(true)), 1);
    assert_eq!(fulls("four", Some("three"), None), 1);
    assert_eq!(fulls("five", Some("four"), Some(false)), 2);
}

/// A client's history goes from session to session, as for servers with Rejoin: the cache predicts its next return.
#[test]
fn a_history_follows_its_client() {
    let served = Served::start();
    let mut shop = served.sessions("shop");
    let known = |shop: &mut Client| {
        let before = served.store.cache().counters().predictions;
        shop.ask(put("a", None));
        shop.ask(json!({"take": id("a")}));
        shop.ask(put("b", Some("a")));
        shop.ask(json!({"take": id("b")}));
        served.store.cache().counters().predictions - before
    };
    assert!(known(&mut shop) > 0);
}

#[test]
fn what_is_wrong_is_refused_and_said() {
    let served = Served::start();
    let refused = |bytes: &[u8], kind: &str| {
        let mut client = served.sessions("shop");
        client.send_bytes(bytes);
        assert_eq!(client.receive()["error"]["kind"], kind);
        assert_eq!(client.try_receive(), None, "the connection is closed");
    };
    refused(b"{}", "bad_request");
    refused(b"\xff", "bad_request");
    refused(br#"{"take": ""}"#, "bad_request");
    let mut client = served.sessions("shop");
    client.0.write_all(&(128u32 * 1024 + 1).to_be_bytes()).expect("sent");
    assert_eq!(client.receive()["error"]["kind"], "too_large");
    assert_eq!(served.connect(json!({"rejoin": 3})).receive()["error"]["kind"], "version");
    let mut keys =
        served.connect(json!({"rejoin": 1, "keys": {"context": "shop", "form": "raw32"}}));
    keys.receive();
    keys.send_bytes(b"more");
    assert_eq!(keys.receive()["error"]["kind"], "bad_request");
    let long = STANDARD.encode(vec![7; 16 * 1024]);
    let put = json!({"put": {"id": id("x"), "session": long, "lifetime_s": 1}});
    assert_eq!(served.sessions("shop").ask(put), json!({"stored": false}));
}

/// Its client does a full handshake each time, which the figures must show.
#[test]
fn a_session_that_is_too_large_is_counted() {
    let served = Served::start();
    let longest = 16 * 1024 - 8;
    let stored = |name: &str, bytes: usize| {
        let session = STANDARD.encode(vec![7; bytes]);
        let put = json!({"put": {"id": id(name), "session": session, "lifetime_s": 60}});
        served.sessions("shop").ask(put)["stored"].as_bool().expect("an answer")
    };
    assert!(stored("fits", longest) && !stored("longer", longest + 1));
    // As long as a message can be.
    assert!(!stored("longest", (128 * 1024 - 1024) / 4 * 3));
    let counted = served.store.cache().counters();
    assert_eq!((counted.full_handshakes, counted.refused_too_large), (3, 2));
    assert_eq!((counted.stored, counted.sessions), (1, 1));
}

#[test]
fn a_client_that_takes_no_answers_is_told_so() {
    let served = Served::start();
    let mut client = served.sessions("shop");
    let session = STANDARD.encode(vec![7; 16_000]);
    client.ask(json!({"put": {"id": id("x"), "session": session, "lifetime_s": 60}}));
    (0..200).for_each(|_| client.send(&json!({"get": id("x")})));
    std::thread::sleep(Duration::from_secs(12));
    let answers = std::iter::from_fn(|| client.try_receive());
    let answers: Vec<_> = answers.skip_while(|answer| answer["session"].is_string()).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["error"]["message"], "an answer was not taken in ten seconds");
}

#[test]
fn there_is_room_for_256_connections() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let served = Served::complaining(|line| TOLD.lock().expect("whole").push(line.to_owned()));
    let mut held: Vec<_> = (0..Share::MOST_CONNECTIONS).map(|_| served.sessions("shop")).collect();
    let first = || served.connect(json!({"rejoin": 1, "sessions": {"context": "shop"}})).receive();
    assert_eq!(first()["error"]["kind"], "busy");
    assert_eq!(first()["error"]["kind"], "busy");
    let told = TOLD.lock().expect("whole").clone();
    let socket = served.folder.file("socket");
    let says = format!("{socket}: 256 connections are open, and more are turned away");
    assert!(told.len() == 1 && told[0].starts_with(&says), "once: {told:?}");
    held.pop();
    rejoin_testkit::process::wait_until("room", || first()["error"].is_null());
}
