//! The keys in files for servers without Rejoin, and their order.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_outlet::{Context, Format, KeyFiles};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{KeyRing, Label, Schedule};
use serde_json::Value;

const NOW_S: u64 = 1_800_000_000;
const HOUR_S: u64 = 3_600;

/// A ring of keys created every twelve hours.
fn ring(keys: u8) -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    for key in 0..keys {
        let made_s = NOW_S + 12 * HOUR_S * u64::from(key);
        ring.rotate(made_s, &mut [key + 1; 32]).expect("a key");
    }
    ring
}

/// Writes the files. Returns the positions of their keys in the ring.
fn written(format: Format, ring: &KeyRing, now_s: u64) -> Vec<usize> {
    let folder = Folder::new();
    let into = folder.join("keys");
    let context = Context::new("shop").expect("a context");
    let mut files = KeyFiles::new(format, &into, context).expect("a path");
    assert!(files.write(ring, now_s).expect("written"));
    assert!(!files.write(ring, now_s).expect("the same"));
    let held = match format {
        Format::Haproxy => read(&into).lines().map(decoded).collect(),
        Format::Nginx => {
            let list = read(&into.join("keys.conf"));
            let paths = list.lines().map(|line| line.split('"').nth(1).expect("a path"));
            paths.map(|path| std::fs::read(path).expect("a file")).collect()
        }
        Format::Envoy => {
            let resource = &json(&into)["resources"][0];
            assert_eq!(resource["name"], "shop");
            texts(&resource["session_ticket_keys"]["keys"], |key| &key["inline_bytes"])
        }
        Format::Json => texts(&json(&into)["keys"], |key| &key["key"]),
        Format::Kubernetes => {
            let data = json(&into)["data"].clone();
            let name = |at| if at == 0 { String::new() } else { format!(".{at}") };
            let names = (0..).map(|at| format!("tls.sessionticket.key{}", name(at)));
            let held = names.map_while(|name| data[name].as_str().map(decoded));
            let held: Vec<_> = held.collect();
            assert_eq!(data.as_object().map(|data| data.len()), Some(held.len()));
            held
        }
        _ => {
            let bytes = std::fs::read(&into).expect("a file");
            bytes.chunks(format.form().bytes()).map(<[u8]>::to_vec).collect()
        }
    };
    assert!(held.iter().all(|key| key.len() == format.form().bytes()));
    let label: &[u8] = match format.form().bytes() {
        48 => b"exported 48\0shop",
        _ => b"exported\0shop",
    };
    let keys = ring.for_context(&Label::new(label).expect("a label"));
    let keys: Vec<_> = keys.iter().map(|key| key.for_server(format.form()).to_vec()).collect();
    let place = |held: &Vec<u8>| keys.iter().position(|key| key == held).expect("of the ring");
    held.iter().map(place).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&read(path)).expect("JSON")
}

fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}

fn texts(list: &Value, of: impl Fn(&Value) -> &Value) -> Vec<Vec<u8>> {
    let list = list.as_array().expect("a list");
    list.iter().map(|entry| decoded(of(entry).as_str().expect("a text"))).collect()
}

#[test]
fn the_one_that_encrypts_stands_where_servers_look() {
    // A turn begins an hour after its key is created. The first key expires a day and two minutes after the second
    // one's turn began.
    let [before, after, late] = [36, 37, 38].map(|hour| NOW_S + hour * HOUR_S);
    let ring = ring(4);
    let nginx = |now_s| written(Format::Nginx, &ring, now_s);
    assert_eq!(nginx(before), [2, 3, 1, 0]);
    assert_eq!(nginx(after), [3, 2, 1, 0]);
    assert_eq!(nginx(late), [3, 2, 1], "the first is over");
    let haproxy = |now_s| written(Format::Haproxy, &ring, now_s);
    assert_eq!(haproxy(before), [1, 2, 3]);
    assert_eq!(haproxy(after), [2, 3, 2]);
}

#[test]
fn haproxy_gets_three_whatever_there_is() {
    let haproxy = |keys, hour| written(Format::Haproxy, &ring(keys), NOW_S + hour * HOUR_S);
    assert_eq!(haproxy(1, 0), [0, 0, 0]);
    assert_eq!(haproxy(2, 12), [0, 0, 1]);
    assert_eq!(haproxy(2, 13), [0, 1, 0]);
    // Several to come, made by hand: the next of them.
    let mut ring = ring(1);
    for key in 2..5 {
        ring.rotate(NOW_S + 1, &mut [key; 32]).expect("a key");
    }
    assert_eq!(written(Format::Haproxy, &ring, NOW_S + 2)[1..], [0, 1]);
}

#[test]
fn each_server_gets_as_many_as_it_holds() {
    let (ring, now_s) = (ring(4), NOW_S + 37 * HOUR_S);
    for all in [Format::Envoy, Format::Kubernetes, Format::Raw80, Format::Raw48, Format::Json] {
        assert_eq!(written(all, &ring, now_s), [3, 2, 1, 0], "{all:?}");
    }
    for one in [Format::Apache, Format::Node] {
        assert_eq!(written(one, &ring, now_s), [3], "{one:?}");
    }
    let schedule = Schedule::with_usual_lead(3_600, 12 * HOUR_S).expect("a schedule");
    let mut many = KeyRing::new(schedule);
    for key in 0..15 {
        many.rotate(NOW_S + HOUR_S * u64::from(key), &mut [key + 1; 32]).expect("a key");
    }
    let kubernetes = written(Format::Kubernetes, &many, NOW_S + 14 * HOUR_S);
    assert_eq!(kubernetes[..2], [12, 13], "the first of 15 has expired");
    assert_eq!(kubernetes.len(), 10, "the tenth and all after it are left out");
}

/// A run for each look tells the server only of new keys.
#[test]
fn the_same_keys_are_the_same_file_at_another_time() {
    let (folder, ring, now_s) = (Folder::new(), ring(4), NOW_S + 37 * HOUR_S);
    for format in [Format::Json, Format::Raw80, Format::Envoy, Format::Haproxy] {
        let into = folder.join(format!("{format:?}"));
        let run = |now_s| {
            let context = Context::new("shop").expect("a context");
            let mut files = KeyFiles::new(format, &into, context).expect("a path");
            files.write(&ring, now_s).expect("written")
        };
        assert_eq!([run(now_s), run(now_s + 60)], [true, false], "{format:?}");
    }
}

/// A server is told of what it holds, also if another process wrote it first, and not of keys for which it has no room.
#[test]
fn the_lifetime_of_tickets_is_written_when_it_changes() {
    let folder = Folder::new();
    let mut ring = ring(2);
    for (format, is_said) in [(Format::Json, true), (Format::Raw80, false)] {
        ring.reschedule(Schedule::default());
        let into = folder.join(if is_said { "json" } else { "raw" });
        let context = Context::new("shop").expect("a context");
        let mut files = KeyFiles::new(format, &into, context).expect("a path");
        assert!(files.write(&ring, NOW_S).expect("written"));
        let hours = |hours| Schedule::with_usual_lead(12 * HOUR_S, hours * HOUR_S);
        ring.reschedule(hours(36).expect("a schedule"));
        assert_eq!(files.write(&ring, NOW_S).expect("written"), is_said, "{format:?}");
        assert_eq!(files.turns(), if is_said { 2 } else { 1 });
        if is_said {
            assert_eq!(json(&into)["ticket_lifetime_s"], 36 * HOUR_S);
        }
    }
}

#[test]
fn the_sets_of_keys_are_counted() {
    let folder = Folder::new();
    for format in [Format::Apache, Format::Haproxy, Format::Json] {
        let into = folder.join(format!("{format:?}"));
        let [mut one, mut other] = [(); 2].map(|()| {
            let context = Context::new("shop").expect("a context");
            KeyFiles::new(format, &into, context).expect("a path")
        });
        let mut write = |keys, hour| {
            let now_s = NOW_S + hour * HOUR_S;
            let changed = one.write(&ring(keys), now_s).expect("written");
            assert!(!other.write(&ring(keys), now_s).expect("the same"));
            assert_eq!(one.turns(), other.turns(), "{format:?}");
            (changed, one.turns())
        };
        assert_eq!(write(3, 24), (true, 1), "{format:?}");
        assert_eq!(write(3, 24), (false, 1), "{format:?}");
        assert_eq!(write(3, 25), (true, 2), "{format:?}: another encrypts");
        let upcoming = if format == Format::Apache { (false, 2) } else { (true, 3) };
        assert_eq!(write(4, 36), upcoming, "{format:?}");
    }
}

/// A file that somebody changed is theirs; one that is gone is the server's end at its next reload.
#[test]
fn files_that_are_gone_are_written_again() {
    let (folder, ring) = (Folder::new(), ring(2));
    for format in [Format::Nginx, Format::Json] {
        let into = folder.join(format!("{format:?}"));
        let context = Context::new("shop").expect("a context");
        let mut files = KeyFiles::new(format, &into, context).expect("a path");
        assert!(!files.are_lost(), "none was written");
        assert!(files.write(&ring, NOW_S).expect("written") && !files.are_lost());
        let one = match format {
            Format::Nginx => {
                let list = read(&into.join("keys.conf"));
                Path::new(list.split('"').nth(1).expect("a path")).to_owned()
            }
            _ => into.clone(),
        };
        let bytes = std::fs::read(&one).expect("a file");
        std::fs::write(&one, "other").expect("ours");
        assert!(!files.are_lost() && !files.write(&ring, NOW_S).expect("the same"));
        std::fs::remove_file(&one).expect("there");
        assert!(files.are_lost() && !files.write(&ring, NOW_S).expect("the same"));
        files.forget();
        assert!(files.write(&ring, NOW_S).expect("again") && !files.are_lost());
        assert_eq!(std::fs::read(&one).expect("again"), bytes);
    }
}

#[test]
fn a_file_that_cannot_be_written_stays_whole() {
    let folder = Folder::new();
    let (into, there) = (folder.join("keys"), folder.join("there"));
    let context = || Context::new("shop").expect("a context");
    std::fs::create_dir(&into).expect("a folder");
    let mut files = KeyFiles::new(Format::Envoy, &into, context()).expect("a path");
    let error = files.write(&ring(1), NOW_S).expect_err("a folder is there");
    assert!(error.to_string().contains("no regular file"), "{error}");
    let mut files = KeyFiles::new(Format::Envoy, &there, context()).expect("a path");
    assert!(files.write(&ring(1), NOW_S).expect("written"));
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o770))
        .expect("set");
    let before = read(&there);
    let error = files.write(&ring(2), NOW_S + 12 * HOUR_S).expect_err("others may write there");
    assert!(error.to_string().contains("mode 770"), "{error}");
    assert_eq!(read(&there), before);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("there").count(),
        2,
        "nothing is left beside it"
    );
}

#[test]
fn kubernetes_names_are_checked() {
    let new = |name: &str| {
        let context = Context::new(name).expect("a context");
        KeyFiles::new(Format::Kubernetes, Path::new("secret.json"), context).is_ok()
    };
    assert!(["shop", "a.b-c.d", "0"].iter().all(|name| new(name)));
    assert!(!["Shop", "-a", "a-", "a..b", "a_b", "\n"].iter().any(|name| new(name)));
}
