//! Ticket keys in files, for servers without Rejoin.
//!
//! ```text
//! nginx       FOLDER/NAME.key   one key; NAME is the start of its tickets
//!             FOLDER/keys.conf  `ssl_session_ticket_key` for each key, first the one that encrypts
//! HAProxy     FILE              three keys in base64, one per line; the second encrypts
//! Apache      FILE              the key that encrypts
//! Envoy       FILE              a resource of the secret discovery service, in JSON: all keys, first the one that encrypts
//! Kubernetes  FILE              a Secret in JSON: the same keys, ten at most
//! ```
//! HAProxy has room for three keys unless it was built otherwise, and accepts no fewer. Besides the one that encrypts,
//! these are the next one, if there is one, and the one that encrypted last.
//!
//! Each file is replaced atomically, and nginx's list only after all key files that it names. Key files that
//! are no longer named are removed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rejoin_store::{NewFile, OwnFolder};
use rejoin_tickets::{KeyRing, KeyState, NAME_BYTES};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::listing::{Listing, Secret};
use crate::{Context, Error, Format};

/// The files from which one server reads its ticket keys.
#[derive(Debug)]
pub struct KeyFiles {
    format: Format,
    into: PathBuf,
    context: Context,
    /// The marks of the keys that were written, in order.
    written: Vec<([u8; NAME_BYTES], KeyState)>,
    /// The lifetime of tickets that was written, where the form has it.
    lifetime_s: Option<u64>,
    turns: u64,
}

/// The file for nginx's configuration, in its folder.
const LIST: &str = "keys.conf";

impl KeyFiles {
    /// The files in a folder for nginx, or one file for other servers. Servers that must open each other's tickets need
    /// the same context. Servers with Rejoin cannot open them. In Envoy's file the secret has the context's name; so has
    /// Kubernetes' object.
    ///
    /// # Errors
    /// The server's configuration cannot express the path, or Kubernetes the context.
    pub fn new(format: Format, into: &Path, context: Context) -> Result<Self, Error> {
        let unwritable = |cause| Error::Unwritable { path: into.into(), cause };
        let absolute = std::path::absolute(into).map_err(unwritable)?;
        let is_plain = |text: &str| !text.contains(['"', '\\', '\n']);
        if !absolute.to_str().is_some_and(is_plain) {
            return Err(Error::BadPath { path: into.into() });
        }
        if format == Format::Kubernetes && !is_object_name(context.as_str()) {
            return Err(Error::BadObjectName { name: context.as_str().to_owned() });
        }
        let (written, lifetime_s) = (Vec::new(), None);
        Ok(Self { format, into: absolute, context, written, lifetime_s, turns: 0 })
    }

    /// Writes the keys for this time. Returns true if any file changed.
    ///
    /// # Errors
    /// [`Error::NoKey`]; a file cannot be written, or other users could replace it.
    pub fn write(&mut self, ring: &KeyRing, now_s: u64) -> Result<bool, Error> {
        let listing = Listing::of(ring, &self.context, self.format.form(), now_s);
        if listing.is_empty() {
            return Err(Error::NoKey);
        }
        let mark = self.mark(&listing);
        let lifetime_s = (self.format == Format::Json).then(|| listing.ticket_lifetime_s());
        if (&self.written, self.lifetime_s) == (&mark, lifetime_s) {
            return Ok(false);
        }
        let changed = match self.format {
            Format::Nginx => self.write_folder(&listing)?,
            Format::Haproxy => replace(&self.into, &haproxy_lines(&listing))?,
            Format::Apache | Format::Node => replace(&self.into, &joined(listing.bytes().take(1)))?,
            Format::Raw80 | Format::Raw48 => replace(&self.into, &joined(listing.bytes()))?,
            Format::Envoy => replace(&self.into, &self.envoy(&listing))?,
            Format::Kubernetes => replace(&self.into, &self.kubernetes(&listing))?,
            Format::Json => replace(&self.into, &listing.lasting())?,
        };
        (self.written, self.lifetime_s) = (mark, lifetime_s);
        self.turns += 1;
        Ok(changed)
    }

    /// Counts the sets of keys that [`Self::write`] wrote, or found in the files: another process may have written them first, and
    /// the server was perhaps not told.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Makes nginx's folder, unless it is there.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub fn make_folder(&self) -> Result<(), Error> {
        if self.format != Format::Nginx {
            return Ok(());
        }
        match DirBuilder::new().mode(0o700).create(&self.into) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                Err(Error::Unwritable { path: self.into.clone(), cause })
            }
            _ => Ok(()),
        }
    }

    /// Returns what tells the files' content from another. Keys for which the server has no room are not in it.
    fn mark(&self, listing: &Listing) -> Vec<([u8; NAME_BYTES], KeyState)> {
        let all = listing.mark();
        match self.format {
            Format::Haproxy => {
                let places = haproxy_places(listing).into_iter().flatten();
                places.map(|place| (all[place].0, KeyState::Encrypting)).collect()
            }
            format => all.into_iter().take(format.most_keys()).collect(),
        }
    }

    /// Returns true if a file that was written is not there any more.
    pub fn are_lost(&self) -> bool {
        let is_gone = |path: &Path| {
            let found = fs::symlink_metadata(path);
            let causes = [ErrorKind::NotFound, ErrorKind::NotADirectory];
            found.is_err_and(|cause| causes.contains(&cause.kind()))
        };
        let is_key_gone =
            |(name, _): &([u8; NAME_BYTES], _)| is_gone(&self.into.join(key_file(name)));
        !self.written.is_empty()
            && match self.format {
                Format::Nginx => {
                    is_gone(&self.into.join(LIST)) || self.written.iter().any(is_key_gone)
                }
                _ => is_gone(&self.into),
            }
    }

    /// Has the next [`Self::write`] look at all files again.
    pub fn forget(&mut self) {
        self.written.clear();
    }

    fn write_folder(&self, listing: &Listing) -> Result<bool, Error> {
        let unwritable = |cause| Error::Unwritable { path: self.into.clone(), cause };
        self.make_folder()?;
        let (mut changed, mut list) = (false, String::new());
        for ((key, _), bytes) in listing.iter().zip(listing.bytes()) {
            let path = self.into.join(key_file(key.name()));
            changed |= replace(&path, &bytes)?;
            list += &format!("ssl_session_ticket_key \"{}\";\n", path.display());
        }
        changed |= replace(&self.into.join(LIST), list.as_bytes())?;
        self.remove_others(listing).map_err(unwritable)?;
        Ok(changed)
    }

    /// Removes the files of expired and retired keys, and unfinished files.
    fn remove_others(&self, listing: &Listing) -> io::Result<()> {
        for entry in fs::read_dir(&self.into)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_named = listing.iter().any(|(key, _)| key_file(key.name()) == name);
            if !is_named && is_key_file(name) {
                fs::remove_file(self.into.join(name))?;
            }
        }
        Ok(())
    }

    /// Returns `Secret` of `envoy.extensions.transport_sockets.tls.v3`.
    fn envoy(&self, listing: &Listing) -> Zeroizing<Vec<u8>> {
        let mut text = self.text_with_room(listing);
        text.add("{\"resources\": [{\"@type\": \"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\",");
        text.add(format_args!(" \"name\": {},\n", quoted(self.context.as_str())));
        text.add("  \"session_ticket_keys\": {\"keys\": [");
        for (at, key) in listing.bytes().enumerate() {
            text.add(if at == 0 { "\n" } else { ",\n" });
            text.add("    {\"inline_bytes\": \"");
            text.add_base64(&key);
            text.add("\"}");
        }
        text.add("]}}]}\n");
        text.done()
    }

    /// Returns a Secret of type `Opaque`, with the names of data that Cilium reads.
    fn kubernetes(&self, listing: &Listing) -> Zeroizing<Vec<u8>> {
        let mut text = self.text_with_room(listing);
        text.add("{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"type\": \"Opaque\",");
        text.add(format_args!(" \"metadata\": {{\"name\": {}}},\n", quoted(self.context.as_str())));
        text.add("  \"data\": {");
        for (at, key) in listing.bytes().take(self.format.most_keys()).enumerate() {
            let (comma, end) = if at == 0 { ("", String::new()) } else { (",", format!(".{at}")) };
            text.add(format_args!("{comma}\n    \"tls.sessionticket.key{end}\": \""));
            text.add_base64(&key);
            text.add("\"");
        }
        text.add("}}\n");
        text.done()
    }

    fn text_with_room(&self, listing: &Listing) -> Secret {
        const FOR_EACH_BYTES: usize = 192;
        Secret::with_room(2_048 + listing.iter().count() * FOR_EACH_BYTES)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns true for a DNS subdomain (RFC 1123), as names of Secrets are.
fn is_object_name(name: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            let ends = label.bytes().next().zip(label.bytes().next_back());
            ends.is_some_and(|(first, last)| is_end(first) && is_end(last))
                && label.bytes().all(|byte| is_end(byte) || byte == b'-')
        })
}

/// Returns HAProxy's three keys: the one that encrypted last, the one that encrypts, and the next. If there is no next one
/// yet, the one that encrypted last is in its place, too: so HAProxy never lacks one of these while it is given others one
/// by one.
pub(crate) fn haproxy_keys(listing: &Listing) -> Vec<Zeroizing<Vec<u8>>> {
    let keys: Vec<_> = listing.bytes().collect();
    let places = haproxy_places(listing).into_iter().flatten();
    places.map(|place| keys[place].clone()).collect()
}

/// Returns the places of HAProxy's three keys in the list, if it has any.
fn haproxy_places(listing: &Listing) -> Option<[usize; 3]> {
    let states: Vec<_> = listing.iter().map(|(_, state)| state).collect();
    let encrypting = (!states.is_empty()).then_some(0)?;
    let last = states.iter().position(|state| *state == KeyState::Opening);
    let last = last.unwrap_or(encrypting);
    // Of several upcoming keys the last one in this order is the next.
    let next = states.iter().rposition(|state| *state == KeyState::Upcoming);
    Some([last, encrypting, next.unwrap_or(last)])
}

/// Encodes HAProxy's keys in base64, one per line.
fn haproxy_lines(listing: &Listing) -> Zeroizing<Vec<u8>> {
    let mut lines = Secret::with_room(512);
    for key in haproxy_keys(listing) {
        lines.add_base64(&key);
        lines.add('\n');
    }
    lines.done()
}

fn joined(keys: impl Iterator<Item = Zeroizing<Vec<u8>>>) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(KeyRing::MOST_KEYS * 80));
    keys.for_each(|key| bytes.extend_from_slice(&key));
    bytes
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
    let unwritable = |cause| Error::Unwritable { path: path.into(), cause };
    let name = path.file_name().ok_or_else(|| Error::NotRegular { path: path.into() })?;
    let folder = OwnFolder::of(path)?.ok_or_else(|| unwritable(Errno::NOENT.into()))?;
    if holds(path, &folder, bytes)? {
        return Ok(false);
    }
    let directory = folder.descriptor().try_clone_to_owned().map_err(unwritable)?;
    let new = NewFile::within(directory, name, 0o600).map_err(unwritable)?;
    let written = new.file().write_all(bytes).and_then(|()| new.file().sync_all());
    written.and_then(|()| new.finish()).map_err(unwritable)?;
    Ok(true)
}

/// Returns true if a file has this content, and only its owner, this user, can read it.
fn holds(path: &Path, folder: &OwnFolder, bytes: &[u8]) -> Result<bool, Error> {
    let refused = |cause: io::Error| Error::Unwritable { path: path.into(), cause };
    let not_regular = || Error::NotRegular { path: path.into() };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let name = path.file_name().ok_or_else(not_regular)?;
    let file = match openat(folder.descriptor().as_fd(), name, flags, Mode::empty()) {
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
