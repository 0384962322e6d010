//! A library's interposed functions, and the number that tells two tables apart.

use core::ffi::CStr;

/// The interposed functions of one library.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// The shared object's name.
    pub file: &'static CStr,
    /// The functions in the order of their slots.
    pub functions: &'static [Function],
}

/// An interposed function.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// The exported name.
    pub name: &'static str,
    /// The type, as the table writes it.
    pub signature: &'static str,
}

/// An FNV-1a hash of texts (draft-eastlake-fnv), computed by the compiler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and its end.
    pub(crate) const fn text(self, bytes: &[u8]) -> Self {
        let (mut hash, mut at) = (self.0, 0);
        while at <= bytes.len() {
            let byte = if at < bytes.len() { bytes[at] } else { 0xff };
            hash = (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        Self(hash)
    }

    pub(crate) const fn table(mut self, table: &[Library]) -> Self {
        let mut library = 0;
        while library < table.len() {
            let Library { file, functions } = table[library];
            self = self.text(file.to_bytes());
            let mut at = 0;
            while at < functions.len() {
                let Function { name, signature } = functions[at];
                self = self.text(name.as_bytes()).text(signature.as_bytes());
                at += 1;
            }
            library += 1;
        }
        self
    }

    pub(crate) const fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Function = Function { name: "read", signature: "fn(*mut u8) -> i32" };
    const WRITE: Function = Function { name: "write", signature: "fn(*const u8) -> i32" };

    fn digest(file: &'static CStr, functions: &'static [Function]) -> u64 {
        Digest::new().table(&[Library { file, functions }]).finish()
    }

    #[test]
    fn tables_that_differ_have_different_digests() {
        const OTHER_TYPE: Function = Function { name: "write", signature: "fn(*const u8) -> i64" };
        let digests = [
            digest(c"a.so", &[READ, WRITE]),
            digest(c"a.so", &[WRITE, READ]),
            digest(c"a.so", &[READ, OTHER_TYPE]),
            digest(c"a.so", &[READ]),
            digest(c"b.so", &[READ, WRITE]),
        ];
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[at + 1..].contains(one), "{digests:x?}");
        }
        assert_eq!(digests[0], digest(c"a.so", &[READ, WRITE]));
    }

    /// The digest's own test vectors are of texts without our end mark: `a` and `foobar`, each followed by 0xff.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(Digest::new().finish(), 0xcbf2_9ce4_8422_2325);
        let a = (0xaf63_dc4c_8601_ec8c_u64 ^ 0xff).wrapping_mul(0x0100_0000_01b3);
        assert_eq!(Digest::new().text(b"a").finish(), a);
        let foobar = (0x8594_4171_f739_67e8_u64 ^ 0xff).wrapping_mul(0x0100_0000_01b3);
        assert_eq!(Digest::new().text(b"foobar").finish(), foobar);
    }
}
