//! Folders and files that cannot be used, or must not be.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use super::{clients, lines_of_ours, start_s_server, write_at};
use rejoin_testkit::site::Site;

/// Starts the server and serves both versions. Returns Rejoin's messages.
fn told(site: &mut Site, before: &[&str]) -> Vec<String> {
    fs::write(site.file("stderr"), "").expect("a file");
    start_s_server(site, before).expect("openssl is installed");
    for mut client in clients(site) {
        client.connect();
        client.connect();
    }
    site.stop();
    lines_of_ours(site)
}

#[test]
fn a_folder_that_is_full_or_read_only() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|of| of.success()) {
        return eprintln!("skipped: a full folder (needs unshare, and the right to mount)");
    }
    let mut site = Site::new("fault-full");
    for (options, complaint) in
        [("size=64k", "no room for"), ("ro,size=9m", "cannot make a file in")]
    {
        let script = format!(r#"mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@""#);
        let told = told(&mut site, &["unshare", "--mount", "--", "sh", "-c", &script, "sh"]);
        assert!(told.len() == 1 && told[0].contains(complaint), "{options}: {told:?}");
    }
}

/// Beyond the limit the kernel sends a signal that would end the server.
#[test]
fn a_limit_on_the_length_of_files() {
    let mut site = Site::new("fault-limit");
    const LIMITED: [&str; 4] = ["sh", "-c", r#"ulimit -f 100 && exec "$@""#, "sh"];
    let refused = told(&mut site, &LIMITED);
    assert!(refused.len() == 1 && refused[0].contains("no room for"), "{refused:?}");
    // Neither is the memory that forked processes share longer than that.
    assert_eq!(told(&mut site, &["env"]), [""; 0], "it is made");
    assert_eq!(told(&mut site, &LIMITED), [""; 0], "it is there");
}

/// The folder is the site's own, and has a cache that another server left.
#[test]
fn a_file_that_cannot_be_used() {
    let mut site = Site::new("fault-file");
    let folder = site.file("caches");
    fs::create_dir(&folder).expect("a folder");
    site.configure(&format!("folder = {}", folder.display()));
    let path = folder.join(site.cache().file_name());
    for (what, complaint) in SPOILED {
        let _ = fs::remove_file(&path);
        assert_eq!(told(&mut site, &["env"]), [""; 0], "it is made");
        if spoil(&path, what).is_err() {
            eprintln!("skipped: a file of another {what} (needs root)");
            continue;
        }
        let before = fs::read(&path).expect("there");
        for _ in 0..2 {
            let told = told(&mut site, &["env"]);
            assert!(told.len() == 1 && told[0].contains(complaint), "{complaint}: {told:?}");
        }
        assert!(fs::read(&path).expect("there") == before, "{complaint}: it was written to");
    }
}

/// Changes to a cache's file, and the messages about them.
const SPOILED: [(&str, &str); 7] = [
    ("first bytes", "is no cache"),
    ("length", "has 8192 bytes"),
    ("mode", "mode 660"),
    ("reading", "mode 644"),
    ("second name", "has another name"),
    ("owner", "user 1234"),
    ("link", "symbolic link"),
];

fn spoil(path: &Path, what: &str) -> io::Result<()> {
    match what {
        "first bytes" => write_at(path, &[99; 8], 0),
        "length" => fs::File::options().write(true).open(path)?.set_len(8192)?,
        "mode" => fs::set_permissions(path, Permissions::from_mode(0o660))?,
        "reading" => fs::set_permissions(path, Permissions::from_mode(0o644))?,
        "second name" => fs::hard_link(path, path.with_extension("second"))?,
        "owner" => chown(path, Some(1234), None)?,
        _ => {
            let elsewhere = path.with_extension("elsewhere");
            fs::rename(path, &elsewhere)?;
            symlink(elsewhere, path)?;
        }
    }
    Ok(())
}
