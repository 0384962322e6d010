//! The cluster's secret key, which encrypts all data that leaves a machine for Valkey. It is in a file on every
//! machine, and never in Valkey.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use zeroize::{Zeroize, Zeroizing};

use crate::Error;
use crate::error::KeyFileFault;

const KEY_BYTES: usize = 32;
/// The length of the key file: hexadecimal digits and a line feed.
const FILE_BYTES: usize = 2 * KEY_BYTES + 1;

/// The cluster's key: 32 random bytes. It encrypts nothing itself; other keys are derived from it.
pub struct WrappingKey(Box<[u8; KEY_BYTES]>);

/// AES-256-GCM under one derived key, with random nonces: safe for 2³² values (NIST SP 800-38D,
/// section 8.3).
pub(crate) struct Wrapping(LessSafeKey);

impl WrappingKey {
    /// Writes a new key to a new file that only its owner can read: 64
    /// hexadecimal digits and a line feed. Copy it to every machine of the cluster.
    ///
    /// # Errors
    /// The file exists or cannot be written, other users may write to its folder, or there are no random numbers.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut key = Self(Box::new([0; KEY_BYTES]));
        fill_at_random(&mut *key.0)?;
        let mut text = Zeroizing::new([0; FILE_BYTES]);
        for (digits, byte) in text.chunks_exact_mut(2).zip(key.0.iter()) {
            digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        text[FILE_BYTES - 1] = b'\n';
        let refused = |cause| Error::Unwritable { path: path.into(), cause };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = openat(folder(path)?, file_name(path)?, flags, mode);
        let mut file = File::from(made.map_err(|cause| refused(cause.into()))?);
        file.write_all(&*text).and_then(|()| file.sync_all()).map_err(refused)?;
        Ok(key)
    }

    /// Reads the key from a file.
    ///
    /// # Errors
    /// The file cannot be read; other users may read or write it, or write to its folder;
    /// its owner is neither root nor this user; or it does not contain a key.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |fault| Error::BadKeyFile { path: path.into(), fault };
        let refused = |cause| Error::Unreadable { path: path.into(), cause };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(folder(path)?, file_name(path)?, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(bad(KeyFileFault::NotRegular)),
            Err(cause) => return Err(refused(cause.into())),
        };
        let stat = fstat(&file).map_err(|cause| refused(cause.into()))?;
        fault(&stat).map_or(Ok(()), |fault| Err(bad(fault)))?;
        // One byte more shows that the file is too long. The buffer must not grow, because that would leave a copy.
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES + 1));
        file.take(FILE_BYTES as u64 + 1).read_to_end(&mut text).map_err(refused)?;
        Self::parse(&text).ok_or_else(|| bad(KeyFileFault::NoKey))
    }

    /// Derives the key of one purpose: HKDF-SHA-256 (RFC 5869) without salt.
    pub fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&*self.0);
        let info = [purpose];
        let filled =
            key.expand(&info, hkdf::HKDF_SHA256).and_then(|bytes| bytes.fill(&mut *derived));
        assert!(filled.is_ok(), "as long as the hash");
        derived
    }

    /// Returns the encryption for values of one purpose.
    pub(crate) fn wrapping(&self, purpose: &[u8]) -> Wrapping {
        let unbound = UnboundKey::new(&AES_256_GCM, &*self.derive(purpose));
        Wrapping(LessSafeKey::new(unbound.expect("AES-256 keys have 32 bytes")))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_suffix(b"\n").unwrap_or(text);
        let mut key = Self(Box::new([0; KEY_BYTES]));
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        (*key.0 != [0; KEY_BYTES]).then_some(key)
    }
}

impl Wrapping {
    /// The length of the nonce at the start of a wrapped value, which distinguishes it from every other.
    pub(crate) const NONCE_BYTES: usize = NONCE_LEN;

    /// Encrypts a value. The context is authenticated with it, but not contained in it.
    pub(crate) fn wrap(&self, context: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; Self::NONCE_BYTES];
        fill_at_random(&mut nonce)?;
        let mut wrapped = [&nonce, value].concat();
        let (aad, nonce) = (Aad::from(context), Nonce::assume_unique_for_key(nonce));
        let sealed = &mut wrapped[Self::NONCE_BYTES..];
        match self.0.seal_in_place_separate_tag(nonce, aad, sealed) {
            Ok(tag) => wrapped.extend_from_slice(tag.as_ref()),
            Err(_) => {
                wrapped.zeroize();
                unreachable!("a page is not too long for AES-GCM");
            }
        }
        Ok(wrapped)
    }

    /// Decrypts a value. `None`: it was not wrapped under this key with this context.
    pub(crate) fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = wrapped.split_first_chunk()?;
        let mut value = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(context), &mut value).ok()?.len();
        value.truncate(length);
        Some(value)
    }
}

/// Opens the folder of a key file, which only its owner may write to.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let unreadable = |cause: Errno| Error::Unreadable { path: folder.into(), cause: cause.into() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(folder, flags, Mode::empty()).map_err(unreadable)?;
    let mode = Mode::from_raw_mode(fstat(&directory).map_err(unreadable)?.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        let fault = KeyFileFault::Folder { mode: mode.bits() & 0o777 };
        return Err(Error::BadKeyFile { path: path.into(), fault });
    }
    Ok(directory)
}

pub(crate) fn file_name(path: &Path) -> Result<&std::ffi::OsStr, Error> {
    let bad = || Error::BadKeyFile { path: path.into(), fault: KeyFileFault::NotRegular };
    path.file_name().ok_or_else(bad)
}

pub(crate) fn fault(file: &Stat) -> Option<KeyFileFault> {
    let mode = Mode::from_raw_mode(file.st_mode);
    let owners = [0, rustix::process::geteuid().as_raw()];
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        Some(KeyFileFault::NotRegular)
    } else if !owners.contains(&file.st_uid) {
        Some(KeyFileFault::Owner { uid: file.st_uid })
    } else if mode.intersects(Mode::RWXG | Mode::RWXO) {
        Some(KeyFileFault::Mode { mode: mode.bits() & 0o777 })
    } else {
        None
    }
}

fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

pub(crate) fn fill_at_random(bytes: &mut [u8]) -> Result<(), Error> {
    // Requests this short are never truncated (getrandom(2)).
    let filled = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
    filled.map(|_| ()).map_err(|cause| Error::NoRandomNumbers { cause: cause.into() })
}

impl Drop for WrappingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(…)")
    }
}
