//! The machines of a cluster as anyone with its key sees them: by the reports of agents in a real Valkey, whatever others
//! put there.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rejoin_cluster::{
    Census, ClusterKeys, ClusterSecret, Error, Link, Listed, Machines, News, Problem, Report, Seen,
    Settings, Site, Sites,
};
use rejoin_testkit::cluster::{link, servers};
use rejoin_testkit::process::{DEADLINE, Signal, wait_until};
use rejoin_testkit::valkey::Valkey;

use crate::agent::{self, CONTEXT, Machine};
use crate::site_partitions::Way;

const MACHINES: &str = "rejoin:{web}:machines";
const REPORTED: &str = "rejoin:{web}:reported";

fn machine(valkey: &Valkey, name: &str) -> Machine {
    telling(valkey, name, name, |_| {})
}

/// A machine with a folder of its own.
fn telling(
    valkey: &Valkey,
    folder: &str,
    name: &str,
    tell: impl FnMut(News<'_>) + Send + 'static,
) -> Machine {
    let folder = valkey.folder.join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let machine = Some(name.parse().expect("a name"));
    let settings = Settings { machine, ..agent::settings(valkey, &folder) };
    Machine::telling(settings, &folder, tell)
}

fn secret(valkey: &Valkey) -> ClusterSecret {
    ClusterSecret::read(&valkey.folder.join("key")).expect("a key")
}

async fn census(valkey: &Valkey, others: &[(&str, &Valkey)]) -> Census {
    let site = |(name, valkey): &(&str, &Valkey)| Site {
        name: name.parse().expect("a name"),
        servers: servers(&[valkey], false),
    };
    let sites = Sites::new(servers(&[valkey], false), others.iter().map(site).collect(), None);
    let name = "web".parse().expect("a name");
    Census::take(&name, &secret(valkey), &sites, link(valkey).await).await
}

fn find<'c>(census: &'c Census, name: &str) -> Option<&'c Seen> {
    census.machines.iter().find(|seen| seen.report.machine.as_str() == name)
}

/// Waits for a census that is so.
async fn until(
    what: &str,
    take: impl AsyncFn() -> Census,
    is_so: impl Fn(&Census) -> bool,
) -> Census {
    let end = Instant::now() + DEADLINE;
    loop {
        let census = take().await;
        if is_so(&census) {
            return census;
        }
        assert!(Instant::now() < end, "not {what}: {census:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Lets a report be older by this time, as Valkey has it.
async fn age(valkey: &Valkey, id: &[u8], by: Duration) {
    let mut older = redis::cmd("ZINCRBY");
    older.arg(REPORTED).arg(-(by.as_millis() as i64)).arg(id);
    older.exec_async(&mut link(valkey).await).await.expect("older");
}

/// The ids of all that have reported, the one that did so last at the end.
async fn ids(valkey: &Valkey) -> Vec<Vec<u8>> {
    let list = redis::cmd("ZRANGE").arg(REPORTED).arg(0).arg(-1).to_owned();
    list.query_async(&mut link(valkey).await).await.expect("ids")
}

async fn rotate(valkey: &Valkey) {
    let keys = ClusterKeys::new("web".parse().expect("a name"), &secret(valkey), None);
    let mut keys = keys.expect("a lead").only_followed();
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    keys.rotate(&mut link(valkey).await, now_s).await.expect("a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_machine_is_shown_and_one_that_stopped_is_marked() {
    let valkey = Valkey::start(&[]);
    let one = machine(&valkey, "one");
    let take = async || census(&valkey, &[]).await;
    until("one", &take, |census| census.machines.len() == 1).await;
    let [of_one] = &ids(&valkey).await[..] else { panic!("one id") };
    let other = machine(&valkey, "other");
    one.insert(7);
    agent::until_counted(&valkey, "HLEN rejoin:{web.0}:values", 1);
    assert!(other.takes(7, CONTEXT) && !other.takes(8, CONTEXT));
    // They report it at once.
    rotate(&valkey).await;
    let is_so = |census: &Census| {
        let is_at_two = |name| find(census, name).is_some_and(|of| of.report.ring_version == 2);
        is_at_two("one") && is_at_two("other")
    };
    let both = until("both", &take, is_so).await;
    assert_eq!((both.machines.len(), both.unopened, both.unread.len()), (2, 0, 0));
    for seen in &both.machines {
        assert_eq!(seen.problems(2), [], "{seen:?}");
        let Report { answered, unanswered, at_ms, since_ms, site, .. } = &seen.report;
        assert!(*answered > 0 && *unanswered == 0 && at_ms > since_ms && site.is_none());
        assert_eq!(seen.report.key, secret(&valkey).key_name());
    }
    let counts = |name| {
        let Report { stored, asked, fetched, .. } = find(&both, name).expect("there").report;
        (stored, asked, fetched)
    };
    assert_eq!((counts("one"), counts("other")), ((1, 0, 0), (0, 2, 1)));
    drop(other);
    let of_other = ids(&valkey).await.into_iter().find(|id| id != of_one).expect("two");
    let silent = |census: &Census| find(census, "other").expect("there").problems(2);
    age(&valkey, &of_other, Seen::SILENT_AFTER / 2).await;
    assert_eq!(silent(&take().await), [], "it may report again");
    age(&valkey, &of_other, Seen::SILENT_AFTER).await;
    let census = take().await;
    assert_eq!(silent(&census), [Problem::Silent]);
    assert_eq!(find(&census, "one").expect("there").problems(2), []);
    // Its next agent is no second one.
    let again = machine(&valkey, "other");
    until("it is back", &take, |census| silent(census).is_empty()).await;
    rotate(&valkey).await;
    let is_reported = |census: &Census| find(census, "other").is_some_and(|of| of.lag(3) == 0);
    let back = until("two reports", &take, is_reported).await;
    assert_eq!((back.machines.len(), silent(&back)), (2, vec![]));
    drop(again);
}

/// A silent machine is marked by time alone, without anybody's help.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for 31 s"]
async fn a_machine_is_silent_after_half_a_minute() {
    let valkey = Valkey::start(&[]);
    let one = machine(&valkey, "one");
    let take = async || census(&valkey, &[]).await;
    until("one", &take, |census| census.machines.len() == 1).await;
    drop(one);
    let is_silent =
        |census: &Census| find(census, "one").is_some_and(|of| of.problems(1) == [Problem::Silent]);
    let census = until("silence", &take, is_silent).await;
    assert!(census.machines[0].ago_ms < 40_000, "{census:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_reach_the_home_is_behind() {
    let [berlin, tokyo] = [Valkey::start(&[]), Valkey::start(&[])];
    let way = Way::to(berlin.port).await;
    let in_berlin = of_site(&berlin, &berlin, ("berlin", berlin.port), ("tokyo", tokyo.port));
    let in_tokyo = of_site(&berlin, &tokyo, ("tokyo", tokyo.port), ("berlin", way.port));
    let take = async || census(&berlin, &[("tokyo", &tokyo)]).await;
    let versions = |census: &Census| {
        let of = |name| find(census, name).map(|seen| seen.report.ring_version);
        (of("berlin-1"), of("tokyo-1"))
    };
    until("both", &take, |census| versions(census) == (Some(1), Some(1))).await;
    way.set_cut(true);
    rotate(&berlin).await;
    let is_so = |census: &Census| {
        versions(census) == (Some(2), Some(1))
            && find(census, "tokyo-1").is_some_and(|of| of.report.is_home_linked == Some(false))
    };
    let apart = until("one behind", &take, is_so).await;
    let [berlin_1, tokyo_1] = &apart.machines[..] else { panic!("two: {apart:?}") };
    assert_eq!((berlin_1.problems(2), berlin_1.lag(2)), (vec![], 0));
    assert_eq!(tokyo_1.problems(2), [Problem::Behind, Problem::NoHome]);
    assert_eq!(tokyo_1.lag(2), 1);
    assert_eq!(tokyo_1.report.site.as_ref().map(|site| site.as_str()), Some("tokyo"));
    // A site that cannot be asked hides no other one.
    tokyo.process().signal(Signal::STOP);
    let census = take().await;
    let [(Some(site), _)] = &census.unread[..] else { panic!("one: {census:?}") };
    assert_eq!((site.as_str(), census.machines.len()), ("tokyo", 1));
    tokyo.process().signal(Signal::CONT);
    way.set_cut(false);
    until("the ring", &take, |census| versions(census) == (Some(2), Some(2))).await;
    drop((in_berlin, in_tokyo));
}

/// The first machine of a site. Berlin is the home, and its Valkey's folder has the key file.
fn of_site(home: &Valkey, valkey: &Valkey, own: (&str, u16), other: (&str, u16)) -> Machine {
    let folder = valkey.folder.join("1");
    std::fs::create_dir_all(&folder).expect("a folder");
    let settings = agent::settings(home, &folder);
    let key = folder.join("key");
    std::fs::copy(&settings.key_file, &key).expect("copied");
    let ((own, own_port), (other, other_port)) = (own, other);
    let text = format!(
        "name = \"web\"\nsite = \"{own}\"\nhome = \"berlin\"\nmachine = \"{own}-1\"\n\
         servers = [\"127.0.0.1:{own_port}\"]\nkey_file = {key:?}\nfolder = {folder:?}\n\
         capacity = \"1MiB\"\n[sessions]\nshards = 1\n\
         [[sites]]\nname = \"{other}\"\nservers = [\"127.0.0.1:{other_port}\"]\n"
    );
    let file = folder.join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    Machine::telling(Settings::read(&file).expect("settings"), &folder, |_| {})
}

/// Two agents report in turns, and neither knows which of them the operator means.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_two_machines_have_is_told() {
    let valkey = Valkey::start(&[]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let start = |folder: &str| {
        let told = Arc::clone(&told);
        telling(&valkey, folder, "twin", move |news| {
            if let News::Unseen(error) = news {
                told.lock().expect("no panic").push(error.to_string());
            }
        })
    };
    let twins = ["1", "2"].map(start);
    let take = async || census(&valkey, &[]).await;
    let is_shared = |census: &Census| {
        find(census, "twin").is_some_and(|of| of.problems(0) == [Problem::SharedName])
    };
    let census = until("it is shown", &take, is_shared).await;
    assert_eq!(census.machines.len(), 1);
    wait_until("it is told", || told.lock().expect("no panic").len() == 2);
    let told = told.lock().expect("no panic");
    assert!(told.iter().all(|line| line.contains("another agent reports as machine twin")));
    drop(twins);
}

/// After a failover or a restart, Valkey may have an earlier report again: that of this machine's last agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_from_before_a_restart_is_no_other_machine() {
    let valkey = Valkey::start(&[]);
    let before = machine(&valkey, "one");
    let take = async || census(&valkey, &[]).await;
    let agent = |census: &Census| find(census, "one").map(|of| of.report.agent);
    let of_before = agent(&until("one", &take, |census| agent(census).is_some()).await);
    let [id] = &ids(&valkey).await[..] else { panic!("one id") };
    let get = redis::cmd("HGET").arg(MACHINES).arg(&id[..]).to_owned();
    let report: Vec<u8> = get.query_async(&mut link(&valkey).await).await.expect("a report");
    drop(before);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let after = telling(&valkey, "one", "one", move |news| {
        tells.lock().expect("no panic").push(format!("{news:?}"));
    });
    until("its next agent", &take, |census| agent(census) != of_before).await;
    let set = redis::cmd("HSET").arg(MACHINES).arg(&id[..]).arg(report).to_owned();
    set.exec_async(&mut link(&valkey).await).await.expect("set");
    assert_eq!(agent(&take().await), of_before);
    // What is new makes it report at once, and again with what that told it.
    for version in [2, 3] {
        rotate(&valkey).await;
        let is_reported = |census: &Census| {
            find(census, "one").is_some_and(|of| of.report.ring_version == version)
        };
        let census = until("its report", &take, is_reported).await;
        assert_eq!(census.machines[0].problems(version), []);
    }
    let told = told.lock().expect("no panic");
    assert!(!told.iter().any(|line| line.contains("SharedName")), "{told:?}");
    drop(after);
}

/// Its machine would look silent, and nobody would know why.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_valkey_refuses_is_told_once() {
    let valkey = Valkey::start(&[]);
    let folder = valkey.folder.join("1");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (machine, told) = Machine::noting(agent::settings(&valkey, &folder), &folder);
    let is_reported = || valkey.say(&format!("HLEN {MACHINES}")) == "1";
    wait_until("a report", is_reported);
    valkey.say(&format!("SET {MACHINES} text"));
    // What is new makes it report at once.
    for version in [2, 3] {
        rotate(&valkey).await;
        wait_until("the ring", || machine.store.ring_version() == version);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let told = told();
    let unseen: Vec<_> = told.iter().filter(|line| line.starts_with("Unseen")).collect();
    assert!(unseen.len() == 1 && unseen[0].contains("WRONGTYPE"), "{told:?}");
    valkey.say(&format!("DEL {MACHINES}"));
    rotate(&valkey).await;
    wait_until("a report", is_reported);
}

/// Reports of machines that nobody runs.
struct Reports {
    valkey: Valkey,
    link: Link,
    machines: Machines,
}

impl Reports {
    async fn new() -> Self {
        let valkey = Valkey::start(&[]);
        let secret = ClusterSecret::create(&valkey.folder.join("key")).expect("a key");
        let machines = Machines::new(&"web".parse().expect("a name"), &secret);
        Self { link: link(&valkey).await, valkey, machines }
    }

    fn report(&self, name: &str) -> Report {
        Report::new(name.parse().expect("a name"), None, secret(&self.valkey).key_name())
    }

    async fn put(&self, report: &Report) -> Result<Option<Report>, Error> {
        self.machines.put(&mut self.link.clone(), report).await
    }

    /// The names of all machines, and the number of values that are no reports.
    async fn names(&self) -> (Vec<String>, usize) {
        let Listed { reports, unopened } =
            self.machines.read(&mut self.link.clone()).await.expect("an answer");
        let mut names: Vec<_> =
            reports.iter().map(|(report, _)| report.machine.to_string()).collect();
        names.sort();
        (names, unopened)
    }

    async fn sealed(&self, id: &[u8]) -> Vec<u8> {
        let get = redis::cmd("HGET").arg(MACHINES).arg(id).to_owned();
        get.query_async(&mut self.link.clone()).await.expect("a report")
    }

    async fn set(&self, id: &[u8], sealed: &[u8]) {
        let set = redis::cmd("HSET").arg(MACHINES).arg(id).arg(sealed).to_owned();
        set.exec_async(&mut self.link.clone()).await.expect("set");
    }

    fn say(&self, command: &str, key: &str) -> u64 {
        self.valkey.say(&format!("{command} {key}")).parse().expect("a number")
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn what_is_no_report_of_a_machine_is_counted_and_not_shown() {
    let reports = Reports::new().await;
    reports.put(&reports.report("one")).await.expect("room");
    let [of_one] = &ids(&reports.valkey).await[..] else { panic!("one id") };
    reports.put(&reports.report("other")).await.expect("room");
    let of_other = ids(&reports.valkey).await.into_iter().find(|id| id != of_one).expect("two");
    assert_eq!(reports.names().await, (names(&["one", "other"]), 0));
    // Valkey sees no name, and equally long reports.
    let [one, other] = [reports.sealed(of_one).await, reports.sealed(&of_other).await];
    assert_eq!(one.len(), other.len());
    let shows = |what: &[u8], name: &[u8]| what.windows(name.len()).any(|part| part == name);
    assert!(![of_one, &of_other, &one, &other].iter().any(|all| shows(all, b"one")));
    // Reports that were exchanged.
    reports.set(of_one, &other).await;
    assert_eq!(reports.names().await, (names(&["other"]), 1));
    reports.set(&of_other, &one).await;
    assert_eq!(reports.names().await, (vec![], 2));
    reports.set(&of_other, &other).await;
    // Anything else in the place of a report.
    let flipped = |at: usize| {
        let mut sealed = one.clone();
        sealed[at] ^= 1;
        sealed
    };
    let mut forged = vec![vec![], b"forged".to_vec(), vec![7; 1 << 20], [&one[..], b"x"].concat()];
    forged.extend([0, 12, one.len() / 2, one.len() - 1].map(flipped));
    forged.push(one[..one.len() - 1].to_vec());
    for sealed in &forged {
        reports.set(of_one, sealed).await;
        assert_eq!(reports.names().await, (names(&["other"]), 1), "{} bytes", sealed.len());
    }
    reports.set(of_one, &one).await;
    // Machines that there are not: of another length, without a time, and without a report.
    for (score, id) in [("9000000000000", "short"), ("+inf", "sixteen-letters-")] {
        reports.valkey.say(&format!("ZADD {REPORTED} {score} {id}"));
        reports.set(id.as_bytes(), &one).await;
    }
    reports.valkey.say(&format!("ZADD {REPORTED} 9000000000000 nothing"));
    assert_eq!(reports.names().await, (names(&["one", "other"]), 2));
    // Those of another cluster's key, and of another cluster with this one's.
    let stranger = ClusterSecret::create(&reports.valkey.folder.join("stranger")).expect("a key");
    let strangers = Machines::new(&"web".parse().expect("a name"), &stranger);
    strangers.put(&mut reports.link.clone(), &reports.report("one")).await.expect("room");
    assert_eq!(reports.names().await, (names(&["one", "other"]), 3));
    let secret = secret(&reports.valkey);
    let cousins = Machines::new(&"cousin".parse().expect("a name"), &secret);
    cousins.put(&mut reports.link.clone(), &reports.report("one")).await.expect("room");
    let read = redis::cmd("HGETALL").arg("rejoin:{cousin}:machines").to_owned();
    let theirs: Vec<Vec<u8>> = read.query_async(&mut reports.link.clone()).await.expect("one");
    let [id, sealed] = &theirs[..] else { panic!("one") };
    assert_ne!(id, of_one);
    reports.set(of_one, sealed).await;
    assert_eq!(reports.names().await, (names(&["other"]), 4));
}

/// An old report that is put back does not hide that its machine is silent.
#[tokio::test]
async fn a_report_that_is_put_back_shows_by_its_time() {
    const APART_MS: u64 = 120_000;
    let reports = Reports::new().await;
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let in_bounds = [now_ms - APART_MS / 2, now_ms + APART_MS / 2];
    let out_of_bounds = [0, now_ms - 2 * APART_MS, now_ms + 2 * APART_MS, u64::MAX];
    let of = async |at_ms: u64| {
        let report = Report { at_ms, ..reports.report("one") };
        reports.put(&report).await.expect("room");
        let census = census(&reports.valkey, &[]).await;
        (census.machines[0].problems(0), census.machines[0].clock_ahead_ms)
    };
    for at_ms in in_bounds {
        assert_eq!(of(at_ms).await.0, []);
    }
    for at_ms in out_of_bounds {
        let (problems, ahead_ms) = of(at_ms).await;
        assert_eq!(problems, [Problem::Clock], "{at_ms}");
        assert_eq!(ahead_ms > 0, at_ms > now_ms);
    }
}

#[tokio::test]
async fn machines_are_bounded_and_forgotten_after_a_day() {
    let reports = Reports::new().await;
    let (one, two) = (reports.report("one"), reports.report("two"));
    assert_eq!(reports.put(&one).await.expect("room"), None);
    let fill = format!(
        "EVAL \"for id = 2, ARGV[1] do redis.call('HSET', KEYS[1], id, 'x') \
         redis.call('ZADD', KEYS[2], ARGV[2], id) end\" 2 {MACHINES} {REPORTED} {} 9000000000000",
        Machines::MOST
    );
    reports.valkey.say(&fill);
    assert_eq!(reports.names().await, (names(&["one"]), Machines::MOST - 1));
    let refused = reports.put(&two).await;
    assert!(matches!(refused, Err(Error::TooManyMachines { .. })), "{refused:?}");
    assert_eq!(reports.put(&one).await.expect("it has room"), Some(one.clone()));
    assert_eq!(reports.say("HLEN", MACHINES), Machines::MOST as u64);
    // All but one have been silent for more than a day.
    let mut silent = String::new();
    let day_ms = Machines::STAYS.as_millis() as u64;
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    for id in 2..=20 {
        write!(silent, " {} {id}", now_ms - day_ms - 1).expect("written");
    }
    reports.valkey.say(&format!("ZADD {REPORTED} XX {} 21{silent}", now_ms - day_ms + 60_000));
    reports.put(&two).await.expect("room");
    assert_eq!(reports.say("HLEN", MACHINES), Machines::MOST as u64 - 16 + 1);
    reports.put(&two).await.expect("room");
    let left = Machines::MOST as u64 - 19 + 1;
    assert_eq!((reports.say("HLEN", MACHINES), reports.say("ZCARD", REPORTED)), (left, left));
    assert!(!reports.valkey.say(&format!("ZSCORE {REPORTED} 21")).is_empty());
    // Nothing is left over when one of the two is lost.
    reports.valkey.say(&format!("DEL {REPORTED}"));
    reports.put(&one).await.expect("room");
    assert_eq!((reports.say("HLEN", MACHINES), reports.names().await), (1, (names(&["one"]), 0)));
    reports.valkey.say(&format!("DEL {MACHINES}"));
    assert_eq!(reports.names().await, (vec![], 0));
    assert_eq!(reports.put(&one).await.expect("room"), None);
    assert_eq!(reports.names().await, (names(&["one"]), 0));
}

/// A full Valkey refuses sessions. Who is there is worth knowing then.
#[tokio::test]
async fn a_full_valkey_takes_reports() {
    let reports = Reports::new().await;
    reports.valkey.say("CONFIG SET maxmemory 1");
    reports.put(&reports.report("one")).await.expect("room");
    assert_eq!(reports.names().await, (names(&["one"]), 0));
}

/// Rules of an earlier version, which lack the reports, cost nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn rules_without_reports_are_told_once_and_change_nothing_else() {
    let valkey = Valkey::start(&[]);
    let folder = valkey.folder.join("1");
    std::fs::create_dir_all(&folder).expect("a folder");
    let password = folder.join("password");
    std::fs::write(&password, "secret").expect("written");
    let settings = Settings {
        user: Some("agent".to_owned()),
        password_file: Some(password),
        ..agent::settings(&valkey, &folder)
    };
    let (rules, own) = (settings.acl_rules(), settings.valkey().expect("files"));
    let narrower = rules.replace(&format!(" ~{MACHINES} ~{REPORTED}"), "");
    assert_ne!(narrower, rules);
    valkey.say(&format!("ACL SETUSER agent on >secret {narrower}"));
    let (machine, told) = Machine::noting(settings, &folder);
    let is_denied = |line: &String| line.starts_with("Denied");
    wait_until("it is told", || told().iter().filter(|line| is_denied(line)).count() == 1);
    // What is new makes it report again.
    rotate(&valkey).await;
    wait_until("the ring", || machine.store.ring_version() == 2);
    machine.insert(7);
    agent::until_counted(&valkey, "HLEN rejoin:{web.0}:values", 1);
    assert!(machine.takes(7, CONTEXT));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = told();
    assert_eq!(told.iter().filter(|line| !line.starts_with("Linked")).count(), 1, "{told:?}");
    let health = machine.health.read();
    assert_eq!((health.unsent, health.unfetched, health.unanswered), (0, 0, 0));
    // Whoever looks says so, too.
    let name = "web".parse().expect("a name");
    let link = Link::connect(&own).await.expect("let in");
    let sites = Sites::new(own, Vec::new(), None);
    let census = Census::take(&name, &secret(&valkey), &sites, link).await;
    let [(None, error)] = &census.unread[..] else { panic!("one: {census:?}") };
    assert!(error.to_string().contains("rules are too narrow"), "{error}");
    // With the rules that it tells, it is seen.
    valkey.say(&format!("ACL SETUSER agent {rules}"));
    wait_until("a report", || valkey.say(&format!("ZCARD {REPORTED}")) == "1");
}
