//! The keys in files for servers without Rejoin, and their order.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_cluster::KeyFiles;
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{KeyRing, Schedule, ServerKeyFormat};

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
fn written(format: ServerKeyFormat, ring: &KeyRing, now_s: u64) -> Vec<usize> {
    let folder = Folder::new();
    let into = folder.join("keys");
    let mut files = KeyFiles::new(format, &into, "shop").expect("a context");
    assert!(files.write(ring, now_s).expect("written"));
    assert!(!files.write(ring, now_s).expect("the same"));
    let held: Vec<Vec<u8>> = match format {
        ServerKeyFormat::Haproxy => {
            let text = std::fs::read_to_string(&into).expect("a file");
            text.lines().map(|line| STANDARD.decode(line).expect("base64")).collect()
        }
        ServerKeyFormat::Nginx => {
            let list = std::fs::read_to_string(into.join("keys.conf")).expect("a file");
            let paths = list.lines().map(|line| line.split('"').nth(1).expect("a path"));
            paths.map(|path| std::fs::read(path).expect("a file")).collect()
        }
    };
    assert!(held.iter().all(|key| key.len() == 80));
    let label = rejoin_tickets::Label::new(b"exported\0shop").expect("a label");
    let keys: Vec<_> =
        ring.for_context(&label).iter().map(|key| key.for_server(format).to_vec()).collect();
    let place = |held: &Vec<u8>| keys.iter().position(|key| key == held).expect("of the ring");
    held.iter().map(place).collect()
}

#[test]
fn the_one_that_encrypts_stands_where_servers_look() {
    // A turn begins an hour after its key is created. The first key expires a day and two minutes after the second
    // one's turn began.
    let [before, after, late] = [36, 37, 38].map(|hour| NOW_S + hour * HOUR_S);
    let ring = ring(4);
    let nginx = |now_s| written(ServerKeyFormat::Nginx, &ring, now_s);
    assert_eq!(nginx(before), [2, 3, 1, 0]);
    assert_eq!(nginx(after), [3, 2, 1, 0]);
    assert_eq!(nginx(late), [3, 2, 1], "the first is over");
    let haproxy = |now_s| written(ServerKeyFormat::Haproxy, &ring, now_s);
    assert_eq!(haproxy(before), [1, 2, 3]);
    assert_eq!(haproxy(after), [1, 3, 2]);
}

#[test]
fn haproxy_gets_three_whatever_there_is() {
    let haproxy =
        |keys, hour| written(ServerKeyFormat::Haproxy, &ring(keys), NOW_S + hour * HOUR_S);
    assert_eq!(haproxy(1, 0), [0, 0, 0]);
    assert_eq!(haproxy(2, 12), [0, 0, 1]);
    assert_eq!(haproxy(2, 13), [1, 1, 0]);
    // Several to come, made by hand: the next of them.
    let mut ring = ring(1);
    for key in 2..5 {
        ring.rotate(NOW_S + 1, &mut [key; 32]).expect("a key");
    }
    assert_eq!(written(ServerKeyFormat::Haproxy, &ring, NOW_S + 2)[1..], [0, 1]);
}
