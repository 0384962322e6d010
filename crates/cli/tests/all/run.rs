//! The environment that `rejoin run` gives to a program.

use crate::REJOIN;
use rejoin_cache::{Capacity, Settings};
use rejoin_store::Store;
use rejoin_testkit::serve::scratch;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two files that could be the libraries, and nothing in the environment.
fn libraries(name: &str) -> (PathBuf, PathBuf) {
    let folder = scratch(name);
    let libraries = ["librejoin.so", "librejoin_preload.so"].map(|file| folder.join(file));
    for library in &libraries {
        std::fs::write(library, "no library").expect("a file");
    }
    libraries.into()
}

/// The variable as the program has it.
fn variable(library: &Path, more: &[&str], name: &str, before: Option<&str>) -> Output {
    let mut command = Command::new(REJOIN);
    command.arg("run").arg("--library").arg(library).args(more).args(["--", "printenv", name]);
    command.env("XDG_RUNTIME_DIR", library.parent().expect("a folder")).env_remove(name);
    command.envs(before.map(|before| (name, before))).output().expect("it runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn each_way_in_is_a_variable() {
    let (library, preload) = libraries("run-ways");
    let preload = preload.display().to_string();
    for (by, module, preloaded) in [
        (&[][..], true, true),
        (&["--by", "both"], true, true),
        (&["--by", "module"], true, false),
        (&["--by", "preload"], false, true),
    ] {
        let conf = printed(&variable(&library, by, "OPENSSL_CONF", None));
        assert_eq!(conf.contains("/openssl-"), module, "{by:?}: {conf}");
        let found = printed(&variable(&library, by, "LD_PRELOAD", None));
        assert_eq!(found, if preloaded { preload.as_str() } else { "" }, "{by:?}");
    }
}

#[test]
fn the_share_of_a_source_is_a_variable() {
    let (library, _) = libraries("run-share");
    let shares = ["--source-share", "10", "--source-by", "certificate"];
    for (name, options, expected) in [
        ("REJOIN_SOURCE_SHARE", &shares[..], "10%"),
        ("REJOIN_SOURCE_BY", &shares, "certificate"),
        ("REJOIN_SOURCE_SHARE", &[], ""),
    ] {
        assert_eq!(printed(&variable(&library, options, name, None)), expected, "{options:?}");
    }
}

/// An option overrides a variable, and a variable overrides what no option asks for.
#[test]
fn a_variable_of_the_users_stays_unless_an_option_is_given() {
    let (library, _) = libraries("run-variables");
    let folder = library.parent().expect("a folder").to_str().expect("UTF-8");
    for (name, option, given, expected, usual) in [
        ("REJOIN_CACHE", &["--cache", "web"][..], "mail", "web", "default"),
        ("REJOIN_CAPACITY", &["--capacity", "2MiB"], "8MiB", "2097152", "32MiB"),
        ("REJOIN_STATEFUL", &["--stateful"], "yes", "yes", ""),
        ("REJOIN_FOLDER", &["--folder", folder], "/nowhere", folder, ""),
    ] {
        let of = |options, before| {
            let name_of = ["--cache", "nobody-has-made-it"];
            let more = if name == "REJOIN_CAPACITY" { &name_of[..] } else { &[] };
            printed(&variable(&library, &[more, options].concat(), name, before))
        };
        assert_eq!(of(option, Some(given)), expected, "{name}: the option");
        assert_eq!(of(&[], Some(given)), given, "{name}: the variable");
        assert_eq!(of(&[], None), usual, "{name}: neither");
    }
}

/// A capacity would replace a cache of another size.
#[test]
fn a_cache_that_is_there_keeps_its_size() {
    let (library, _) = libraries("run-there");
    let folder = library.parent().expect("a folder");
    // An earlier run's may be of another version.
    let _ = std::fs::remove_file(folder.join("rejoin-web"));
    let settings = Settings::new(Capacity::Bytes(2 << 20));
    let store = Store::open(folder, &"web".parse().expect("a name"), Some(&settings));
    drop(store.expect("a cache"));
    let of_web = ["--folder", folder.to_str().expect("UTF-8"), "--cache", "web"];
    let capacity = |more: &[&str]| {
        let options = [&of_web[..], more].concat();
        printed(&variable(&library, &options, "REJOIN_CAPACITY", None))
    };
    assert_eq!(capacity(&[]), "");
    assert_eq!(capacity(&["--capacity", "4MiB"]), "4194304");
    assert_eq!(capacity(&["--source-share", "10"]), "32MiB", "the share is of a new cache");
    let other = ["--folder", of_web[1], "--cache", "mail"];
    assert_eq!(
        printed(&variable(&library, &other, "REJOIN_CAPACITY", None)),
        "32MiB",
        "it is not there"
    );
}

#[test]
fn what_was_to_be_loaded_before_still_is() {
    let (library, preload) = libraries("run-before");
    let found = printed(&variable(&library, &[], "LD_PRELOAD", Some("libc.so.6")));
    assert_eq!(found, format!("libc.so.6:{}", preload.display()));
}

#[test]
fn without_the_preload_library_the_module_is_enough_unless_it_is_asked_for() {
    let (library, preload) = libraries("run-without");
    std::fs::remove_file(preload).expect("it was there");
    let found = variable(&library, &[], "OPENSSL_CONF", None);
    assert!(printed(&found).contains("/openssl-") && found.stderr.is_empty(), "{found:?}");
    refused(&library, "librejoin_preload.so does not exist");
}

#[test]
fn a_path_that_the_dynamic_linker_would_split_is_refused() {
    let (library, _) = libraries("run a space");
    refused(&library, "LD_PRELOAD cannot name");
}

#[test]
fn a_misspelled_option_is_not_the_program() {
    let (library, _) = libraries("run-misspelled");
    let found = variable(&library, &["--source-shar", "10"], "LD_PRELOAD", None);
    let told = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(2), "{told}");
    assert!(told.contains("'--source-shar'") && told.contains("'--source-share'"), "{told}");
}

#[test]
fn options_behind_the_program_are_its_own() {
    let (library, _) = libraries("run-own-options");
    let run = [["run", "--library"], [library.to_str().expect("a path"), "sh"]].concat();
    let script = ["-c", r#"echo "$0 $*""#, "it", "--json", "--", "-x"];
    let found = Command::new(REJOIN).args(run).args(script).output().expect("it runs");
    assert_eq!(printed(&found), "it --json -- -x");
}
/// The program reads its file when it loads OpenSSL, by when other programs may have been started with other files.
#[test]
fn a_file_stays_as_it_is_when_another_program_is_started() {
    let (library, _) = libraries("run-policies");
    let conf = |before| PathBuf::from(printed(&variable(&library, &[], "OPENSSL_CONF", before)));
    let strict = library.with_file_name("strict.cnf");
    std::fs::write(&strict, "[a]\nMinProtocol = TLSv1.2\n").expect("a file");
    let strict = strict.to_str().expect("UTF-8");
    let first = conf(Some(strict));
    let text = std::fs::read_to_string(&first).expect("it is there");
    assert!(text.contains(&format!(".include {strict}\n")), "{text}");
    let second = conf(None);
    assert_ne!(first, second);
    assert_eq!(std::fs::read_to_string(&first).expect("it is there"), text);
    assert_eq!(conf(Some(strict)), first);
}

#[test]
fn a_program_that_is_started_by_another_one_includes_what_that_one_did() {
    let (library, _) = libraries("run-nested");
    let (other, _) = libraries("run-nested-other");
    let strict = library.with_file_name("strict #1.cnf");
    std::fs::write(&strict, "[a]\nMinProtocol = TLSv1.2\n").expect("a file");
    let before = strict.to_str().expect("UTF-8");
    let outer = printed(&variable(&library, &[], "OPENSSL_CONF", Some(before)));
    let inner = printed(&variable(&library, &[], "OPENSSL_CONF", Some(&outer)));
    assert_eq!(inner, outer, "the same library");
    let other = ["--library", other.to_str().expect("UTF-8")];
    let mut command = Command::new(REJOIN);
    command.arg("run").args(other).args(["--", "printenv", "OPENSSL_CONF"]);
    command.env("XDG_RUNTIME_DIR", library.parent().expect("a folder"));
    let inner = printed(&command.env("OPENSSL_CONF", &outer).output().expect("it runs"));
    let text = std::fs::read_to_string(&inner).expect("it is there");
    assert!(inner != outer && text.contains("run-nested-other"), "{text}");
    let includes: Vec<_> = text.lines().filter(|line| line.starts_with(".include")).collect();
    assert!(includes.len() == 1 && includes[0].contains("strict "), "{text}");
}

/// OpenSSL itself reads the file, and includes another and loads the library from the same odd folder.
#[test]
fn odd_characters_of_a_path_reach_openssl_as_they_are() {
    let (library, _) = libraries("run $odd #1 \"a\" 'b' `c` \\d;e");
    std::fs::remove_file(&library).expect("it was there");
    std::fs::copy(rejoin_testkit::shipped::library("librejoin.so"), &library).expect("a copy");
    let included = library.with_file_name("before.cnf");
    std::fs::write(
        &included,
        "openssl_conf = mine\n[mine]\noid_section = oids\n[oids]\nodd = 1.2.3.4\n",
    )
    .expect("a file");
    let before = included.to_str().expect("UTF-8");
    let found = variable(&library, &["--by", "module"], "OPENSSL_CONF", Some(before));
    let conf = printed(&found);
    let mut openssl = Command::new("openssl");
    // A setting that it does not know makes the library say that it was loaded.
    openssl.args(["asn1parse", "-genstr", "OID:odd"]).env("REJOIN_CAPASITY", "1MiB");
    let read = openssl.env("OPENSSL_CONF", &conf).output().expect("installed");
    let told = String::from_utf8_lossy(&read.stderr);
    assert!(
        read.status.success() && told.contains("did you mean REJOIN_CAPACITY"),
        "{conf}: {told}"
    );
    assert!(printed(&read).contains(":odd"), "{read:?}");
}

#[test]
fn a_path_that_no_configuration_can_hold_is_refused() {
    for name in ["run-line\nbreak", "run-bytes-\u{fffd}"] {
        let (mut library, _) = libraries(name);
        if name.contains('\u{fffd}') {
            use std::os::unix::ffi::OsStringExt;
            let mut bytes = library.into_os_string().into_vec();
            bytes.extend_from_slice(b"\xff.so");
            library = std::ffi::OsString::from_vec(bytes).into();
            std::fs::write(&library, "no library").expect("a file");
        }
        let found = variable(&library, &["--by", "module"], "OPENSSL_CONF", None);
        let told = String::from_utf8_lossy(&found.stderr);
        assert_eq!((found.status.code(), told.lines().count()), (Some(1), 1), "{told}");
        assert!(told.contains("openssl.cnf cannot name"), "{told}");
    }
}

fn refused(library: &Path, why: &str) {
    let found = variable(library, &["--by", "preload"], "LD_PRELOAD", None);
    let told = String::from_utf8_lossy(&found.stderr);
    assert_eq!((found.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.contains(why), "{told}");
}

/// What another user can replace would be loaded into the program whenever it starts itself anew.
#[test]
fn no_file_is_written_where_another_user_can_replace_it() {
    let (library, preload) = libraries("run-others");
    let folder = library.parent().expect("a folder");
    let others = folder.join("others");
    std::fs::create_dir_all(&others).expect("a folder");
    if chown(&others, Some(65_534), None).is_err() {
        return eprintln!("skipped: a folder of another user (needs root)");
    }
    let open = folder.join("open");
    std::fs::create_dir_all(open.join("inner")).expect("a folder");
    std::fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
    let swept = std::env::temp_dir();
    for unsafe_ in [others, open.join("inner"), folder.join("missing"), swept] {
        for (by, name) in [("both", "LD_PRELOAD"), ("module", "OPENSSL_CONF")] {
            let mut command = Command::new(REJOIN);
            command.args(["run", "--by", by, "--library"]).arg(&library);
            command.args(["--", "printenv", name]).env("XDG_RUNTIME_DIR", &unsafe_);
            // As a user without a folder in /run.
            command
                .env("HOME", &unsafe_)
                .env_remove("OPENSSL_CONF")
                .env_remove("LD_PRELOAD")
                .uid(1234);
            let Ok(output) = command.output() else {
                return eprintln!(
                    "skipped: the program is in a folder that other users may not enter"
                );
            };
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains("set XDG_RUNTIME_DIR"), "{told}");
            let expected = if by == "both" { preload.display().to_string() } else { String::new() };
            assert_eq!(printed(&output), expected, "{by}: {told}");
        }
    }
}
