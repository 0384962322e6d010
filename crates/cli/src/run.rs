//! `rejoin run`

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::hash::Hasher;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use rejoin_manager::protocol::Label;
use rejoin_store::{CacheName, Store};
use siphasher::sip::SipHasher13;

use crate::arguments::Misuse;
use crate::beside::Beside;
use crate::interpreter;
use crate::openssl_conf;
use crate::terminal;
use crate::units::Bytes;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program must use a shared libssl 3; docs/servers.md lists the servers that were tested. This
command replaces itself with the program. It sets OPENSSL_CONF to a file that includes the system's
and loads librejoin.so (--by module), and LD_PRELOAD to librejoin_preload.so in the same folder
(--by preload); whichever the program loads first attaches. The program's own TLS connections go
through the TLS manager, if one runs and the program cannot tell the difference. docs/clients.md
lists the clients that were tested; REJOIN_DEBUG=1 tells why a connection bypasses the manager.
Examples:
  rejoin run --cache web --capacity 64MiB -- nginx -g 'daemon off;'
  rejoin run --by preload -- ./server-that-ignores-OPENSSL_CONF
  rejoin run --stateful -- python3 server.py
  rejoin run --client -- curl https://example.com/")]
pub(crate) struct Arguments {
    /// The cache's name [default: $REJOIN_CACHE, else default]
    #[arg(long, value_name = "NAME")]
    cache: Option<CacheName>,
    /// Memory that the cache may take [default: $REJOIN_CAPACITY, else what the cache has, else 32MiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// The most that the clients of one network, certificate or name can take of the cache, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    source_share: Option<u32>,
    /// The data by which --source-share tells clients apart
    #[arg(long, value_name = "DATA", value_parser = ["address", "certificate", "name"], requires = "source_share")]
    source_by: Option<String>,
    /// Issue no stateless tickets, so that the sessions of TLS 1.3 clients are in the cache, too
    #[arg(long)]
    stateful: bool,
    /// Accept early data (0-RTT) of TLS 1.3 where the program does, but none twice
    #[arg(long, value_name = "WAY", value_parser = ["once", "once-here"])]
    admit_early_data: Option<String>,
    /// The program is only a client and gets no cache
    #[arg(long, conflicts_with_all = ["cache", "capacity", "source_share", "stateful", "admit_early_data", "folder", "by", "no_manager"])]
    client: bool,
    /// The socket of the TLS manager [default: $XDG_RUNTIME_DIR/rejoin.sock, else
    /// /run/rejoin/manager.sock]
    #[arg(long, value_name = "PATH")]
    manager: Option<PathBuf>,
    /// Let the program make its own TLS connections, without the manager
    #[arg(long, conflicts_with = "manager")]
    no_manager: bool,
    /// Share sessions only with programs of the same label
    #[arg(long, value_name = "TEXT")]
    label: Option<Label>,
    /// The folder of the caches [default: $REJOIN_FOLDER, else /dev/shm]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How the program loads the library
    #[arg(long, value_enum, value_name = "WAY", default_value = "both")]
    by: Way,
    /// librejoin.so [default: the one beside this program, else in the system's library folders]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// A value of `--by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// by OPENSSL_CONF
    Module,
    /// by LD_PRELOAD
    Preload,
    /// by whichever the program loads first
    Both,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let library = library(arguments.library.as_deref())?;
    let [program, rest @ ..] = arguments.program.as_slice() else {
        return Err(Misuse("no program is given".to_owned()).into());
    };
    let mut command = Command::new(program);
    command.args(rest);
    if interpreter::is_musl(program) {
        terminal::complain(&format!(
            "{}: it is linked with musl, and Rejoin's libraries need glibc; going on without Rejoin",
            program.to_string_lossy()
        ));
    } else if arguments.client {
        command.envs(ways_in(Way::Preload, &library)?);
    } else {
        command.envs(ways_in(arguments.by, &library)?).envs(settings(arguments));
    }
    match &arguments.manager {
        Some(socket) => command.env("REJOIN_MANAGER", std::path::absolute(socket)?),
        None => command.env("REJOIN_MANAGER", if arguments.no_manager { "no" } else { "yes" }),
    };
    if let Some(label) = &arguments.label {
        command.env("REJOIN_LABEL", label.as_str());
    }
    let failed = command.exec();
    Err(failed).with_context(|| format!("{}: cannot be run", program.to_string_lossy()))
}

/// Returns the variables of the settings that were asked for, and of those without which no cache is made. All others
/// stay as the user has them.
fn settings(arguments: &Arguments) -> Vec<(&'static str, OsString)> {
    let share = arguments.source_share.map(|percent| format!("{percent}%"));
    let capacity = arguments.capacity.map(|Bytes(bytes)| bytes.to_string());
    let cache = arguments.cache.as_ref().map(CacheName::to_string);
    let given = [
        ("REJOIN_CACHE", cache.map(OsString::from)),
        ("REJOIN_CAPACITY", capacity.map(OsString::from)),
        ("REJOIN_STATEFUL", arguments.stateful.then(|| "yes".into())),
        ("REJOIN_FOLDER", arguments.folder.as_ref().map(OsString::from)),
        ("REJOIN_SOURCE_SHARE", share.map(OsString::from)),
        ("REJOIN_SOURCE_BY", arguments.source_by.as_ref().map(OsString::from)),
        ("REJOIN_EARLY_DATA", arguments.admit_early_data.as_ref().map(OsString::from)),
    ];
    let value = |name| {
        let given = given.iter().find(|(of, _)| *of == name).and_then(|(_, value)| value.clone());
        given.or_else(|| std::env::var_os(name))
    };
    let cache = value("REJOIN_CACHE").unwrap_or_else(|| "default".into());
    let folder = value("REJOIN_FOLDER").map_or_else(|| PathBuf::from(Store::FOLDER), PathBuf::from);
    // The settings of a cache that is made. One that is there has its own, and keeps them if none are asked for.
    let are_asked_for =
        ["REJOIN_SOURCE_SHARE", "REJOIN_POLICY"].into_iter().any(|of| value(of).is_some());
    let needs_capacity =
        value("REJOIN_CAPACITY").is_none() && (are_asked_for || !is_there(&folder, &cache));
    let usual = [
        ("REJOIN_CACHE", Some(cache).filter(|_| value("REJOIN_CACHE").is_none())),
        ("REJOIN_CAPACITY", needs_capacity.then(|| CAPACITY.into())),
    ];
    let set = |(name, value): (&'static str, Option<OsString>)| Some((name, value?));
    given.into_iter().chain(usual).filter_map(set).collect()
}

/// The capacity of a cache that is made, if the user has not said it.
const CAPACITY: &str = "32MiB";

/// Returns true if this user can use the cache as it is.
fn is_there(folder: &Path, cache: &OsStr) -> bool {
    let name = cache.to_str().and_then(|cache| cache.parse().ok());
    name.is_some_and(|name| Store::open(folder, &name, None).is_ok())
}

/// Returns the value of `LD_PRELOAD` for a program that is only a client. `given` is the path of `librejoin.so`, if the
/// user named one.
#[cfg(feature = "lab")]
pub(crate) fn preload(given: Option<&Path>) -> anyhow::Result<OsString> {
    preloaded(&library(given)?)
}

/// Returns the environment variables that make the program load the library.
fn ways_in(by: Way, library: &Path) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let mut variables = Vec::new();
    let preload = preloaded(library);
    if by != Way::Preload {
        match configuration(library) {
            Ok(file) => variables.push(("OPENSSL_CONF", file.into())),
            Err(why) if by == Way::Both && preload.is_ok() => terminal::complain(&format!(
                "{}; the program gets the library by LD_PRELOAD alone",
                terminal::chain(&why)
            )),
            Err(why) => return Err(why),
        }
    }
    match preload {
        Ok(preload) if by != Way::Module => {
            // Both must load the same library, whatever the environment named before.
            variables.push(("REJOIN_LIBRARY", library.into()));
            variables.push(("LD_PRELOAD", preload));
        }
        Err(why) if by == Way::Preload => return Err(why),
        _ => {}
    }
    Ok(variables)
}

/// Returns the new value of `LD_PRELOAD`: its present value and our library.
fn preloaded(library: &Path) -> anyhow::Result<OsString> {
    let ours = library.with_file_name("librejoin_preload.so");
    let how = "cargo build --release -p rejoin-preload builds it";
    anyhow::ensure!(ours.is_file(), "{} does not exist: {how}", ours.display());
    let bytes = ours.as_os_str().as_bytes();
    // Both characters separate names and cannot be escaped (ld.so(8)).
    let named = !bytes.iter().any(|byte| b" :".contains(byte));
    anyhow::ensure!(
        named,
        "{}: LD_PRELOAD cannot name a path with a space or colon: move the library",
        ours.display()
    );
    let mut all = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(ours);
    Ok(all)
}

/// Returns the path of the library.
pub(crate) fn library(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    const NAME: &str = "librejoin.so";
    if let Some(given) = given {
        let found = fs::canonicalize(given);
        return found.with_context(|| format!("{}: cannot be read", given.display()));
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.parent().map(|folder| folder.join(NAME));
    let system = ["/usr/lib/rejoin", "/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu"];
    let system = system.into_iter().map(|folder| Path::new(folder).join(NAME));
    let found = beside.into_iter().chain(system).find(|path| path.is_file());
    found.with_context(|| {
        format!("{NAME} is not installed: install the package, or name it by --library (docs/install.md)")
    })
}

/// Writes the file for `OPENSSL_CONF` and returns its path. It includes the file that the variable named before; the
/// settings that differ by program are in variables. Its name is a hash of what it says, so that a program never finds
/// another's text in its own file.
fn configuration(library: &Path) -> anyhow::Result<PathBuf> {
    let folder = private_folder()?;
    let before = std::env::var_os("OPENSSL_CONF").map_or_else(openssl_conf::system, PathBuf::from);
    let before = std::path::absolute(&before).unwrap_or(before);
    // A program that this command started starts another one.
    let is_ours = before.parent() == Some(&folder);
    let theirs = is_ours.then(|| openssl_conf::included(&before)).flatten();
    let text = openssl_conf::loading(library, &theirs.unwrap_or(before), &[])?;
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    let file = folder.join(format!("openssl-{:016x}.cnf", hasher.finish()));
    Beside::create(&file)?.write(&text)?;
    Ok(file)
}

/// Returns a folder of this user's in which no other user can put a file, now or later: a program loads what is there whenever it
/// starts itself anew.
fn private_folder() -> anyhow::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Folders for temporary files are swept by age, and anybody may make them anew then.
    let usual = match user {
        0 => Some(PathBuf::from("/run")),
        _ => std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")),
    };
    let safe = named.into_iter().chain(usual).find_map(|folder| safe(&folder, user));
    let how = "set XDG_RUNTIME_DIR to a folder that belongs to this user and to which no other user can write";
    let missing = || format!("no folder is safe for OpenSSL's configuration: {how}");
    let folder = safe.with_context(missing)?.join(format!("rejoin-{user}"));
    let made = DirBuilder::new().mode(0o700).create(&folder);
    if let Err(error) = made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("{}: cannot be made: {how}", folder.display()));
    }
    let found = fs::symlink_metadata(&folder);
    let found = found.with_context(|| format!("{}: cannot be read", folder.display()))?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    anyhow::ensure!(is_ours, "{}: other users may write there: remove it", folder.display());
    Ok(folder)
}

/// Returns the folder's own path if no other user can put anything there or above. The sticky bit is not enough: such folders are those
/// that are swept.
fn safe(folder: &Path, user: u32) -> Option<PathBuf> {
    let folder = fs::canonicalize(folder).ok()?;
    let is_safe = folder.ancestors().all(|above| {
        fs::symlink_metadata(above)
            .is_ok_and(|found| [0, user].contains(&found.uid()) && found.mode() & 0o022 == 0)
    });
    is_safe.then_some(folder)
}
