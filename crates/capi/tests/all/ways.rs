//! Both ways into unmodified servers of Debian's packages, as `rejoin run` prepares them.
//!
//! A server that is not installed is skipped with a message; `make test` installs them.

use rejoin_testkit::shipped::{library, rejoin, rejoin_beside_libraries};
use std::fs;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rejoin_cache::Settings;
use rejoin_store::Store;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::site::{Site, Versions};

/// Starts a program by `rejoin run`, twice. Returns true if its clients resume, also after the restart.
fn resumes(site: &mut Site, by: &str, program: &[&str]) -> bool {
    let rejoin = rejoin_beside_libraries().display().to_string();
    let cache = site.cache.clone();
    let ours = ["run", "--by", by, "--cache", &cache, "--capacity", "1MiB", "--stateful", "--"];
    let arguments = [&ours[..], program].concat();
    let folder = site.folder.display().to_string();
    site.environment = vec![("XDG_RUNTIME_DIR", folder), ("REJOIN_LOG", "errors".to_owned())];
    site.start(&rejoin, &arguments).expect("rejoin is built");
    let mut clients = [Versions::Tls12, Versions::Tls13].map(|versions| site.client(versions));
    let mut resumed = Vec::new();
    for client in &mut clients {
        assert!(!client.connect(), "{program:?}: resumed out of nothing");
        resumed.extend([client.connect(), client.connect()]);
    }
    site.stop();
    site.start(&rejoin, &arguments).expect("rejoin is built");
    resumed.extend(clients.iter_mut().map(|client| client.connect()));
    site.stop();
    resumed.iter().all(|resumed| *resumed)
}

/// Asserts that sessions of the cache are resumed in each way, and that nothing is reported.
fn each_way(site: &mut Site, program: &[&str]) {
    let installed = Command::new(program[0]).arg("-v").output().is_ok();
    if !installed {
        eprintln!("{} is not installed: nothing is tested with it", program[0]);
        return;
    }
    for by in ["module", "preload", "both"] {
        assert!(resumes(site, by, program), "{program:?}, by {by}: {}", told(site));
        let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("made");
        assert_eq!(store.cache().counters().hits, 6, "{program:?}, by {by}: {}", told(site));
        assert!(!told(site).contains("rejoin: "), "{program:?}, by {by}: {}", told(site));
        assert!(Store::remove(Path::new(Store::FOLDER), &site.cache()).expect("ours"));
    }
}

fn told(site: &Site) -> String {
    fs::read_to_string(site.file("stderr")).unwrap_or_default()
}

/// A configuration of nginx, which removes its workers' environment except for the variables that are named.
const NGINX: &str = "\
user root; daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log stderr;
env REJOIN_CACHE; env REJOIN_CAPACITY; env REJOIN_STATEFUL; env REJOIN_FOLDER; env REJOIN_LOG;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; return 200 \"$pid\\n\"; }
}
";

#[test]
fn nginx() {
    let mut site = Site::new("ways-nginx");
    site.write("nginx.conf", NGINX);
    let configuration = site.shown("nginx.conf");
    each_way(&mut site, &["nginx", "-c", &configuration]);
}

pub(crate) const HAPROXY: &str = "\
global
  nbthread 2
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem
  http-request return status 200 content-type text/plain string haproxy
";

#[test]
fn haproxy() {
    let mut site = Site::new("ways-haproxy");
    site.write("haproxy.cfg", HAPROXY);
    let configuration = site.shown("haproxy.cfg");
    each_way(&mut site, &["haproxy", "-db", "-f", &configuration]);
}

/// Returns a configuration of Apache with an MPM and further directives.
pub(crate) fn apache(mpm: &str, more: &str) -> String {
    format!("LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so\n{APACHE}{more}")
}

const APACHE: &str = "\
ServerRoot FOLDER
ServerName localhost
PidFile FOLDER/apache.pid
ErrorLog FOLDER/error.log
DocumentRoot FOLDER
Listen 127.0.0.1:@PORT@
Mutex file:FOLDER default
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
SSLCertificateFile FOLDER/cert.pem
SSLCertificateKeyFile FOLDER/key.pem
SSLSessionCache none
";

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache_event() {
    let mut site = Site::new("ways-apache");
    site.write("apache.conf", &apache("event", "StartServers 3\nSSLEngine on\n"));
    let configuration = site.shown("apache.conf");
    each_way(&mut site, &["apache2", "-D", "FOREGROUND", "-f", &configuration]);
}

#[test]
fn s_server() {
    let mut site = Site::new("ways-s_server");
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let files = ["-cert", &pair, "-key", &pair];
    each_way(&mut site, &[&["openssl", "s_server", "-accept", &port, "-www"][..], &files].concat());
}

/// Returns a server in Python, which loads libssl late, and for its own module alone. `more` may change its context,
/// and what it serves.
pub(crate) fn python_server(more: &str) -> String {
    format!("{PYTHON_CONTEXT}{more}{PYTHON_LISTENER}")
}

const PYTHON_CONTEXT: &str = "\
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
def serve(tls):
    tls.recv(4096)
    tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\npython\\n')
";

const PYTHON_LISTENER: &str = "\
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('127.0.0.1', @PORT@))
listener.listen(64)
while True:
    try:
        connection = listener.accept()[0]
        connection.settimeout(5)
        with context.wrap_socket(connection, server_side=True) as tls:
            serve(tls)
    except OSError:
        pass
";

#[test]
fn python() {
    let mut site = Site::new("ways-python");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    each_way(&mut site, &["python3", &script]);
}

/// The arguments of `setpriv` for another user than root, who may read the files of root's build.
pub(crate) const NOT_ROOT: [&str; 6] = [
    "--reuid=nobody",
    "--regid=nogroup",
    "--clear-groups",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
    "--",
];

#[test]
fn who_is_not_root_has_a_cache_from_the_first_client_on() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: programs of another user (needs root)");
        return;
    }
    let mut site = Site::new("ways-not-root");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    site.configure("stateful = yes");
    let run = [&NOT_ROOT[..], &["python3", &script]].concat();
    site.start("setpriv", &run).expect("installed");
    // A program that only connects, like those that a server starts.
    let address = site.address().to_string();
    let connect = ["openssl", "s_client", "-connect", &address];
    let status = site.command("setpriv").args(NOT_ROOT).args(connect).status();
    assert!(status.is_ok_and(|status| status.success()), "{}", told(&site));
    let stats = [&rejoin().display().to_string(), "stats", &site.cache, "--json"];
    let stats = site.command("setpriv").args(NOT_ROOT).args(stats).stdout(Stdio::piped()).output();
    let counted = String::from_utf8(stats.expect("it runs").stdout).expect("text");
    assert!(counted.contains("\"full_handshakes\":1,"), "{counted} {}", told(&site));
}

/// The agent of a cluster may be started after the server.
#[test]
fn who_is_not_root_and_finds_no_cache_looks_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: programs of another user (needs root)");
        return;
    }
    let mut site = Site::new("ways-later");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    let configured = fs::read_to_string(site.file("openssl.cnf")).expect("there");
    fs::write(site.file("openssl.cnf"), configured.replace("capacity = 1MiB\n", ""))
        .expect("a file");
    site.start("setpriv", &[&NOT_ROOT[..], &["python3", &script]].concat()).expect("installed");
    let connect = || assert!(!site.client(Versions::Tls13).connect());
    (0..3).for_each(|_| connect());
    let told_once = told(&site).matches("rejoin: ").count() == 1;
    assert!(told_once && told(&site).contains("trying again"), "{}", told(&site));
    let settings = Settings::new("1MiB".parse().expect("a capacity"));
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), Some(&settings));
    let store = store.expect("there was none");
    let nobody = fs::metadata(format!("/proc/{}", site.running[0].id())).expect("it runs");
    let file = Path::new(Store::FOLDER).join(site.cache().file_name());
    chown(file, Some(nobody.uid()), Some(nobody.gid())).expect("given to it");
    wait_until("the server to find the cache", || {
        connect();
        store.cache().counters().full_handshakes > 0
    });
}

#[test]
fn who_is_not_root_and_serves_nobody_makes_no_cache() {
    let mut site = Site::new("ways-only-connects");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    let environment = std::mem::take(&mut site.environment);
    site.start("python3", &[&script]).expect("installed");
    site.environment = environment;
    let address = site.address().to_string();
    let connect = ["openssl", "s_client", "-connect", &address];
    let mut command = site.command("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(NOT_ROOT);
    }
    assert!(command.args(connect).status().is_ok_and(|status| status.success()));
    let none = Store::open(Path::new(Store::FOLDER), &site.cache(), None);
    assert!(matches!(none, Err(rejoin_store::Error::NotFound { .. })), "{none:?}");
    assert!(!told(&site).contains("rejoin: "), "{}", told(&site));
}

#[test]
fn a_program_that_reads_no_configuration_is_entered_by_the_preload_library_alone() {
    let mut site = Site::new("ways-deaf");
    let program = compile(&site, "deaf.c", "deaf", &["-lssl", "-lcrypto"]);
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    let program = [&program[..], &port, &pair];
    assert!(!resumes(&mut site, "module", &program), "it reads one after all");
    for by in ["preload", "both"] {
        assert!(resumes(&mut site, by, &program), "by {by}: {}", told(&site));
    }
    assert_eq!(told(&site), "");
}

/// Compiles one of the test programs, or a library.
pub(crate) fn compile(site: &Site, source: &str, program: &str, more: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/programs").join(source);
    let built = site.shown(program);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o", &built])
        .arg(&source)
        .args(more);
    assert!(compiler.status().expect("a compiler").success(), "{}", source.display());
    built
}

/// Runs a program with the preload library. Returns whether it succeeded, and its standard error.
fn preloaded(site: &Site, program: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let preload = library("librejoin_preload.so");
    let _ = fs::remove_file(site.file("stderr"));
    let mut command = site.command(program);
    command.env_remove("OPENSSL_CONF").env("LD_PRELOAD", preload);
    let status = command.envs(variables.iter().copied()).status().expect("it runs");
    (status.success(), told(site))
}

/// glibc 2.36 initialises a library again that is opened while its destructors run.
#[test]
fn a_library_that_calls_libssl_first_as_the_program_ends_is_initialised_once() {
    let site = Site::new("ways-late");
    let folder = site.folder.display().to_string();
    let (place, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let shared = ["-DLIBRARY", "-shared", "-fPIC", "-lssl", "-lcrypto"];
    compile(&site, "late.c", "liblate.so", &shared);
    let needs = [&place, &path, "-Wl,--no-as-needed", "-llate"];
    let program = compile(&site, "late.c", "program", &needs);
    let manager = site.shown("no-manager");
    let told = preloaded(&site, &program, &[("REJOIN_MANAGER", &manager)]);
    assert_eq!(told, (true, "made\nleft\n".to_owned()));
}

#[test]
fn a_library_with_a_libssl_of_its_own_keeps_that() {
    let site = Site::new("ways-own");
    let folder = site.folder.display().to_string();
    let (place, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let shared = ["-shared", "-fPIC", &place, &path];
    compile(&site, "own_libssl.c", "libown.so", &[&shared[..], &["-DOWN"]].concat());
    compile(&site, "own_libssl.c", "libplugin.so", &[&shared[..], &["-DPLUGIN", "-lown"]].concat());
    let program = compile(&site, "own_libssl.c", "program", &[&path, "-lssl", "-lcrypto"]);
    let capacity = ("REJOIN_CAPACITY", "1MiB");
    let (went_well, told) = preloaded(&site, &program, &[("REJOIN_CACHE", &site.cache), capacity]);
    assert!(went_well, "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("a libssl other than"), "{told}");
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None);
    assert!(store.is_ok(), "the program's own libssl was not attached to");
}

/// Returns what a program says that is preloaded with these libraries.
fn interposed(site: &Site, program: &str, libraries: &[&str], is_debugging: bool) -> String {
    let _ = fs::remove_file(site.file("stderr"));
    let mut command = site.command(program);
    if is_debugging {
        command.env("REJOIN_DEBUG", "1");
    }
    command.env_remove("OPENSSL_CONF").env("LD_PRELOAD", libraries.join(":"));
    command.env("REJOIN_CACHE", &site.cache).env("REJOIN_CAPACITY", "1MiB");
    command.env("REJOIN_MANAGER", site.shown("no-manager"));
    let status = command.status().expect("it runs");
    assert!(status.success(), "{libraries:?}: {status}: {}", told(site));
    told(site)
}

/// A key logger, for instance.
#[test]
fn another_library_that_interposes_the_same_functions_is_called_in_either_order() {
    let site = Site::new("ways-others");
    let folder = site.folder.display().to_string();
    let (place, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let tls = ["-lssl", "-lcrypto", "-l:libgnutls.so.30"];
    let made = |built: &str, more: &[&str]| {
        compile(&site, "interposed.c", built, &[more, &[&place, &path], &tls].concat())
    };
    let shared = ["-shared", "-fPIC", "-Wl,--as-needed"];
    let other = |built: &str| made(built, &[&shared[..], &["-DOTHER"]].concat());
    let (one, two) = (other("libone.so"), other("libtwo.so"));
    made("libcalls.so", &[&shared[..], &["-DCALLS"]].concat());
    let programs = [made("itself", &[]), made("by-a-library", &["-DNEEDS", "-lcalls"])];
    let (rejoin, one, two) = (library("librejoin_preload.so"), one.as_str(), two.as_str());
    let rejoin = rejoin.to_str().expect("text");
    for program in &programs {
        for others in [&[one][..], &[one, two]] {
            let without = interposed(&site, program, others, false);
            assert_eq!(without.lines().count(), 3 * others.len(), "{program}: {without}");
            for at in 0..=others.len() {
                let all = [&others[..at], &[rejoin], &others[at..]].concat();
                assert_eq!(interposed(&site, program, &all, false), without, "{program}: {all:?}");
                let is_attached =
                    Store::remove(Path::new(Store::FOLDER), &site.cache()).expect("ours");
                assert!(is_attached, "{program}: {all:?}");
            }
        }
        let told = interposed(&site, program, &[rejoin, one], true);
        assert_eq!(told.matches("libone.so interposes the same functions").count(), 2, "{told}");
    }
}

#[test]
fn whatever_is_wrong_is_one_line_and_the_program_goes_on() {
    let site = Site::new("ways-wrong");
    let program = compile(&site, "makes_one.c", "makes_one", &["-lssl", "-lcrypto"]);
    let (text, both) = (site.shown("cert.pem"), site.shown("openssl.cnf"));
    for (variables, complaint) in [
        (&[("REJOIN_LIBRARY", "/nonexistent.so")][..], "cannot load librejoin.so"),
        (&[("REJOIN_LIBRARY", &text)], "cannot load librejoin.so"),
        (&[("REJOIN_LIBRARY", "libcrypto.so.3")], "of another version"),
        (&[("REJOIN_CAPACITY", "lots")], "capacity = lots"),
        (&[("REJOIN_CACHE", "a/b")], "no name of a cache"),
        (&[("OPENSSL_CONF", &both), ("REJOIN_CAPACITY", "lots")], "capacity = lots"),
    ] {
        let (went_well, told) = preloaded(&site, &program, variables);
        assert!(went_well && told.lines().count() == 1, "{variables:?}: {told}");
        assert!(told.starts_with("rejoin: ") && told.contains(complaint), "{variables:?}: {told}");
    }
    let (went_well, told) = preloaded(&site, "true", &[("REJOIN_LIBRARY", "/nonexistent.so")]);
    assert!(went_well && told.is_empty(), "a program without TLS: {told}");
}

#[test]
fn contexts_of_other_threads_are_left_alone() {
    let site = Site::new("ways-race");
    let race = compile(&site, "race.c", "race", &["-lssl", "-lcrypto", "-lpthread"]);
    let ended = site.command(&race).status().expect("it runs");
    assert!(ended.success(), "{ended}: {}", told(&site));
}

/// The C library fails such calls, or does not look there.
#[test]
fn addresses_where_nothing_is_are_left_to_the_c_library() {
    let site = Site::new("ways-nowhere");
    let program = compile(&site, "nowhere.c", "nowhere", &["-D_GNU_SOURCE"]);
    let said = |variables: &[(&str, &str)]| {
        let mut command = site.command(&program);
        command.env_remove("OPENSSL_CONF").envs(variables.iter().copied()).stdout(Stdio::piped());
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{variables:?}: {}", output.status);
        String::from_utf8(output.stdout).expect("text")
    };
    let (preload, manager) = (library("librejoin_preload.so"), site.shown("no-manager"));
    let preload = ("LD_PRELOAD", preload.to_str().expect("text"));
    let without = said(&[]);
    assert!(without.matches("Bad address").count() >= 6, "{without}");
    assert_eq!(said(&[preload]), without);
    assert_eq!(said(&[preload, ("REJOIN_MANAGER", &manager)]), without);
}

/// A pipe that nobody reads, and that has no room any more, or no reader.
fn pipe(has_reader: bool) -> (Option<PipeReader>, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    if !has_reader {
        return (None, writer);
    }
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(&[b'x'; 4_096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
    (Some(reader), writer)
}

/// A server whose log has gone, or stands still, serves as without Rejoin.
#[test]
fn a_line_that_nobody_reads_neither_ends_a_program_nor_holds_it_up() {
    let site = Site::new("ways-unread");
    let program = compile(&site, "makes_one.c", "makes_one", &["-lssl", "-lcrypto"]);
    let preload = library("librejoin_preload.so");
    for (has_reader, by) in
        [(false, "preload"), (true, "preload"), (false, "module"), (true, "module")]
    {
        let (reader, writer) = pipe(has_reader);
        let mut command = site.command(&program);
        command.env("REJOIN_CAPACITY", "lots").stderr(writer);
        if by == "preload" {
            command.env_remove("OPENSSL_CONF").env("LD_PRELOAD", &preload);
        }
        let mut process = Process::start(&mut command);
        // The command keeps the descriptor.
        drop(command);
        let status = process.wait_for(Duration::from_secs(20));
        assert!(status.success(), "by {by}, with a reader: {has_reader}: {status}");
        drop(reader);
    }
}
