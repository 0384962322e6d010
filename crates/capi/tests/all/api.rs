//! The C API as a C program sees it: the header, the library, and nothing else of Rejoin.

use rejoin_testkit::shipped::library;
use std::fs;
use std::path::Path;
use std::process::Command;

use rejoin_testkit::site::{Client, Site, Versions};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Generates the header from the library's source.
fn generated() -> String {
    let config = cbindgen::Config::from_file(Path::new(CRATE).join("cbindgen.toml"));
    let mut builder = cbindgen::Builder::new().with_config(config.expect("a configuration"));
    for file in ["", "/status", "/settings", "/counters", "/connect"] {
        builder = builder.with_src(Path::new(CRATE).join(format!("src/api{file}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    String::from_utf8(header).expect("text")
}

#[test]
fn the_header_is_what_the_source_makes() {
    let path = Path::new(CRATE).join("include/rejoin.h");
    let made = generated();
    if std::env::var_os("REJOIN_BLESS").is_some() {
        // Other tests read the header at the same time.
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rejoin.h");
        fs::write(&new, &made).and_then(|()| fs::rename(new, &path)).expect("a file");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{}: make it anew with REJOIN_BLESS=1", path.display());
}

/// Compiles a C program against the header and the library alone.
pub(crate) fn compile(source: &str, program: &Path) {
    let library = library("librejoin.so");
    let folder = library.parent().expect("a folder");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .args([program, &Path::new(CRATE).join(source)])
        .arg(format!("-I{CRATE}/include"))
        .arg(format!("-L{}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lrejoin", "-lssl", "-lcrypto", "-lpthread"])
        .status();
    assert!(compiled.expect("a compiler").success(), "{source}");
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let header = Path::new(CRATE).join("include/rejoin.h");
    let mut compiler = Command::new("g++");
    compiler.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++"]).arg(header);
    assert!(compiler.status().expect("a compiler").success());
}

#[test]
fn the_header_has_every_counter_and_its_name() {
    let header = generated();
    let counters = header.split("} rejoin_settings;").nth(1).expect("they follow");
    let mut rest = counters.split("} rejoin_counters;").next().expect("a structure");
    for (name, _) in rejoin_cache::Counters::default().named() {
        let field = format!("  uint64_t {name};\n");
        rest = rest.split_once(&field).unwrap_or_else(|| panic!("{name}: not in this order")).1;
    }
}

/// Runs checks in a process of their own.
fn check(checks: &[&str], variables: &[(&'static str, &str)]) -> String {
    let mut site = Site::new(&format!("api-{}", checks[0]));
    let program = site.file("checks");
    compile("tests/all/programs/checks.c", &program);
    site.environment = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    site.environment.push(("REJOIN_CACHE", site.cache.clone()));
    let (certificate, key) = (site.shown("cert.pem"), site.shown("key.pem"));
    let mut command = site.command(&program.display().to_string());
    command.args([&certificate, &key, &site.cache]).args(checks);
    let status = command.status().expect("it runs");
    let own = format!("{}-own", site.cache).parse().expect("a name");
    let _ = rejoin_store::Store::remove(Path::new(rejoin_store::Store::FOLDER), &own);
    let told = fs::read_to_string(site.file("stderr")).expect("text");
    assert!(status.success(), "{checks:?}: {told}");
    told
}

#[test]
fn wrong_arguments_are_told_apart() {
    check(&["arguments", "requests"], &[]);
}

#[test]
fn contexts_share_what_the_program_lets_them() {
    check(&["ticket-keys", "contexts", "stateless", "children"], &[]);
}

#[test]
fn early_data_is_accepted_once_if_that_is_asked_for() {
    check(&["early-data"], &[]);
}

#[test]
fn a_session_waits_for_its_hint() {
    check(&["hints"], &[]);
}

#[test]
fn a_context_is_attached_after_connections_were_made() {
    check(&["late"], &[]);
}

#[test]
fn threads_share_a_context_and_not_their_errors() {
    check(&["threads"], &[]);
}

#[test]
fn a_process_is_attached_once_whoever_asks() {
    check(&["process"], &[("REJOIN_CAPACITY", "1MiB"), ("REJOIN_STATEFUL", "yes")]);
}

#[test]
fn a_process_that_cannot_be_attached_is_told_once_and_goes_on() {
    let told = check(&["process-fails"], &[("REJOIN_CAPACITY", "lots")]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("rejoin: capacity = lots"), "{told}");
}

#[test]
fn a_client_whose_source_is_not_known_is_told_of_once() {
    let told = check(&["sourceless"], &[]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(": source_share does not bound clients without an address"), "{told}");
}

#[test]
fn the_example_serves_clients_that_come_back() {
    let mut site = Site::new("api-example");
    site.environment.clear();
    let program = site.file("server");
    compile("examples/server.c", &program);
    let output = fs::File::create(site.file("stdout")).expect("a file");
    let words = [site.port.to_string(), site.shown("cert.pem"), site.shown("key.pem")];
    let mut server = site
        .command(&program.display().to_string())
        .args(words)
        .args([&site.cache, "7"])
        .stdout(output)
        .spawn()
        .expect("it runs");
    // One connection only tests that the server listens.
    site.wait_until_it_listens(&mut server);
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client: Client = site.client(versions);
        let resumed = [(); 3].map(|()| client.connect());
        assert_eq!(resumed, [false, true, true], "{versions:?}");
    }
    assert!(server.wait().expect("our own child").success());
    let told = fs::read_to_string(site.file("stdout")).expect("text");
    assert!(told.contains(", hits 4, misses 0"), "{told}");
    // The connection that tested the listener made no handshake.
    let complaints = fs::read_to_string(site.file("stderr")).expect("text");
    assert_eq!(complaints, "");
}
