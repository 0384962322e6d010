//! `rejoin run`

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use rejoin_manager::protocol::Label;
use rejoin_store::{CacheName, Store};

use crate::arguments::{Bytes, Misuse};
use crate::beside::Beside;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program must use a shared libssl 3; docs/servers.md says which servers were tried. It takes the
place of this command, with OPENSSL_CONF set to a file that includes the system's and loads
librejoin.so (module), and with LD_PRELOAD naming librejoin_preload.so, which lies beside that
(preload): the first that the program lets in attaches. What the program connects to goes through
the TLS manager, if one runs and the program would see no difference; docs/clients.md says which
programs were tried, and REJOIN_DEBUG=1 why a connection did not.
Examples:
  rejoin run --cache web --capacity 64MiB -- nginx -g 'daemon off;'
  rejoin run --by preload -- ./server-that-ignores-OPENSSL_CONF
  rejoin run --stateful -- python3 server.py
  rejoin run --client -- curl https://example.com/")]
pub(crate) struct Arguments {
    /// The cache's name
    #[arg(long, value_name = "NAME", default_value = "default")]
    cache: CacheName,
    /// Its bytes
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    capacity: Bytes,
    /// Let no context issue stateless tickets, so that TLS 1.3 clients have sessions, too
    #[arg(long)]
    stateful: bool,
    /// The program only connects: it gets no cache
    #[arg(long, conflicts_with_all = ["cache", "capacity", "stateful", "folder", "by", "no_manager"])]
    client: bool,
    /// The manager's socket [default: $XDG_RUNTIME_DIR/rejoin.sock, else /run/rejoin/manager.sock]
    #[arg(long, value_name = "PATH")]
    manager: Option<PathBuf>,
    /// Let the program make its own connections
    #[arg(long, conflicts_with = "manager")]
    no_manager: bool,
    /// Sessions are shared with programs of the same label only
    #[arg(long, value_name = "TEXT")]
    label: Option<Label>,
    /// Where caches lie
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER)]
    folder: PathBuf,
    /// The way in
    #[arg(long, value_enum, value_name = "WAY", default_value = "both")]
    by: Way,
    /// librejoin.so [default: beside this program, or where the system has its libraries]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

/// How a program is made to load us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// By OPENSSL_CONF
    Module,
    /// By LD_PRELOAD
    Preload,
    /// By whichever the program lets in first
    Both,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let library = library(arguments.library.as_deref())?;
    let [program, rest @ ..] = arguments.program.as_slice() else {
        return Err(Misuse("no program is given".to_owned()).into());
    };
    let mut command = Command::new(program);
    command.args(rest);
    if arguments.client {
        command.envs(ways_in(Way::Preload, &library)?);
    } else {
        command
            .envs(ways_in(arguments.by, &library)?)
            .env("REJOIN_CACHE", arguments.cache.to_string())
            .env("REJOIN_CAPACITY", arguments.capacity.0.to_string())
            .env("REJOIN_STATEFUL", if arguments.stateful { "yes" } else { "no" })
            .env("REJOIN_FOLDER", &arguments.folder);
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

/// The variables by which the program loads the library.
fn ways_in(by: Way, library: &Path) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let mut variables = Vec::new();
    if by != Way::Preload {
        variables.push(("OPENSSL_CONF", configuration(library)?.into()));
    }
    match preloaded(library) {
        Ok(preload) if by != Way::Module => {
            // Both are to load one library, whatever the environment said of another.
            variables.push(("REJOIN_LIBRARY", library.into()));
            variables.push(("LD_PRELOAD", preload));
        }
        Err(why) if by == Way::Preload => return Err(why),
        _ => {}
    }
    Ok(variables)
}

/// What the dynamic linker is to load first: what it was told to before, and ours.
fn preloaded(library: &Path) -> anyhow::Result<OsString> {
    let ours = library.with_file_name("librejoin_preload.so");
    let how = "cargo build --release -p rejoin-preload makes it";
    anyhow::ensure!(ours.is_file(), "{} is not there: {how}", ours.display());
    let bytes = ours.as_os_str().as_bytes();
    // ld.so(8): both separate names, and nothing makes them part of one.
    let named = !bytes.iter().any(|byte| b" :".contains(byte));
    anyhow::ensure!(named, "{}: no path that LD_PRELOAD can name: move it", ours.display());
    let mut all = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(ours);
    Ok(all)
}

/// Where the library is.
fn library(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    const NAME: &str = "librejoin.so";
    if let Some(given) = given {
        let found = fs::canonicalize(given);
        return found.with_context(|| format!("{}: cannot be read", given.display()));
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.parent().map(|folder| folder.join(NAME));
    let system = ["/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu"];
    let system = system.into_iter().map(|folder| Path::new(folder).join(NAME));
    let found = beside.into_iter().chain(system).find(|path| path.is_file());
    found.with_context(|| {
        format!("{NAME} is not here: cargo build --release -p rejoin-capi makes it")
    })
}

/// The file for `OPENSSL_CONF`, which says the same for every program: what differs is in variables.
/// What the variable named before is included.
fn configuration(library: &Path) -> anyhow::Result<PathBuf> {
    const SYSTEM: &str = "/etc/ssl/openssl.cnf";
    let before = std::env::var_os("OPENSSL_CONF").unwrap_or_else(|| SYSTEM.into());
    let before = PathBuf::from(before);
    let theirs = fs::read_to_string(&before).unwrap_or_default();
    let include =
        if before.exists() { before.display().to_string() } else { "/dev/null".to_owned() };
    let section = modules_section(&theirs).unwrap_or("openssl_init");
    let text = format!(
        "openssl_conf = {section}\n.include {include}\n[{section}]\nrejoin = rejoin\n[rejoin]\n\
         path = {}\n",
        library.display()
    );
    let file = private_folder()?.join("openssl.cnf");
    Beside::create(&file)?.write(&text)?;
    Ok(file)
}

/// The section that names the modules, in the part before the first section.
fn modules_section(configuration: &str) -> Option<&str> {
    let lines = configuration.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once('=')).find_map(|(name, value)| {
        (name.trim() == "openssl_conf").then(|| value.split('#').next().unwrap_or_default().trim())
    })
}

/// A folder that nobody else can write to: what is in it becomes part of the program.
fn private_folder() -> anyhow::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("rejoin-{user}"));
    let made = DirBuilder::new().mode(0o700).create(&folder);
    if let Err(error) = made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("{}: cannot be made", folder.display()));
    }
    let found = fs::symlink_metadata(&folder);
    let found = found.with_context(|| format!("{}: cannot be read", folder.display()))?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    anyhow::ensure!(is_ours, "{}: others may write there: remove it", folder.display());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::modules_section;

    #[test]
    fn the_modules_section_is_found() {
        let text =
            "# x\nHOME = .\n openssl_conf = default_conf # why\n[other]\nopenssl_conf = no\n";
        assert_eq!(modules_section(text), Some("default_conf"));
        assert_eq!(modules_section("[a]\nopenssl_conf = no\n"), None);
    }
}
