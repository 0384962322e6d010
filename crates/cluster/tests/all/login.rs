//! A user's password that changes while a link is open, and a user whose rules are too narrow.

use rejoin_cluster::{Link, Login, Servers};
use rejoin_testkit::cluster::{ValkeyCluster, servers};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::valkey::Valkey;

use crate::primary::{refused, until_told, until_written, writes};

fn change_password(nodes: &[&Valkey], to: &str) {
    for node in nodes {
        let user = format!("ACL SETUSER agent on resetpass >{to} ~* +@all");
        assert_eq!(node.say(&user), "OK");
        // A service that requires a new password ends connections with the old one.
        node.say("CLIENT KILL USER agent");
    }
}

/// The password changes in Valkey first, and in its file a while later.
async fn follow(nodes: &[&Valkey], clustered: bool) {
    let folder = Folder::new();
    let file = folder.write("password", "one\n");
    change_password(nodes, "one");
    let login = Login::with_file(Some("agent".to_owned()), &file).expect("readable");
    let servers = Servers { login, ..servers(nodes, clustered) };
    let link = Link::connect(&servers).await.expect("let in");
    writes(&link).await.expect("written");
    change_password(nodes, "two");
    until_told(&link, "refuses user agent").await;
    folder.write("password", "two\n");
    until_written(&link).await;
    std::fs::remove_file(&file).expect("there");
    change_password(nodes, "three");
    until_told(&link, "a newer").await;
    folder.write("password", "three\n");
    let why = until_written(&link).await;
    assert!(!format!("{why:?} {servers:?}").contains("three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_in_its_file_is_followed() {
    follow(&[&Valkey::start(&[])], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_in_its_file_is_followed_in_a_cluster() {
    let valkey = ValkeyCluster::of(3);
    follow(&valkey.nodes.iter().collect::<Vec<_>>(), true).await;
}

#[tokio::test]
async fn a_password_that_is_missing_is_asked_for() {
    let valkey = Valkey::start(&["--requirepass", "secret"]);
    let told = refused(&servers(&[&valkey], false)).await;
    assert!(told.contains("asks for a password: set user and password_file"), "{told}");
}
