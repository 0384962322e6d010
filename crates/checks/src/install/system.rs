//! A fresh system that is booted, gets the package, and loses it again.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use rejoin_testkit::shipped::target;

use super::package;
use crate::frame::Found;

/// The findings that are asked for, and what each must be.
const EXPECTED: [(&str, &str); 35] = [
    // Without Rejoin a reload loses them: it is no accident that they resume with it.
    ("without-after-reload", "not"),
    ("installed", "0"),
    ("enabled", "0"),
    ("tls1_2-again", "resumed"),
    ("tls1_3-again", "resumed"),
    ("tls1_2-after-reload", "resumed"),
    ("tls1_3-after-reload", "resumed"),
    ("turns-resumed", "40"),
    // Each with TLS 1.2 and 1.3, Mosquitto over IPv4 and IPv6.
    ("haproxy", "0 2"),
    ("apache", "0 2"),
    ("mosquitto", "0 4"),
    ("status", "0"),
    // From inside and from outside.
    ("doctor", "0"),
    ("doctor-outside", "0"),
    ("stats", "0"),
    ("manual", "0"),
    ("clients", "0"),
    ("curl", "2 1"),
    ("manager", "0 active"),
    ("clients-disabled", "0"),
    ("linkable", "0"),
    // Mistakes and troubles.
    ("own", "0 644"),
    ("own-kept", "1"),
    ("own-stub", "0 0 1"),
    ("own-disabled", "0 0"),
    // A share has the cache still.
    ("own-shared", "1"),
    ("own-again", "0"),
    ("broken", "1 0"),
    ("mended", "0"),
    ("nobody", "2"),
    ("wrong", "2 1"),
    ("purged", "0"),
    ("share", "active rejoin"),
    ("left-running", "0"),
    ("servers-afterwards", "0"),
];

/// Boots the root of a release of Debian. `None`: it was not made, or namespaces are not permitted.
pub(super) fn installed(release: &str) -> Option<Found> {
    let root = target().join("roots").join(release);
    let deb = package("deb").filter(|_| root.exists())?;
    let folder = target().join("tmp/install").join(release);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).ok()?;
    fs::write(folder.join("script"), include_str!("script.sh")).ok()?;
    fs::write(folder.join("check.service"), include_str!("check.service")).ok()?;
    fs::copy(&deb, folder.join(deb.file_name()?)).ok()?;
    let mut boot = Command::new("timeout");
    boot.args(["900", "unshare", "--mount", "sh", "-c", include_str!("boot.sh")]);
    boot.env("ROOT", &root).env("FOLDER", &folder).stdin(Stdio::null());
    let console = boot.output().ok()?;
    fs::write(folder.join("console"), [console.stdout, console.stderr].concat()).ok()?;
    let told = fs::read_to_string(folder.join("told")).unwrap_or_default();
    Some(judged(&told, &folder.display().to_string()))
}

fn judged(told: &str, folder: &str) -> Found {
    let pairs = told.lines().filter_map(|line| line.split_once(' '));
    let found: BTreeMap<&str, &str> = pairs.collect();
    let is_other = |(name, value): &&(&str, &str)| found.get(name) != Some(value);
    let mut wrong: Vec<String> = EXPECTED
        .iter()
        .filter(is_other)
        .map(|(name, value)| {
            format!("{name}: {}, not {value}", found.get(name).unwrap_or(&"nothing"))
        })
        .collect();
    wrong.extend(told.lines().filter(|line| line.starts_with("left ")).map(str::to_owned));
    if !told.lines().any(|line| line == "done") {
        wrong.push("the script did not come to its end".to_owned());
    }
    let workers = found.get("workers").copied().unwrap_or("no");
    if !workers.parse::<u32>().is_ok_and(|workers| workers >= 2) {
        wrong.push(format!("{workers} workers answered"));
    }
    let holds = wrong.is_empty();
    let good =
        || format!("{} findings; {workers} workers resumed 40 of 40; nothing left", EXPECTED.len());
    let figure = if holds { good() } else { format!("{} ({folder})", wrong.join("; ")) };
    Found { figure, holds }
}
