//! The ground that all cells share: the served files, and the places of the programs.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::faults::Fault;
use super::programs::Program;
use super::visits::digest;
use crate::clients::{SCRIPTS, python, quiet};
use crate::folder::Folder;
use crate::shipped::target;

/// The files, and the programs.
pub struct Ground {
    folder: Folder,
    pub(super) www: PathBuf,
    python: PathBuf,
    /// Packages that were extracted, and not installed.
    root: PathBuf,
    /// True if a program can be run without a network.
    pub(super) has_namespaces: bool,
    numbers: AtomicU32,
}

/// The loader of programs, by the processors' interfaces (ABI).
const LOADER: &str = if cfg!(target_arch = "aarch64") {
    "lib/ld-linux-aarch64.so.1"
} else {
    "lib64/ld-linux-x86-64.so.2"
};

/// The length of the page.
const BYTES: usize = 200_000;

/// Makes the package that pip downloads.
const WHEEL: &str = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('sample/data', bytes(range(256)) * 400)
    wheel.writestr('sample-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: sample\\nVersion: 1.0\\n')
    wheel.writestr('sample-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('sample-1.0.dist-info/RECORD', '')
";

/// Makes the repository that git clones.
const REPOSITORY: &str = "git init -q -b main work && head -c 50000 /dev/urandom >work/a && git -C work add a && \
    git -C work -c user.name=a -c user.email=a@b commit -q -m a && git clone -q --bare work sample.git";

impl Ground {
    pub fn new() -> Self {
        let folder = Folder::new();
        // apt's own user reads and writes here, too.
        fs::set_permissions(&*folder, fs::Permissions::from_mode(0o755)).expect("ours");
        let www = folder.join("www");
        for below in ["simple/sample", "apt", "git"] {
            fs::create_dir_all(www.join(below)).expect("a folder");
        }
        let page: String =
            (0..BYTES).map(|at| char::from(b'a' + (at * at / 7 % 26) as u8)).collect();
        fs::write(www.join("page"), page).expect("a file");
        const NAME: &str = "sample-1.0-py3-none-any.whl";
        fs::write(www.join("simple/sample/index.html"), format!("<a href={NAME:?}>{NAME}</a>"))
            .expect("a file");
        let run = |command: &mut Command| command.stdin(Stdio::null()).status();
        let _ = run(Command::new("/usr/bin/python3")
            .args(["-c", WHEEL])
            .arg(www.join("simple/sample").join(NAME)));
        let _ = run(Command::new("sh")
            .args(["-c", REPOSITORY])
            .current_dir(www.join("git"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null"));
        apt(&www.join("apt"));
        let none = run(Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()));
        let has_namespaces = none.is_ok_and(|status| status.success());
        let (python, _) = python();
        let root = target().join("programs/root");
        Self { folder, www, python, root, has_namespaces, numbers: AtomicU32::new(0) }
    }

    /// A number that was not given before.
    pub(super) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A new folder for one run of a program.
    pub(super) fn folder(&self, number: u32) -> PathBuf {
        let folder = self.folder.join(format!("run-{number}"));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A program's command, without Rejoin.
    pub(super) fn command(
        &self,
        program: &Program,
        (fault, port): (Fault, u16),
        authority: &str,
        folder: &Path,
    ) -> Command {
        let arch = format!("{}-linux-gnu", std::env::consts::ARCH);
        let root = self.root.display().to_string();
        let values = [
            ("@URL@", format!("https://localhost:{port}")),
            ("@PORT@", port.to_string()),
            ("@CA@", authority.to_owned()),
            ("@SCRIPTS@", SCRIPTS.to_owned()),
            ("@PYTHON@", self.python.display().to_string()),
            ("@FOLDER@", folder.display().to_string()),
            ("@ROOT@", root.clone()),
            ("@NEW@", target().join("programs-13/root").display().to_string()),
            ("@LOADER@", LOADER.to_owned()),
            ("@ARCH@", arch.clone()),
        ];
        let filled = |word: &str| {
            values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
        };
        let mut command = Command::new("timeout");
        // Some wait for the server's last word when they are told to end.
        command.args(["--kill-after=2", &fault.limit_s().to_string()]).args(fault.wrapped());
        command.args(program.words.iter().copied().map(filled));
        command.current_dir(folder).env("HOME", folder);
        quiet(&mut command);
        // Programs that are installed come first.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:{root}/usr/bin"));
        if self.root.exists() {
            let libraries = format!("{root}/usr/lib/{arch}");
            let below =
                ["", "/blas", "/lapack", "/pulseaudio"].map(|below| libraries.clone() + below);
            let all = [&below[..], &[format!("{root}/usr/lib")]].concat().join(":");
            command.env("LD_LIBRARY_PATH", all);
        }
        command.envs(program.environment.iter().map(|(name, value)| (*name, filled(value))));
        command
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

/// A repository that apt can read.
fn apt(folder: &Path) {
    let mut packages = String::new();
    for number in 0..400 {
        let _ = write!(
            packages,
            "Package: sample{number}\nVersion: 1\nArchitecture: all\nMaintainer: a\nFilename: ./a.deb\nSize: 1\n\
             SHA256: {}\n\n",
            digest(format!("{number}").as_bytes())
        );
    }
    let release = format!(
        "Suite: sample\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        digest(packages.as_bytes()),
        packages.len()
    );
    fs::write(folder.join("Packages"), packages).expect("a file");
    fs::write(folder.join("Release"), release).expect("a file");
}
