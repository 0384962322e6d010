//! Publications besides the packages of systems: crates and jars, made as for a registry. Nothing is uploaded.
//! `python.rs` has the same for the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rejoin_testkit::jvm::{Believes, Jvm};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::serve::scratch;
use rejoin_testkit::stacks::{Stack, Tls};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CRATES: [&str; 7] = ["cache", "client", "openssl", "rustls", "store", "tickets", "trace"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

#[test]
fn everything_has_the_same_version() {
    let all = read("Cargo.toml");
    for name in CRATES {
        let line =
            format!("rejoin-{name} = {{ version = \"{VERSION}\", path = \"crates/{name}\" }}");
        assert!(all.contains(&line), "Cargo.toml: {line}");
    }
    assert!(read("bindings/python/src/rejoin/__init__.py").contains(&format!("\"{VERSION}\"")));
    assert!(read("bindings/java/pom.xml").contains(&format!("<version>{VERSION}</version>")));
    assert!(read("bindings/node/package.json").contains(&format!("\"version\": \"{VERSION}\"")));
    assert!(read("bindings/go/rejoin.go").contains(&format!("Version = \"{VERSION}\"")));
    assert!(read("bindings/caddy/go.mod").contains(&format!("rejoin-tls/rejoin-go v{VERSION}")));
    for module in ["pom.xml", "netty/pom.xml", "all.xml"] {
        let module = read(&format!("bindings/java/{module}"));
        assert!(module.contains(&format!("<version>{VERSION}</version>")));
    }
}

#[test]
fn these_crates_and_no_others_are_published() {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).expect("crates");
    let names =
        crates.map(|entry| entry.expect("a crate").file_name().into_string().expect("a name"));
    let is_published = |name: &String| {
        read(&format!("crates/{name}/Cargo.toml")).lines().any(|line| line == "publish = true")
    };
    let mut published: Vec<_> = names.filter(is_published).collect();
    published.sort();
    assert_eq!(published, CRATES);
}

#[test]
#[ignore = "slow: compiles seven packages; make test-all"]
fn a_crate_is_packaged_with_what_it_needs_and_no_more() {
    let target = scratch("published");
    // Cargo takes a package of the same version for the one that it unpacked and compiled before.
    let compiled = fs::read_dir(target.join("debug/.fingerprint")).into_iter().flatten().flatten();
    for package in
        compiled.filter(|entry| entry.file_name().to_string_lossy().starts_with("rejoin-"))
    {
        fs::remove_dir_all(package.path()).expect("our own folder");
    }
    forget_unpacked();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--locked", "--offline", "--allow-dirty", "--target-dir"]).arg(&target);
    cargo.args(CRATES.iter().flat_map(|name| ["--package".into(), format!("rejoin-{name}")]));
    let told = done(cargo.current_dir(ROOT));
    forget_unpacked();
    // Cargo says that tests stay here, because they need crates that are not published.
    let unexpected: Vec<_> = told
        .lines()
        .filter(|line| line.starts_with("warning"))
        .filter(|line| !line.starts_with("warning: ignoring "))
        .collect();
    assert!(unexpected.is_empty(), "{told}");
    for name in CRATES {
        let package = target.join(format!("package/rejoin-{name}-{VERSION}"));
        for file in ["src/lib.rs", "README.md"] {
            assert!(package.join(file).is_file(), "{name}: {file}");
        }
        for licence in LICENCES {
            assert_eq!(
                fs::read_to_string(package.join(licence)).ok(),
                Some(read(licence)),
                "{name}"
            );
        }
        for folder in ["tests", "benches"] {
            assert!(!package.join(folder).exists(), "{name}: {folder}");
        }
    }
}

/// Removes what Cargo unpacked of these packages, from folders of packages that are in no registry on the network: their
/// names have no host.
fn forget_unpacked() {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.expect("a home").join("registry/src");
    let all = fs::read_dir(sources).into_iter().flatten().flatten();
    for local in all.filter(|entry| entry.file_name().to_string_lossy().starts_with('-')) {
        for name in CRATES {
            // Most have nothing of it.
            let _ = fs::remove_dir_all(local.path().join(format!("rejoin-{name}-{VERSION}")));
        }
    }
}

#[test]
#[ignore = "slow: needs a JDK and Maven; make test-all"]
fn maven_makes_a_provider_that_shares_sessions() {
    let jar = jars();
    let managed = Managed::start("maven");
    let Some(jvm) = Jvm::new(&managed, "maven") else { return };
    let jvm = jvm.provided_by(&jar);
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    let url = format!("https://localhost:{}/", server.port);
    for session in [".", "r"] {
        let expected = (format!("200; session {session}; CN=localhost"), true);
        assert_eq!(jvm.fetch(true, Believes::TheAuthority, &url), expected);
    }
}

/// Makes the jars of `bindings/java`, and returns the provider's.
fn jars() -> PathBuf {
    let root = scratch("maven");
    fs::remove_dir_all(&root).expect("our own folder");
    let folder = root.join("bindings/java");
    fs::create_dir_all(&folder).expect("a folder");
    let copy = |names: &[&str], to: &Path| {
        let from = names.iter().map(|name| Path::new(ROOT).join(name));
        done(Command::new("cp").arg("--recursive").args(from).arg(to));
    };
    copy(&["bindings/java/pom.xml", "bindings/java/src"], &folder);
    copy(&LICENCES, &root);
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--no-transfer-progress", "-Prelease", "package"]);
    done(maven.current_dir(&folder));
    let jar = |kind: &str| folder.join(format!("target/rejoin-{VERSION}{kind}.jar"));
    for (kind, has) in [
        (
            "",
            &[
                "rejoin/Rejoin.class",
                "META-INF/LICENSE-MIT",
                "META-INF/services/java.security.Provider",
            ][..],
        ),
        ("-sources", &["rejoin/Rejoin.java"]),
        ("-javadoc", &["rejoin/Rejoin.html"]),
    ] {
        let list = done(Command::new("jar").arg("--list").arg("--file").arg(jar(kind)));
        for file in has {
            assert!(list.lines().any(|line| line == *file), "{kind}: {file} is not in {list}");
        }
    }
    jar("")
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// Returns what a program says.
///
/// # Panics
/// If it does not succeed.
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {told}");
    told
}
