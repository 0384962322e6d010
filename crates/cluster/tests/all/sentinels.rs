//! The link to a primary that real sentinels name.

use std::time::Duration;

use rejoin_cluster::{Link, Login, Place, Sentinels, Servers};
use rejoin_testkit::cluster::{address, servers};
use rejoin_testkit::process::wait_until;
use rejoin_testkit::sentinels::Watched;
use rejoin_testkit::valkey::say;
use zeroize::Zeroizing;

use crate::primary::{is_at, refused, until_written, writes};

const GUIDE: &str = include_str!("../../../../docs/cluster.md");

fn of(watched: &Watched) -> Sentinels {
    let addresses = watched.sentinels.iter().map(|sentinel| address(sentinel.port)).collect();
    let master = Watched::NAME.to_owned();
    Sentinels { addresses, master, login: Login::default(), tls: None }
}

fn through(sentinels: Sentinels) -> Servers {
    Servers::new(Place::Sentinels(sentinels))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_that_sentinels_name_is_followed() {
    let mut watched = Watched::start(2, &[]);
    let link = Link::connect(&through(of(&watched))).await.expect("a primary");
    wait_until("the primary in use", || is_at(&link, watched.primary()));
    writes(&link).await.expect("written");
    let failed = watched.fail_over();
    until_written(&link).await;
    assert!(!is_at(&link, failed));
    // A sentinel may name the last one for a while.
    let later = Link::open(through(of(&watched)));
    for link in [&link, &later] {
        wait_until("the new primary in use", || is_at(link, watched.primary()));
    }
    // Without sentinels the primary stays in use.
    watched.sentinels.clear();
    writes(&link).await.expect("written");
    tokio::time::sleep(Duration::from_secs(2)).await;
    writes(&link).await.expect("written");
}

/// Returns the guide's rules for the agents' user at the sentinels.
fn rules() -> &'static str {
    let (_, section) = GUIDE.split_once("\n## Sentinel\n").expect("the section");
    let line = section.lines().find(|line| line.starts_with("user "));
    line.and_then(|line| line.strip_prefix("user ")).expect("a user")
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_need_what_the_guide_says_and_nothing_else() {
    let watched = Watched::start(1, &[]);
    for sentinel in &watched.sentinels {
        assert_eq!(say(sentinel.port, &format!("ACL SETUSER {}", rules())), "OK");
    }
    let password = Some(Zeroizing::new("PASSWORD".to_owned()));
    let login = Login::new(Some("rejoin".to_owned()), password);
    let as_user = through(Sentinels { login, ..of(&watched) });
    let link = Link::connect(&as_user).await.expect("a primary");
    writes(&link).await.expect("written");
    for sentinel in &watched.sentinels {
        assert_eq!(say(sentinel.port, "ACL LOG"), "", "something was refused");
    }
    let words: Vec<_> = rules().split(' ').filter(|word| word.starts_with('+')).collect();
    assert_eq!(words, ["+sentinel|master"], "allowed, and not needed");

    let wrong = Some(Zeroizing::new("wrong".to_owned()));
    let login = Login::new(Some("rejoin".to_owned()), wrong);
    let told = refused(&through(Sentinels { login, ..of(&watched) })).await;
    assert!(told.contains("refuses user rejoin") && !told.contains("wrong"), "{told}");
}

/// They have users of their own: Valkey's user and password are not tried on them.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_asks_for_a_password_says_where_it_belongs() {
    let watched = Watched::start(0, &[]);
    for sentinel in &watched.sentinels {
        assert_eq!(say(sentinel.port, "ACL SETUSER default resetpass >secret"), "OK");
    }
    let login = Login::new(None, Some(Zeroizing::new("secret".to_owned())));
    let told = refused(&Servers { login, ..through(of(&watched)) }).await;
    assert!(
        told.contains("asks for a password: set user and password_file in [sentinel]"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_sentinel_or_no_server_is_named_with_its_remedy() {
    let watched = Watched::start(0, &[]);
    let wrong_name = Sentinels { master: "other".to_owned(), ..of(&watched) };
    let told = refused(&through(wrong_name)).await;
    assert!(told.contains("watches no primary of the name other"), "{told}");
    let addresses = vec![address(watched.servers[0].port)];
    let told = refused(&through(Sentinels { addresses, ..of(&watched) })).await;
    assert!(told.contains("is no sentinel"), "{told}");
    let addresses = vec![address(watched.sentinels[0].port)];
    let told = refused(&Servers::new(Place::Primary(addresses))).await;
    assert!(told.contains("is a sentinel: name it in sentinel.servers"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_counts_only_while_it_is_the_primary() {
    let watched = Watched::start(1, &[]);
    let all: Vec<_> = watched.servers.iter().collect();
    let link = Link::connect(&servers(&all, false)).await.expect("a primary");
    let before = watched.primary();
    let failover = format!("SENTINEL FAILOVER {}", Watched::NAME);
    assert_eq!(say(watched.sentinels[0].port, &failover), "OK");
    wait_until("another primary", || watched.primary() != before);
    until_written(&link).await;
    wait_until("the new one in use", || is_at(&link, watched.primary()));
}
