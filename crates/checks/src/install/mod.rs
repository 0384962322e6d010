//! The promises of the packages in target/packages: `make check-install`.

mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rejoin_testkit::shipped::target;

use crate::frame::{self, Check, Found, Group};

pub(crate) const GROUP: Group = Group {
    name: "install",
    arguments: frame::ARGUMENTS,
    example: "debian-12",
    packages: &[],
    checks: CHECKS,
};

const CHECKS: &[Check] = &[
    (1, "debian-12", "two commands in a fresh system (all hold, nothing left)", |_| {
        system::installed("bookworm")
    }),
    (1, "debian-13", "two commands in a fresh system (all hold, nothing left)", |_| {
        system::installed("trixie")
    }),
    (1, "rpm", "what it contains and needs, by rpm itself (as the .deb)", |_| rpm()),
    (1, "glibc", "the newest version of the C library that is needed (≤ 2.34)", |_| glibc()),
    (2, "reproducible", "packages made twice, in two folders (same bytes)", |_| reproducible()),
    (2, "size", "bytes of librejoin.so (≤ 2 MB)", |_| size()),
    (3, "doctor", "names the cause at each prepared server, and no other (all pass)", |_| {
        let (figure, holds) = frame::test("rejoin-doctor", "")?;
        Some(Found { figure, holds })
    }),
    (8, "deploy", "files in deploy and .github, by their schemas (valid)", |_| deploy()),
];

const PROGRAMS: [&str; 4] =
    ["rejoin", "librejoin.so", "librejoin_gnutls.so", "librejoin_preload.so"];

/// Returns the package with this ending.
fn package(ending: &str) -> Option<PathBuf> {
    let mut files = fs::read_dir(target().join("packages")).ok()?.flatten().map(|file| file.path());
    files.find(|path| path.extension().is_some_and(|found| found == ending))
}

/// Returns what a command printed, if it succeeded.
fn told(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}

fn rpm() -> Option<Found> {
    let (rpm, deb) = (package("rpm")?, package("deb")?);
    let rpm = rpm.to_str()?;
    let needs = told("rpm", &["--query", "--requires", "--package", rpm])?;
    let format = "[%{FILEMODES:perms} %{FILENAMES}\n]";
    let listed = told("rpm", &["--query", "--queryformat", format, "--package", rpm])?;
    let archive = told("dpkg-deb", &["--contents", deb.to_str()?])?;
    // Both have the same files; folders of libraries and of completions have other names.
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut of_rpm: Vec<String> =
        listed.lines().filter(|line| !line.starts_with('d')).map(name).collect();
    let of_deb = archive.lines().filter(|line| !line.starts_with('d'));
    let paths = of_deb.filter_map(|line| line.split_whitespace().nth(5));
    let mut of_deb: Vec<String> = paths.map(name).collect();
    of_rpm.sort_unstable();
    of_deb.sort_unstable();
    let wanted = ["libssl.so.3()(64bit)", "glibc >= 2.34"];
    let is_needed = wanted.iter().all(|wanted| needs.lines().any(|need| need == *wanted));
    let figure = format!(
        "{} files, {} in the .deb; needs {}",
        of_rpm.len(),
        of_deb.len(),
        wanted.join(", ")
    );
    Some(Found { figure, holds: is_needed && of_rpm == of_deb && of_rpm.len() > 50 })
}

fn glibc() -> Option<Found> {
    let versions = PROGRAMS.iter().flat_map(|file| {
        let path = target().join("dist").join(file);
        let symbols =
            told("objdump", &["-T", path.to_str().unwrap_or_default()]).unwrap_or_default();
        let versions =
            symbols.split(['(', ')', ' ']).filter_map(|word| word.strip_prefix("GLIBC_"));
        let numbers = |version: &str| {
            version.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect()
        };
        versions.map(numbers).collect::<Vec<Vec<u32>>>()
    });
    let newest = versions.max()?;
    let shown: Vec<String> = newest.iter().map(u32::to_string).collect();
    Some(Found { figure: shown.join("."), holds: newest <= vec![2, 34] })
}

/// Builds again, in a clone of the last commit, and compares. The clone stays if there is a difference.
fn reproducible() -> Option<Found> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let clone = target().join("tmp/packages-again");
    let _ = fs::remove_dir_all(&clone);
    told("git", &["clone", "--quiet", here.to_str()?, clone.to_str()?])?;
    let folder = clone.to_str()?;
    // The tools are downloaded once.
    fs::create_dir_all(clone.join("target")).ok()?;
    told("cp", &["-a", target().join("tools").to_str()?, clone.join("target").to_str()?])?;
    told("make", &["--directory", folder, "package"])?;
    let sums = |of: &Path| fs::read_to_string(of.join("packages/SHA256SUMS")).ok();
    let (first, second) = (sums(&target())?, sums(&clone.join("target"))?);
    let same = first.lines().filter(|line| second.lines().any(|other| other == *line)).count();
    let all = first.lines().count();
    let holds = same == all && all >= 4;
    if holds {
        let _ = fs::remove_dir_all(&clone);
    }
    Some(Found { figure: format!("{same} of {all} files"), holds })
}

fn size() -> Option<Found> {
    let sizes =
        PROGRAMS.map(|file| fs::metadata(target().join("dist").join(file)).map(|file| file.len()));
    let sizes: Vec<u64> = sizes.into_iter().collect::<Result<_, _>>().ok()?;
    let shown: Vec<String> =
        PROGRAMS.iter().zip(&sizes).map(|(name, bytes)| format!("{name} {bytes}")).collect();
    Some(Found { figure: shown.join(", "), holds: sizes[1] <= 2_000_000 })
}

fn deploy() -> Option<Found> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = |of: &str| root.join(of).display().to_string();
    let tool = |name: &str| target().join("tools/bin").join(name).display().to_string();
    let (json, kubernetes) = (tool("check-jsonschema"), tool("kubernetes-validate"));
    if !Path::new(&json).exists() {
        return None;
    }
    let compose =
        ["--builtin-schema", "vendor.compose-spec", &path("deploy/container/compose.yaml")];
    let workflow =
        ["--builtin-schema", "vendor.github-workflows", &path(".github/workflows/ci.yml")];
    let manifests = ["--strict", &path("deploy/kubernetes/rejoin.yaml")];
    let files = [(&json, &compose[..]), (&json, &workflow), (&kubernetes, &manifests)];
    let valid = files.iter().filter(|(tool, words)| told(tool, words).is_some()).count();
    Some(Found { figure: format!("{valid} of {}", files.len()), holds: valid == files.len() })
}
