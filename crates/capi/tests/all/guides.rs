//! The guides for operators: every `sh` block of a page is pasted into one shell.
//!
//! The shell has namespaces of its own, where `/etc`, `/usr/local`, `/var` and the like are a copy, the network is a
//! loopback interface, and nothing outlives the shell. If such namespaces are not permitted, or a page's server is not
//! installed, the test is skipped with a message. No systemd runs there: `guides/systemctl` stands in for it.

use rejoin_testkit::shipped::{rejoin_beside_libraries, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The script that makes the namespaces' file systems, and then becomes a shell.
const WORLD: &str = r#"
mount -t tmpfs none /run
usr=/usr/local
[ -z "$PACKAGES" ] || usr=/usr
for folder in /etc /tmp $usr /var; do
    upper="/run/world$folder/upper" work="/run/world$folder/work" lower=$folder
    mkdir -p "$upper" "$work"
    [ ! -d "${PACKAGES:-/none}$folder" ] || lower="$PACKAGES$folder:$folder"
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$folder"
done
mkdir /run/lock
mount -t tmpfs none /dev/shm
ip link set lo up
[ ! -e /usr/lib/tmpfiles.d/haproxy.conf ] || systemd-tmpfiles --create haproxy.conf
install "$STAND_IN" /usr/local/bin/systemctl
[ -z "$PACKAGES" ] || . "$PREPARED"
cd "$BUILT"
exec 2>&1
exec sh -eux "$BLOCKS"
"#;

/// The `PATH` of root, wherever the tests run.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The script that succeeds if such file systems are permitted.
const PROBE: &str = "
mount -t tmpfs none /run
mkdir /run/upper /run/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
ip link set lo up
";

#[test]
fn nginx() {
    follow("nginx.md", "nginx");
}

#[test]
fn haproxy() {
    follow("haproxy.md", "haproxy");
}

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache() {
    follow("apache.md", "apachectl");
}

#[test]
#[ignore = "slow: needs target/servers; make test-all"]
fn databases_and_mail() {
    let (page, packages) = ("more-servers.md", target().join("servers/root"));
    if !packages.exists() {
        eprintln!("{page}: without make target/servers, or not on Debian 12: nothing is tested");
        return;
    }
    run_over(page, "openssl", &blocks_of(&read(page)).join("\n"), &packages);
}

#[test]
fn systemd() {
    follow("systemd.md", "openssl");
}

/// The units that packages install. systemd must find no error in them.
#[test]
fn units() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/system");
    let files: Vec<_> = fs::read_dir(&folder).expect("the units").flatten().collect();
    assert_eq!(files.len(), 5, "{files:?}");
    let mut script = "install rejoin /usr/local/bin/rejoin\n".to_owned();
    for file in &files {
        let unit = fs::read_to_string(file.path())
            .expect("a unit")
            .replace("/usr/bin/", "/usr/local/bin/");
        let name = file.file_name().into_string().expect("a name");
        script += &format!("cat > /etc/systemd/system/{name} <<'EOF'\n{unit}EOF\n");
    }
    for file in &files {
        let name = file.file_name().into_string().expect("a name").replace('@', "@web");
        script += &format!("systemd-analyze verify --man=no --recursive-errors=no {name}\n");
    }
    run("units", "systemctl", &script);
}

/// Runs the blocks of a page, if its server is installed.
fn follow(page: &str, server: &str) {
    run(page, server, &blocks_of(&read(page)).join("\n"));
}

fn read(page: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(page)).expect("a page")
}

fn run(page: &str, server: &str, script: &str) {
    run_over(page, server, script, Path::new(""));
}

/// Runs a script where these packages lie over this machine's, extracted and set up as their own scripts would.
fn run_over(page: &str, server: &str, script: &str, packages: &Path) {
    if let Some(why) = impossible(server) {
        eprintln!("{page}: {why}: nothing is tested");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide-{page}"));
    fs::create_dir_all(&scratch).expect("a folder");
    let blocks = scratch.join("blocks");
    fs::write(&blocks, script).expect("a file");
    let done = in_a_world_of_its_own(WORLD)
        .env("STAND_IN", here.join("tests/all/guides/systemctl"))
        .env("PREPARED", here.join("tests/all/guides/packages.sh"))
        .env("PACKAGES", packages)
        .env("BUILT", built())
        .env("BLOCKS", &blocks)
        .output();
    let done = done.expect("unshare is installed");
    assert!(done.status.success(), "{page}:\n{}", told(&done));
}

/// Returns the blocks for a shell, in order.
fn blocks_of(page: &str) -> Vec<&str> {
    let blocks: Vec<_> = page.split("\n```").skip(1).step_by(2).collect();
    let blocks: Vec<_> = blocks.iter().filter_map(|block| block.strip_prefix("sh\n")).collect();
    assert!(!blocks.is_empty(), "a page without blocks");
    blocks
}

fn impossible(server: &str) -> Option<String> {
    let can = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
    let is_there = |program: &&str| can(Command::new("which").arg(program).env("PATH", PATH));
    let needed = ["unshare", "ip", "pgrep", "systemd-analyze", "curl", server];
    if let Some(missing) = needed.iter().find(|program| !is_there(program)) {
        return Some(format!("{missing} is not installed"));
    }
    let is_permitted = can(&mut in_a_world_of_its_own(PROBE));
    (!is_permitted).then(|| "namespaces are not permitted".to_owned())
}

fn in_a_world_of_its_own(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-eu", "-c", script]);
    command.env("PATH", PATH).env_remove("OPENSSL_CONF").stdin(Stdio::null());
    command
}

/// Returns the folder of the programs that a page installs.
fn built() -> PathBuf {
    rejoin_beside_libraries().parent().expect("a folder").to_owned()
}

fn told(done: &Output) -> String {
    String::from_utf8_lossy(&[&done.stdout[..], &done.stderr].concat()).into_owned()
}
