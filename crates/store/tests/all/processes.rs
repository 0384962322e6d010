//! Processes that share a cache, and die: each a copy of this program that plays a role.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rejoin_cache::{Capacity, SecretBytes, Settings};
use rejoin_store::{CacheName, Error, Objection, Store, now_ms};
use rejoin_testkit::alone::{part, playing};
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::random::Random;
use rustix::fs::{FlockOperation, flock};

use crate::session::{find, id, insert};

/// Different ids of sessions in every test.
const SESSIONS: u64 = 2_000;
const FOLDER: &str = "REJOIN_TEST_FOLDER";
const NUMBER: &str = "REJOIN_TEST_NUMBER";

fn settings() -> Settings {
    Settings { shards: Some(4), block_bytes: 200, ..Settings::new(Capacity::Sessions(1_000)) }
}

fn open(folder: &Path) -> Result<Store, Error> {
    Store::open(folder, &crate::name(), Some(&settings()))
}

/// Returns the command for another process with a role.
pub(crate) fn role(role: &str, folder: &Path, number: u64) -> Command {
    let mut command = playing("processes::plays_a_role", role);
    command.env(FOLDER, folder).env(NUMBER, number.to_string());
    command
}

pub(crate) fn start(what: &str, folder: &Path, number: u64) -> Process {
    Process::start(&mut role(what, folder, number))
}

/// Waits until the condition holds: a process that waits for a processor may hold a lock.
pub(crate) fn soon(condition: impl FnMut() -> bool) {
    wait_until("what other processes hold up", condition);
}

/// Waits until every shard could be checked and is sound.
fn until_sound(store: &Store) {
    soon(|| store.check().iter().all(Result::is_ok));
}

fn ended_well(process: &mut Process) -> bool {
    process.wait().success()
}

/// Plays the part that another process of this test gave it, if one did.
#[test]
fn plays_a_role() {
    let Some(role) = part() else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let number = std::env::var(NUMBER).expect("a number").parse().expect("a number");
    match role.as_str() {
        "meet" => meet(&folder, number),
        "come at once" => come_at_once(&folder, number),
        "work" => work(&folder, number),
        "come again" => come_again(&folder, number),
        "find no room" => find_no_room(&folder),
        "fit exactly" => fit_exactly(&folder),
        "go on without" => crate::files::go_on_without_a_cut_file(&folder),
        "keep the old one" => crate::replaced::keep_the_old_one(&folder),
        "find it closed" => find_it_closed(&folder),
        "find root's" => crate::foreign::find_roots(&folder),
        "find it squatted" => crate::foreign::find_it_squatted(&folder),
        "hold in turns" => crate::locks::hold_in_turns(&folder),
        other => panic!("no role {other:?}"),
    }
}

fn meet(folder: &Path, number: u64) {
    let store = open(folder).expect("there");
    assert!(find(&store, number) && insert(&store, number + 1));
}

#[test]
fn processes_find_each_others_sessions() {
    let folder = crate::folder();
    let store = open(folder.path()).expect("made");
    for number in [10, 20, 30] {
        assert!(insert(&store, number));
        assert!(ended_well(&mut start("meet", folder.path(), number)));
        assert!(find(&store, number + 1));
    }
    assert_eq!(store.cache().counters().hits, 6, "counts are shared");
}

fn come_at_once(folder: &Path, number: u64) {
    std::fs::write(folder.join("ready").join(number.to_string()), "").expect("written");
    let start = File::open(folder.join("start")).expect("there");
    flock(&start, FlockOperation::LockShared).expect("free at last");
    let store = open(folder).expect("made by somebody");
    soon(|| insert(&store, number));
    assert!(store.facts().is_named);
}

#[test]
fn of_those_who_come_at_once_one_makes_it() {
    for _ in 0..8 {
        let folder = crate::folder();
        std::fs::create_dir(folder.path().join("ready")).expect("a new folder");
        let gate = File::create(folder.path().join("start")).expect("a new file");
        flock(&gate, FlockOperation::LockExclusive).expect("free");
        let start = |number| start("come at once", folder.path(), number);
        let mut children: Vec<Process> = (0..16).map(start).collect();
        let ready = folder.path().join("ready");
        soon(|| std::fs::read_dir(&ready).expect("a folder").count() == children.len());
        flock(&gate, FlockOperation::Unlock).expect("locked");
        assert!(children.iter_mut().all(ended_well));
        let store = open(folder.path()).expect("there");
        assert!((0..16).all(|number| find(&store, number)), "two made one");
        let names = folder.file_names();
        assert_eq!(names.len(), 3, "the cache, and two of this test: {names:?}");
    }
}

/// Opens the cache. Another process may be about to remove it for longer than the store waits.
fn open_in_time(folder: &Path) -> Store {
    let mut store = None;
    soon(|| {
        store = match open(folder) {
            Ok(store) => Some(store),
            Err(Error::Busy { .. } | Error::NotOurs { objection: Objection::NoCache, .. }) => None,
            Err(error) => panic!("there is one, or it is made: {error}"),
        };
        store.is_some()
    });
    store.expect("opened")
}

fn come_again(folder: &Path, number: u64) {
    for _ in 0..300 {
        let store = open_in_time(folder);
        let _was_there = find(&store, number);
        soon(|| insert(&store, number));
        until_sound(&store);
    }
}

#[test]
fn it_may_be_removed_while_others_come() {
    let folder = crate::folder();
    let start = |number| start("come again", folder.path(), number);
    let name = crate::name();
    let mut removed = 0;
    // They may all have come and gone before this process had a turn.
    while removed <= 10 {
        let mut children: Vec<Process> = (0..4).map(start).collect();
        while children.iter_mut().any(|child| child.ended().is_none()) {
            let was_there = Store::remove(folder.path(), &name).expect("removed, or not there");
            removed += u32::from(was_there);
        }
        assert!(children.iter_mut().all(ended_well));
    }
    Store::remove(folder.path(), &name).expect("removed, or not there");
    assert_eq!(folder.file_names(), [] as [&str; 0]);
}

/// Goes on until it is killed; fails when it is given what is not right.
fn work(folder: &Path, seed: u64) {
    let store = open(folder).expect("there");
    let mut random = Random::new(seed);
    let mut value = SecretBytes::default();
    loop {
        let state = random.next();
        let number = state % SESSIONS;
        match state >> 60 {
            0..6 => drop(find(&store, number)),
            6 => drop(store.cache().remove(&id(number))),
            7 => drop(store.cache().hint(now_ms(), &id(number), state >> 40)),
            8 => {
                let _ =
                    store.cache().take(now_ms(), &id(number), crate::session::CONTEXT, &mut value);
            }
            9 => store.cache().retire(&id(number)),
            _ => drop(insert(&store, number)),
        }
    }
}

#[test]
fn those_who_are_left_go_on_when_others_are_killed() {
    const KILLS: u64 = 300;
    let folder = crate::folder();
    let store = open(folder.path()).expect("made");
    let mut survivor = start("work", folder.path(), 1_000_003);
    let mut victims: Vec<Process> = Vec::new();
    for seed in 0..KILLS {
        victims.push(start("work", folder.path(), seed * 7 + 2));
        if victims.len() == 3 {
            // Some are killed while they start, most while they work.
            std::thread::sleep(Duration::from_millis(3 + seed % 23));
            let mut victim = victims.remove(0);
            assert!(victim.ended().is_none(), "it was told wrong");
            victim.kill();
            assert!(!ended_well(&mut victim));
            let _found = (0..50).filter(|number| find(&store, *number)).count();
        }
        if seed % 50 == 0 {
            until_sound(&store);
        }
    }
    assert!(survivor.ended().is_none(), "it was told wrong");
    drop((victims, survivor));
    let facts = store.facts();
    until_sound(&store);
    // The policy may refuse one that it expects after all others, but not all of them.
    let stored: Vec<u64> = (0..SESSIONS)
        .filter(|number| insert(&store, *number))
        .inspect(|number| assert!(find(&store, *number), "{number} was stored"))
        .collect();
    assert!(stored.len() as u64 > SESSIONS / 10, "{} only", stored.len());
    assert!(facts.emptied > 0, "of {KILLS} none was killed in the middle");
    assert_eq!(facts.locks_broken, 0);
    // Where many wait for a processor, one may wait in vain for who has the lock and none.
    assert!(facts.lock_timeouts < KILLS / 10, "{} waited in vain", facts.lock_timeouts);
}

#[test]
fn a_child_goes_on_with_what_its_parent_opened() {
    let folder = crate::folder();
    let store = open(folder.path()).expect("made");
    assert!(insert(&store, 1));
    // SAFETY: the child uses shared memory and the heap, which the C library lets it, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = find(&store, 1) && insert(&store, 2);
        // SAFETY: it ends this process, without what a test does at its end.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    let mut status = -1;
    // SAFETY: it waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    assert!(find(&store, 2));
    assert_eq!(store.facts().emptied, 0);
}

fn find_no_room(folder: &Path) {
    let error = open(folder).expect_err("there is no room");
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    let left = std::fs::read_dir(folder).expect("there").count();
    assert_eq!(left, 0, "something is left behind");
}

#[test]
fn a_full_folder_is_an_error_and_not_a_crash() {
    plays_in_a_folder_of("128k", "find no room");
}

/// Docker gives a container 64 MiB unless told otherwise.
#[test]
fn a_cache_of_64_mib_fits_a_folder_of_64_mib() {
    plays_in_a_folder_of("64m", "fit exactly");
}

fn fit_exactly(folder: &Path) {
    for (capacities, shards) in [(&[64][..], None), (&[64], Some(64)), (&[32, 16, 16], None)] {
        let caches = capacities.iter().zip(["a", "b", "c"]).map(|(mib, name)| {
            let settings = Settings { shards, ..Settings::new(Capacity::Bytes(mib << 20)) };
            let name: CacheName = name.parse().expect("a name");
            let store = Store::open(folder, &name, Some(&settings)).expect("there is room");
            (0..1_000).for_each(|number| assert!(insert(&store, number)));
            name
        });
        for name in caches.collect::<Vec<_>>() {
            assert!(Store::remove(folder, &name).expect("removed"));
        }
    }
}

/// Plays a role in another process, in a folder of this size, if the system lets this one make such a folder.
pub(crate) fn plays_in_a_folder_of(size: &str, part: &str) {
    let folder = crate::folder();
    let script = format!(r#"mount -t tmpfs -o size={size} tmpfs "$0" || exit 77; exec "$@""#);
    let player = role(part, folder.path(), 0);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", &script]).arg(folder.path());
    command.arg(player.get_program()).args(player.get_args());
    command.envs(player.get_envs().filter_map(|(name, value)| Some((name, value?))));
    match command.stdout(std::process::Stdio::null()).status() {
        Ok(status) if status.code() == Some(77) || status.code() == Some(1) => {
            eprintln!("skipped: a folder of {size} (needs the right to mount)");
        }
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => eprintln!("skipped: a folder of {size} (needs unshare)"),
    }
}

fn find_it_closed(folder: &Path) {
    let error = open(folder).expect_err("nobody may write there");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[test]
fn a_folder_that_may_not_be_written_is_an_error() {
    use std::os::unix::process::CommandExt;
    let folder = crate::folder();
    let mut command = role("find it closed", folder.path(), 0);
    // Root may write anywhere.
    match command.uid(65_534).gid(65_534).current_dir("/").status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => eprintln!("skipped: a closed folder (needs root, and a program others may run)"),
    }
    // Nor may another user open what is root's.
    open(folder.path()).expect("made");
    if let Ok(status) = role("find it closed", folder.path(), 0).uid(65_534).status() {
        assert!(status.success(), "{status}");
    }
}
