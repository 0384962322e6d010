//! The functions of libssl that the program and its libraries import.
//!
//! OpenSSL has no function that returns a context's callback for session tickets (`SSL_CTX_set_session_ticket_cb(3)`). A
//! program that has one imports the function that sets it, which shows in the relocations of the program or of one of its
//! libraries. One that looks the function up by `dlsym(3)` does not show it. So it is with the callbacks by which a server lets
//! clients in that have a pre-shared key or a password, and with the methods of OpenSSL's own QUIC.
//!
//! Nothing that these files say is followed unless it is in their own mapped segments.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{dl_phdr_info, size_t};

#[cfg(target_pointer_width = "32")]
use libc::{Elf32_Phdr as Segment, Elf32_Sym as Symbol};
#[cfg(target_pointer_width = "64")]
use libc::{Elf64_Phdr as Segment, Elf64_Sym as Symbol};

/// Returns true if the program, or a library of its that does not contain this code, imports the function that sets a
/// callback for session tickets.
pub(crate) fn sets_ticket_callback() -> bool {
    /// The number of files that had been loaded when the process was looked at, and the answer in the lowest bit.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    is_any_imported(&[c"SSL_CTX_set_session_ticket_cb"], false, &SEEN)
}

/// Returns true if the program or a library of its imports a function that sets a callback for pre-shared keys or passwords.
pub(crate) fn sets_key_callback() -> bool {
    /// The same as for tickets.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    const SETTERS: [&CStr; 5] = [
        c"SSL_CTX_set_psk_server_callback",
        c"SSL_set_psk_server_callback",
        c"SSL_CTX_set_psk_find_session_callback",
        c"SSL_set_psk_find_session_callback",
        c"SSL_CTX_set_srp_username_callback",
    ];
    is_any_imported(&SETTERS, true, &SEEN)
}

/// Returns true if the program or a library of its imports a function that contexts of OpenSSL's own QUIC are made with.
pub(crate) fn makes_quic_contexts() -> bool {
    /// The same as for tickets.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    is_any_imported(&crate::quic::METHODS, true, &SEEN)
}

fn is_any_imported(functions: &'static [&'static CStr], in_own: bool, seen: &AtomicU64) -> bool {
    let before = seen.load(Ordering::Relaxed);
    let mut search = Search { functions, in_own, seen: before, loaded: 0, is_found: false };
    // SAFETY: the callback reads what the linker passes, and the variable outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    seen.store(search.loaded << 1 | u64::from(search.is_found), Ordering::Relaxed);
    search.is_found
}

struct Search {
    functions: &'static [&'static CStr],
    /// True if the file that contains this code is looked at, too.
    in_own: bool,
    seen: u64,
    loaded: u64,
    is_found: bool,
}

/// Looks at one file. Any other result than 0 ends the search.
///
/// # Safety
/// `info` is valid, and `search` is a [`Search`].
unsafe extern "C" fn look_at(info: *mut dl_phdr_info, size: size_t, search: *mut c_void) -> c_int {
    // SAFETY: the caller vouches for `search`.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the caller vouches for `info`.
    let info = unsafe { &*info };
    if size >= size_of::<dl_phdr_info>() {
        search.loaded = info.dlpi_adds;
        if search.seen >> 1 == info.dlpi_adds {
            search.is_found = search.seen & 1 == 1;
            return 1;
        }
    }
    let file = Mapped::of(info);
    let is_own = file.contains(sets_ticket_callback as fn() -> bool as usize, 1);
    let is_looked_at = search.in_own || !is_own;
    search.is_found = is_looked_at && search.functions.iter().any(|one| file.imports(one));
    search.is_found.into()
}

/// A file as the linker has mapped it.
struct Mapped<'a> {
    base: usize,
    segments: &'a [Segment],
}

/// The parts of a file's dynamic section that tell what it imports.
#[derive(Default)]
struct Dynamic {
    symbols: usize,
    names: usize,
    names_bytes: usize,
    /// Relocations with an addend, without one, and those of functions: where, their bytes, and the bytes of each.
    tables: [(usize, usize, usize); 3],
}

const WORD: usize = size_of::<usize>();

impl<'a> Mapped<'a> {
    fn of(info: &'a dl_phdr_info) -> Self {
        let count = if info.dlpi_phdr.is_null() { 0 } else { usize::from(info.dlpi_phnum) };
        let start = if count == 0 { std::ptr::dangling() } else { info.dlpi_phdr };
        // SAFETY: the linker's own table, of as many entries, for as long as the file is loaded.
        let segments = unsafe { std::slice::from_raw_parts(start, count) };
        Self { base: info.dlpi_addr as usize, segments }
    }

    /// Returns true if all these bytes are in one segment that can be read.
    fn contains(&self, address: usize, bytes: usize) -> bool {
        self.segments.iter().any(|segment| {
            let start = self.base.wrapping_add(segment.p_vaddr as usize);
            let room = segment.p_memsz as usize;
            let offset = address.wrapping_sub(start);
            segment.p_type == libc::PT_LOAD
                && segment.p_flags & libc::PF_R != 0
                && offset < room
                && bytes <= room - offset
        })
    }

    fn read<T: Copy>(&self, address: usize) -> Option<T> {
        let is_there = self.contains(address, size_of::<T>());
        // SAFETY: within a segment that is mapped and can be read; all values of the numbers read here are valid.
        is_there.then(|| unsafe { (address as *const T).read_unaligned() })
    }

    /// Returns an address of the dynamic section, which some linkers write there, and others leave as in the file.
    fn address(&self, value: usize) -> usize {
        if value < self.base { self.base.wrapping_add(value) } else { value }
    }

    fn dynamic(&self) -> Dynamic {
        let mut dynamic = Dynamic::default();
        let Some(section) = self.segments.iter().find(|one| one.p_type == libc::PT_DYNAMIC) else {
            return dynamic;
        };
        let mut at = self.base.wrapping_add(section.p_vaddr as usize);
        let mut kind_of_last = 0;
        while let Some([tag, value]) = self.read::<[usize; 2]>(at).filter(|[tag, _]| *tag != 0) {
            let Dynamic { symbols, names, names_bytes, tables: [with, without, functions] } =
                &mut dynamic;
            // `DT_STRTAB` and what follows it in `elf.h`.
            match tag {
                5 => *names = self.address(value),
                6 => *symbols = self.address(value),
                10 => *names_bytes = value,
                7 => with.0 = self.address(value),
                8 => with.1 = value,
                17 => without.0 = self.address(value),
                18 => without.1 = value,
                23 => functions.0 = self.address(value),
                2 => functions.1 = value,
                20 => kind_of_last = value,
                _ => {}
            }
            at += 2 * WORD;
        }
        const WITH_ADDEND: usize = 7;
        let [with, without, functions] = &mut dynamic.tables;
        (with.2, without.2) = (3 * WORD, 2 * WORD);
        functions.2 = if kind_of_last == WITH_ADDEND { 3 * WORD } else { 2 * WORD };
        dynamic
    }

    /// Returns true if the file refers to a function of this name in another one.
    fn imports(&self, function: &CStr) -> bool {
        let dynamic = self.dynamic();
        dynamic.tables.iter().any(|(start, bytes, each)| {
            (0..bytes / each).any(|at| {
                // The word after the address, whose upper part is the symbol's number.
                let information = self.read::<usize>(start + at * each + WORD).unwrap_or(0);
                let number = if WORD == 8 { information >> 32 } else { information >> 8 };
                number != 0 && self.is_import(&dynamic, number, function)
            })
        })
    }

    fn is_import(&self, dynamic: &Dynamic, number: usize, function: &CStr) -> bool {
        let address = dynamic.symbols.wrapping_add(number.wrapping_mul(size_of::<Symbol>()));
        let Some(symbol) = self.read::<Symbol>(address) else { return false };
        let (name, wanted) = (symbol.st_name as usize, function.to_bytes_with_nul());
        let fits = name.checked_add(wanted.len()).is_some_and(|end| end <= dynamic.names_bytes);
        let start = dynamic.names.wrapping_add(name);
        if symbol.st_shndx != 0 || !fits || !self.contains(start, wanted.len()) {
            return false;
        }
        // SAFETY: within a segment that is mapped and can be read.
        let found = unsafe { std::slice::from_raw_parts(start as *const u8, wanted.len()) };
        found == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Wanted(&'static CStr, bool);

    unsafe extern "C" fn look(
        info: *mut dl_phdr_info,
        _size: size_t,
        wanted: *mut c_void,
    ) -> c_int {
        // SAFETY: the test passes it.
        let wanted = unsafe { &mut *wanted.cast::<Wanted>() };
        // SAFETY: the linker's own.
        wanted.1 |= Mapped::of(unsafe { &*info }).imports(wanted.0);
        0
    }

    #[test]
    fn what_a_file_of_the_process_imports_is_seen_and_nothing_else() {
        for (name, is_imported) in [
            (c"dl_iterate_phdr", true),
            (c"dl_iterate_phd", false),
            (c"l_iterate_phdr", false),
            (c"SSL_CTX_get_session_ticket_cb", false),
        ] {
            let mut wanted = Wanted(name, false);
            // SAFETY: the callback gets what it expects.
            unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
            assert_eq!(wanted.1, is_imported, "{name:?}");
        }
    }

    /// This program has the code that looks, so that its own import does not count.
    #[test]
    fn an_import_of_ours_is_not_the_programs() {
        assert!(!sets_ticket_callback());
        assert!(!sets_ticket_callback());
    }
}
