//! A Valkey that answers the agent, and refuses to store or find sessions.

use std::thread;
use std::time::Duration;

use rejoin_cluster::{Census, ClusterSecret, Problem, Settings};
use rejoin_store::MailboxFacts;
use rejoin_testkit::cluster::link;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::valkey::Valkey;

use crate::agent::{CONTEXT, Machine, settings};

/// What was told of refusals, of all news.
fn refused(told: &[String]) -> Vec<&String> {
    told.iter().filter(|line| line.contains("Refused")).collect()
}

/// The problems of the cluster's only machine, as its report has them.
fn problems(valkey: &Valkey, settings: &Settings) -> Vec<Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let secret = ClusterSecret::read(&settings.key_file).expect("a key");
        let sites = settings.all_sites().expect("one");
        let census = Census::take(&settings.name, &secret, &sites, link(valkey).await).await;
        census.machines.first().expect("its report").problems(0)
    })
}

#[test]
fn a_full_valkey_is_told_once_and_shown_as_a_problem() {
    let (valkey, folder) = (Valkey::start(&["--maxmemory-policy", "noeviction"]), Folder::new());
    let settings = settings(&valkey, &folder);
    let (machine, told) = Machine::noting(settings.clone(), &folder);
    machine.insert(1);
    wait_until("a session sent", || machine.health.read().stored == 1);
    wait_until("its report", || valkey.say("HLEN rejoin:{web}:machines") == "1");
    assert_eq!((problems(&valkey, &settings), refused(&told()).len()), (Vec::new(), 0));
    valkey.say("CONFIG SET maxmemory 1");
    machine.insert(2);
    wait_until("the news", || !refused(&told()).is_empty());
    wait_until("the problem", || problems(&valkey, &settings) == [Problem::Refused]);
    machine.insert(3);
    wait_until("two refused", || machine.health.read().unsent == 2);
    thread::sleep(Duration::from_secs(2));
    let all = told();
    let [line] = refused(&all)[..] else { panic!("{all:?}") };
    assert!(line.contains("OOM"), "{line}");
    assert!(!all.iter().any(|line| line.starts_with("Cut")), "it answers: {all:?}");
}

/// Something else has written to the cluster's keys. An asker has its answer at once, and the reason is told.
#[test]
fn a_lookup_that_fails_is_not_waited_for() {
    let (valkey, folder) = (Valkey::start(&[]), Folder::new());
    let (machine, told) = Machine::noting(settings(&valkey, &folder), &folder);
    valkey.say("SET rejoin:{web.0}:values text");
    for number in 0..4 {
        assert!(!machine.gets(number) && !machine.takes(10 + number, CONTEXT));
    }
    let MailboxFacts { asked, late, skipped, .. } =
        machine.store.mailbox().expect("a cluster's").facts();
    assert_eq!((asked, late, skipped), (8, 0, 0));
    assert_eq!(machine.health.read().unfetched, 8);
    wait_until("the news", || !refused(&told()).is_empty());
    assert!(refused(&told())[0].contains("WRONGTYPE"), "{:?}", told());
    valkey.say("DEL rejoin:{web.0}:values");
    machine.insert(20);
    wait_until("a session sent", || machine.health.read().stored == 1);
}

/// A connection that breaks tells nothing of what Valkey has done. A copy of the first flight may come next, so that the session is
/// not certain for a while.
#[test]
fn a_session_is_not_certain_after_a_connection_broke() {
    let (valkey, folder) = (Valkey::start(&[]), Folder::new());
    let (machine, _) = Machine::noting(settings(&valkey, &folder), &folder);
    let mut numbers = 100..200;
    let mut is_certain = || {
        thread::sleep(Duration::from_millis(500));
        machine.takes_certainly(numbers.next().expect("not so many"))
    };
    wait_until("certain", &mut is_certain);
    let before = machine.health.read();
    machine.insert(2);
    wait_until("a session sent", || machine.health.read().stored > before.stored);
    valkey.say("CLIENT KILL TYPE normal");
    machine.takes(2, CONTEXT);
    wait_until("a broken lookup", || machine.health.read().unfetched > before.unfetched);
    wait_until("another is certain", &mut is_certain);
    // For a second or so a server does not ask again for what was absent.
    thread::sleep(Duration::from_secs(2));
    assert!(!machine.takes_this_certainly(2));
}

/// A primary without its replicas, or whose disk is full, takes no change: nobody can take a session from it.
#[test]
fn a_valkey_that_takes_no_changes_is_away() {
    let snapshots = Folder::new();
    let dump = snapshots.join("dump");
    std::fs::create_dir(&dump).expect("a folder");
    let (of_replicas, of_disk) = (Valkey::start(&[]), {
        Valkey::start(&["--dir", &dump.display().to_string(), "--save", "3600 1"])
    });
    for (valkey, code) in [(of_replicas, "NOREPLICAS"), (of_disk, "MISCONF")] {
        let folder = Folder::new();
        let (machine, told) = Machine::noting(settings(&valkey, &folder), &folder);
        machine.insert(1);
        wait_until("a session sent", || machine.health.read().stored == 1);
        if code == "NOREPLICAS" {
            valkey.say("CONFIG SET min-replicas-to-write 1");
        } else {
            std::fs::remove_dir(&dump).expect("an empty folder");
            valkey.say("BGSAVE");
            let failed = || valkey.say("INFO persistence").contains("last_bgsave_status:err");
            wait_until("a snapshot that failed", failed);
        }
        wait_until("the news", || told().iter().any(|line| line.starts_with("Cut")));
        assert!(!machine.health.read().is_linked, "{:?}", told());
    }
}

/// Something else has written to where machines report, twice.
#[test]
fn a_report_that_is_refused_again_is_told_again() {
    let (valkey, folder) = (Valkey::start(&[]), Folder::new());
    let spoil = || {
        valkey.say("SET rejoin:{web}:reported text");
    };
    spoil();
    let (_machine, told) = Machine::noting(settings(&valkey, &folder), &folder);
    let reports = |told: &[String]| refused(told).len();
    wait_until("the news", || reports(&told()) == 1);
    valkey.say("DEL rejoin:{web}:reported");
    wait_until("its report", || valkey.say("HLEN rejoin:{web}:machines") == "1");
    spoil();
    wait_until("the news again", || reports(&told()) == 2);
}
