//! Ticket keys in files, for servers without Rejoin.
//!
//! ```text
//! nginx    FOLDER/NAME.key   one key; NAME is the start of its tickets
//!          FOLDER/keys.conf  `ssl_session_ticket_key` for each key, first the one that encrypts
//! HAProxy  FILE              three keys in base64, one per line; the second encrypts
//! ```
//! HAProxy has room for three keys unless it was built otherwise, and accepts no fewer. Besides the one that encrypts,
//! these are the next one, if there is one, and those that encrypted last.
//!
//! Each file is replaced atomically, and nginx's list only after all key files that it names. Key files that
//! are no longer named are removed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_store::NewFile;
use rejoin_tickets::{
    ContextKey, ContextKeys, KeyRing, KeyState, Label, NAME_BYTES, SERVER_KEY_BYTES,
    ServerKeyFormat,
};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::Error;
use crate::error::KeyFileFault;
use crate::wrapping_key::{file_name, folder};

/// The files from which one server reads its ticket keys.
#[derive(Debug)]
pub struct KeyFiles {
    format: ServerKeyFormat,
    into: PathBuf,
    label: Label,
    /// The names of the keys that were written, in order.
    written: Vec<[u8; NAME_BYTES]>,
}

impl KeyFiles {
    /// The files in a folder for nginx, or one file for HAProxy. Servers that must open each other's tickets need the
    /// same context. Servers with Rejoin cannot open them.
    ///
    /// # Errors
    /// The context is not valid, or nginx's configuration cannot express the path.
    pub fn new(format: ServerKeyFormat, into: &Path, context: &str) -> Result<Self, Error> {
        let unwritable = |cause| Error::Unwritable { path: into.into(), cause };
        let absolute = std::path::absolute(into).map_err(unwritable)?;
        let is_plain = |text: &str| !text.contains(['"', '\\', '\n']);
        if !absolute.to_str().is_some_and(is_plain) {
            let cause = io::Error::new(
                ErrorKind::InvalidInput,
                "give a path without quotes, backslashes or line feeds",
            );
            return Err(unwritable(cause));
        }
        // Labels of servers with Rejoin begin with a length, of 32 at most.
        Label::new(context.as_bytes())?;
        let label = Label::new(["exported\0", context].concat().as_bytes())?;
        Ok(Self { format, into: absolute, label, written: Vec::new() })
    }

    /// Writes the keys for this time. Returns true if any file changed.
    ///
    /// # Errors
    /// [`Error::NoKey`]; a file cannot be written, or other users could replace it.
    pub fn write(&mut self, ring: &KeyRing, now_s: u64) -> Result<bool, Error> {
        let keys = ring.for_context(&self.label);
        let keys = match self.format {
            ServerKeyFormat::Nginx => of_nginx(&keys, now_s),
            ServerKeyFormat::Haproxy => of_haproxy(&keys, now_s),
        };
        let names: Vec<_> = keys.iter().map(|key| *key.name()).collect();
        if names.is_empty() {
            return Err(Error::NoKey);
        }
        if self.written == names {
            return Ok(false);
        }
        let changed = match self.format {
            ServerKeyFormat::Nginx => self.write_folder(&keys)?,
            ServerKeyFormat::Haproxy => replace(&self.into, &lines(&keys))?,
        };
        self.written = names;
        Ok(changed)
    }

    fn write_folder(&self, keys: &[&ContextKey]) -> Result<bool, Error> {
        let unwritable = |cause| Error::Unwritable { path: self.into.clone(), cause };
        match DirBuilder::new().mode(0o700).create(&self.into) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                return Err(unwritable(cause));
            }
            _ => {}
        }
        let (mut changed, mut list) = (false, String::new());
        for key in keys {
            let path = self.into.join(key_file(key.name()));
            changed |= replace(&path, &*key.for_server(self.format))?;
            list += &format!("ssl_session_ticket_key \"{}\";\n", path.display());
        }
        changed |= replace(&self.into.join("keys.conf"), list.as_bytes())?;
        self.remove_others(keys).map_err(unwritable)?;
        Ok(changed)
    }

    /// Removes the files of expired and retired keys, and unfinished files.
    fn remove_others(&self, keys: &[&ContextKey]) -> io::Result<()> {
        for entry in fs::read_dir(&self.into)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_named = keys.iter().any(|key| key_file(key.name()) == name);
            if !is_named && is_key_file(name) {
                fs::remove_file(self.into.join(name))?;
            }
        }
        Ok(())
    }
}

/// Returns all keys that have not expired: first the one that encrypts, then upcoming ones, then the rest from the
/// newest to the oldest.
fn alive(keys: &ContextKeys, now_s: u64) -> Vec<(&ContextKey, KeyState)> {
    let is_alive = |(_, state): &(_, KeyState)| *state != KeyState::Expired;
    let mut alive: Vec<_> = keys.list(now_s).filter(is_alive).collect();
    alive.reverse();
    alive.sort_by_key(|(_, state)| match state {
        KeyState::Encrypting => 0,
        KeyState::Upcoming => 1,
        KeyState::Opening | KeyState::Expired => 2,
    });
    alive
}

fn of_nginx(keys: &ContextKeys, now_s: u64) -> Vec<&ContextKey> {
    alive(keys, now_s).into_iter().map(|(key, _)| key).collect()
}

fn of_haproxy(keys: &ContextKeys, now_s: u64) -> Vec<&ContextKey> {
    let alive = alive(keys, now_s);
    // Of several upcoming keys the last one in this order is the next.
    let next = alive.iter().rposition(|(_, state)| *state == KeyState::Upcoming).unwrap_or(1);
    let Some((encrypting, _)) = alive.first() else { return Vec::new() };
    let others = alive.iter().skip(next).map(|(key, _)| *key);
    let mut others = others.chain([*encrypting; 2]);
    let [next, last] = std::array::from_fn(|_| others.next().expect("two at least"));
    vec![last, *encrypting, next]
}

/// Encodes keys in base64, one per line.
fn lines(keys: &[&ContextKey]) -> Zeroizing<Vec<u8>> {
    const LINE_BYTES: usize = SERVER_KEY_BYTES.div_ceil(3) * 4 + 1;
    let mut lines = Zeroizing::new(vec![b'\n'; keys.len() * LINE_BYTES]);
    for (line, key) in lines.chunks_exact_mut(LINE_BYTES).zip(keys) {
        let key = key.for_server(ServerKeyFormat::Haproxy);
        STANDARD.encode_slice(key.as_slice(), line).expect("as long as a line");
    }
    lines
}

fn key_file(name: &[u8; NAME_BYTES]) -> String {
    let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}.key")
}

/// Returns true if a file of this name is a key file, complete or unfinished.
fn is_key_file(name: &str) -> bool {
    let unfinished = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
    let finished = unfinished.and_then(|name| name.rsplit_once('.')).map(|(name, _)| name);
    let digits = finished.unwrap_or(name).strip_suffix(".key");
    digits.is_some_and(|digits| {
        digits.len() == 2 * NAME_BYTES && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Replaces a file atomically. Returns false if it had this content already.
fn replace(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    let (folder, name) = (folder(path)?, file_name(path)?);
    if holds(path, bytes)? {
        return Ok(false);
    }
    let unwritable = |cause| Error::Unwritable { path: path.into(), cause };
    let new = NewFile::within(folder, name, 0o600).map_err(unwritable)?;
    let written = new.file().write_all(bytes).and_then(|()| new.file().sync_all());
    written.and_then(|()| new.finish()).map_err(unwritable)?;
    Ok(true)
}

/// Returns true if a file has this content, and only its owner, this user, can read it.
fn holds(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    let refused = |cause| Error::Unreadable { path: path.into(), cause };
    let not_regular = || Error::BadKeyFile { path: path.into(), fault: KeyFileFault::NotRegular };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(folder(path)?, file_name(path)?, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // A file of root's, from before the process gave up root, is replaced.
        Err(Errno::NOENT | Errno::ACCESS) => return Ok(false),
        Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular()),
        Err(cause) => return Err(refused(cause.into())),
    };
    let stat = fstat(&file).map_err(|cause| refused(cause.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_regular());
    }
    // One byte more shows that the file is longer. The buffer must not grow, because that would leave a copy.
    let mut there = Zeroizing::new(Vec::with_capacity(bytes.len() + 1));
    file.take(bytes.len() as u64 + 1).read_to_end(&mut there).map_err(refused)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
    Ok(*there == bytes && is_ours && mode == Mode::RUSR | Mode::WUSR)
}
