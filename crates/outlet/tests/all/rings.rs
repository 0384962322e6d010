//! A ring in a file, which several processes change.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rejoin_store::RingFile;
use rejoin_testkit::folder::Folder;
use rejoin_tickets::Schedule;

const NOW_S: u64 = 1_800_000_000;

fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).expect("set");
    folder
}

#[test]
fn a_ring_is_made_once_and_rotates_by_itself() {
    let folder = folder();
    let path = folder.join("ring");
    let schedule = Schedule::with_usual_lead(3_600, 3_600).expect("a schedule");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let file = Arc::new(RingFile::new(&path, Some(schedule)));
            std::thread::spawn(move || file.look(NOW_S).expect("a ring").list(NOW_S).next())
        })
        .collect();
    let first: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
    assert!(first.windows(2).all(|pair| pair[0].map(|key| key.id) == pair[1].map(|key| key.id)));
    let file = RingFile::new(&path, None);
    let keys = |now_s| file.look(now_s).expect("a ring").list(now_s).count();
    assert_eq!(keys(NOW_S + 1_799), 1);
    assert_eq!(keys(NOW_S + 1_800), 2, "half an hour before its turn");
    let id = file.rotate(NOW_S + 1_801).expect("a key");
    assert_eq!(keys(NOW_S + 1_802), 3);
    assert!(file.retire(&id).expect("there") && !file.retire(&id).expect("gone"));
    assert_eq!(keys(NOW_S + 1_803), 2);
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_ring_that_others_can_reach_is_refused() {
    let folder = folder();
    let path = folder.join("ring");
    let file = RingFile::new(&path, None);
    file.look(NOW_S).expect("made");
    let refused = |why: &str| {
        let error = file.look(NOW_S).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("set");
    refused("mode 640");
    std::fs::write(&path, "no ring").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    refused("remove it, or name another");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("set");
    refused("folder");
}
