//! The objects of the process, the program and its libraries, in the order in which they were loaded (dl_iterate_phdr(3)).
//! What is preloaded comes first, in the order of `LD_PRELOAD`, then what the program needs, and last what it loads while
//! it runs. Nothing is opened, and no lock of the loader is held afterwards.

use std::ffi::c_int;

use libc::{c_void, dl_phdr_info};

/// The versions of symbols that an object defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    /// None: what it has stands for any version.
    None,
    /// Some: it has each symbol under a version of its own.
    Some,
}

/// A question, and its answer.
struct Asked {
    address: usize,
    other: usize,
    answer: Option<Versions>,
}

/// Returns the versions of the object that has `address`, if it was loaded before the one that has `other`.
pub(crate) fn before(address: usize, other: usize) -> Option<Versions> {
    let mut asked = Asked { address, other, answer: None };
    // SAFETY: the function is called for each object with the question, which lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut asked).cast()) };
    asked.answer
}

/// Looks at one object. Returns 1 at the last that matters.
unsafe extern "C" fn look(info: *mut dl_phdr_info, _: usize, asked: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description that lives as long as the call.
    let info = unsafe { &*info };
    // SAFETY: `before` passes its question, which nobody else uses meanwhile.
    let asked = unsafe { &mut *asked.cast::<Asked>() };
    let object = Object::of(info);
    if object.has(asked.other) {
        return 1;
    }
    if object.has(asked.address) {
        asked.answer = Some(object.versions());
        return 1;
    }
    0
}

/// A loaded object.
struct Object<'a> {
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

/// An entry of an object's dynamic section: its tag, and its value.
type Entry = [usize; 2];

/// The tags of the section's end, and of the versions that are defined (`elf.h`).
const DT_NULL: usize = 0;
const DT_VERDEF: usize = 0x6fff_fffc;

impl<'a> Object<'a> {
    fn of(info: &'a dl_phdr_info) -> Self {
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the loader says how many headers the object has, which is loaded.
            false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
        };
        Self { base: info.dlpi_addr as usize, headers }
    }

    /// Returns the parts of a kind: where each begins, and its bytes.
    fn parts(&self, kind: u32) -> impl Iterator<Item = (usize, usize)> {
        let of_kind = self.headers.iter().filter(move |header| header.p_type == kind);
        of_kind.map(|header| {
            (self.base.wrapping_add(header.p_vaddr as usize), header.p_memsz as usize)
        })
    }

    fn has(&self, address: usize) -> bool {
        self.parts(libc::PT_LOAD).any(|(begins, bytes)| address.wrapping_sub(begins) < bytes)
    }

    fn versions(&self) -> Versions {
        let entries = self.parts(libc::PT_DYNAMIC).flat_map(|(begins, bytes)| {
            // SAFETY: the section is loaded, and nobody changes it but the loader, before the object is shown.
            unsafe {
                std::slice::from_raw_parts(begins as *const Entry, bytes / size_of::<Entry>())
            }
        });
        let mut tags = entries.map(|[tag, _]| *tag).take_while(|tag| *tag != DT_NULL);
        if tags.any(|tag| tag == DT_VERDEF) { Versions::Some } else { Versions::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_before_the_c_library() {
        let program = the_program_comes_before_the_c_library as *const () as usize;
        let library = libc::gnu_get_libc_version as *const () as usize;
        assert_eq!(before(program, library), Some(Versions::None));
        assert_eq!(before(library, program), None);
        // Nothing has the address.
        assert_eq!(before(library, 0), Some(Versions::Some));
        assert_eq!(before(0, library), None);
        assert_eq!(before(program, program), None);
    }
}
