//! Folders and files that cannot be used, or must not be.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rejoin_store::{Error, Store};
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Site, Versions};

use super::{NGINX, clients, counters, file_of_cache, lines_of_ours, start_s_server, write_at};
use crate::ways::python_server;

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

/// A cache of the workers' user would be refused by root at the next start.
#[test]
fn what_root_could_not_make_is_left_to_root() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: a server that gives up root (needs root)");
    }
    const FULL: [&str; 4] = ["sh", "-c", r#"ulimit -S -f 100 && exec "$@""#, "sh"];
    let mut site = Site::new("fault-root");
    let then = "import os, resource\n\
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n\
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n\
        os.setgid(65534)\nos.setuid(65534)\n";
    site.write("server.py", &python_server(then));
    let script = site.shown("server.py");
    let words = [&FULL[..], &["python3", &script]].concat();
    site.start(words[0], &words[1..]).expect("installed");
    for mut client in clients(&site) {
        client.connect();
        client.connect();
    }
    let none = Store::open(Path::new(Store::FOLDER), &site.cache(), None);
    assert!(matches!(none, Err(Error::NotFound { .. })), "{none:?}");
    let told = lines_of_ours(&site);
    assert!(told.len() == 2 && told.iter().all(|line| line.contains("no room for")), "{told:?}");
    assert!(told[1].contains("then reload the server"), "{told:?}");
}

/// The master has another try with the contexts of a reload.
#[test]
fn a_reload_makes_what_there_is_room_for_by_now() {
    let mut site = Site::new("fault-reload");
    let user = if rustix::process::geteuid().is_root() { "user nobody nogroup; " } else { "" };
    site.write("nginx.conf", &format!("{user}{}", NGINX.replace("@MORE@", "")));
    let configuration = site.shown("nginx.conf");
    let words = ["--fsize=51200:", "nginx", "-c"];
    let Some(()) = site.start("prlimit", &[&words[..], &[&configuration]].concat()) else { return };
    let path = file_of_cache(&site);
    site.client(Versions::Tls12).connect();
    assert!(!path.exists());
    let id = site.running.last().expect("it runs").id().to_string();
    // Longer than the pause between two attempts.
    thread::sleep(Duration::from_secs(2));
    for words in [&["prlimit", "--fsize=unlimited", "--pid"][..], &["kill", "-HUP"]] {
        let mut command = Command::new(words[0]);
        assert!(command.args(&words[1..]).arg(&id).status().expect("installed").success());
    }
    wait_until("a cache", || path.exists());
    assert_eq!(fs::metadata(&path).expect("there").uid(), rustix::process::geteuid().as_raw());
    wait_until("a worker that has it", || {
        let mut client = site.client(Versions::Tls12);
        client.connect();
        client.connect() && counters(&site).full_handshakes > 0
    });
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
