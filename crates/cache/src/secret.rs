//! Bytes that hold a session secret.

use std::fmt;

use zeroize::Zeroize;

/// Zeroises bytes, eight at a time where it can. The compiler may not leave it out.
pub(crate) fn wipe(bytes: &mut [u8]) {
    let (start, words, end) = bytemuck::pod_align_to_mut::<u8, u64>(bytes);
    start.zeroize();
    words.zeroize();
    end.zeroize();
}

/// A serialised session: zeroised when cleared, overwritten, grown or dropped; never printed.
#[derive(Default)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    /// Makes an empty buffer with room for `capacity` bytes, so that filling it leaves no stale copy.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Wipes the contents and keeps the room.
    pub fn clear(&mut self) {
        wipe(&mut self.0);
        self.0.clear();
    }

    /// Makes the contents `length` bytes long, for the caller to overwrite. Bytes beyond are wiped.
    #[inline]
    pub fn resize(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() == length {
            return &mut self.0;
        }
        self.change_length(length);
        &mut self.0
    }

    fn change_length(&mut self, length: usize) {
        if let Some(beyond) = self.0.get_mut(length..) {
            wipe(beyond);
        }
        self.reserve(length.saturating_sub(self.0.len()));
        self.0.resize(length, 0);
    }

    /// Appends bytes without leaving a copy in memory that was outgrown.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut roomier = Vec::with_capacity(needed.next_power_of_two());
            roomier.extend_from_slice(&self.0);
            wipe(&mut std::mem::replace(&mut self.0, roomier));
        }
    }
}

impl std::ops::Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}
