//! Clients whose connections go through the manager: the functions of libssl that `librejoin.so` replaces, and the
//! functions of GnuTLS that `librejoin_gnutls.so` replaces.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::c_void;
use rejoin_abi::gate::get_or_make;
use rejoin_abi::{GNUTLS, Hooks, LIBSSL, interposed};

use crate::is_known;
use crate::next::{self, Function};
use crate::rejoin::{LIBREJOIN, LIBREJOIN_GNUTLS, Library, debug};

/// One of Rejoin's libraries, which replaces functions of a TLS library.
struct Adapter {
    library: &'static Library,
    /// The number of the first function.
    first: usize,
    /// The digest of the table that this library was built with.
    digest: u64,
    /// The functions that it replaces.
    replaced: fn() -> &'static [Function],
    /// True if another library interposes one of the functions, too.
    is_anothers: OnceLock<bool>,
    hooks: OnceLock<Option<&'static Hooks>>,
    /// The base addresses of the TLS library and of the adapter.
    own: OnceLock<[usize; 2]>,
}

static ADAPTERS: [Adapter; 2] = [
    Adapter {
        library: &LIBREJOIN,
        first: 0,
        digest: Hooks::digest_of(&LIBSSL),
        replaced: || libssl::FUNCTIONS,
        is_anothers: OnceLock::new(),
        hooks: OnceLock::new(),
        own: OnceLock::new(),
    },
    Adapter {
        library: &LIBREJOIN_GNUTLS,
        first: OPENSSL,
        digest: Hooks::digest_of(&GNUTLS),
        replaced: || gnutls::FUNCTIONS,
        is_anothers: OnceLock::new(),
        hooks: OnceLock::new(),
        own: OnceLock::new(),
    },
];

/// Makes a trampoline for each function of a library, numbered from `$first` in the order of its slots.
macro_rules! trampolines {
    ({ $own:ident $first:expr } $file:literal { $($name:ident: $type:ty;)* }) => {
        mod $own {
            use libc::c_void;

            use crate::next::Function;
            use crate::trampoline::trampoline;

            enum Slot { $($name,)* }

            $(trampoline!($name, $first + Slot::$name as usize);)*

            pub(crate) const FUNCTIONS: &[Function] = &[$(Function {
                name: match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name ends with its only zero byte"),
                },
                library: $file,
                number: $first + Slot::$name as usize,
                own: $name as *const c_void,
            },)*];
        }
    };
}

interposed!(libssl => trampolines { libssl 0 });
interposed!(gnutls => trampolines { gnutls crate::client::OPENSSL });

const OPENSSL: usize = LIBSSL.functions.len();

/// The number of interposed functions of TLS libraries.
pub(crate) const NAMES: usize = OPENSSL + GNUTLS.functions.len();

/// The commands of `SSL_ctrl` that `librejoin.so` answers: `SSL_CTRL_GET_RI_SUPPORT` and `SSL_CTRL_GET_EXTMS_SUPPORT` of
/// `ssl.h`.
const ANSWERED_COMMANDS: [u32; 2] = [76, 122];

fn function(number: usize) -> &'static Function {
    libssl::FUNCTIONS.get(number).unwrap_or_else(|| &gnutls::FUNCTIONS[number - OPENSSL])
}

pub(crate) fn ssl_new() -> &'static Function {
    &libssl::FUNCTIONS[0]
}

/// Returns the address of the function that a call goes to. `arguments` are its first two, if it has so many.
pub(crate) fn destination(
    number: usize,
    caller: *const c_void,
    arguments: [*mut c_void; 2],
) -> Option<usize> {
    let function = function(number);
    let next = function.next(caller)?;
    // libssl makes each usual context by this function, also in programs that never connect.
    let is_usual = || arguments.into_iter().all(<*mut c_void>::is_null);
    if function.name == c"SSL_CTX_new_ex" && is_usual() {
        return Some(next.address);
    }
    // Programs set and ask for much by this function, and only two answers are not libssl's.
    let is_answered = || ANSWERED_COMMANDS.contains(&(arguments[1].addr() as u32));
    if function.name == c"SSL_ctrl" && !is_answered() {
        return Some(next.address);
    }
    if !is_wanted() || !is_known(function, next.reaches) {
        return Some(next.address);
    }
    let adapter = &ADAPTERS[usize::from(number >= OPENSSL)];
    if adapter.is_anothers() {
        return Some(next.address);
    }
    Some(adapter.answer(number, next).unwrap_or(next.address))
}

impl Adapter {
    /// Returns true if another library interposes one of the functions, too, as a key logger does. It must see what it
    /// would have seen, and the adapter needs all of them: so connections go directly.
    fn is_anothers(&self) -> bool {
        *get_or_make(&self.is_anothers, || {
            let mut of_others = (self.replaced)().iter().filter_map(Function::of_another);
            let found = of_others.next();
            next::forget_errors();
            let library = found.and_then(|found| next::library_of(found as *const c_void));
            if let Some(library) = library {
                let library = library.to_string_lossy();
                debug(&format!("directly: {library} interposes the same functions"));
            }
            found.is_some()
        })
    }

    fn answer(&self, number: usize, next: next::Next) -> Option<usize> {
        let hooks = self.load()?;
        let begins = || [next.reaches, hooks.functions as usize].map(next::beginning_of);
        // A TLS library calls its own functions by name, and so does the adapter. What a BIO of libssl reads and writes
        // does not lead here, so that its handshake must not either.
        if get_or_make(&self.own, begins).contains(&next.within) {
            return None;
        }
        // SAFETY: the digest was compared in `load`, and the numbers of the library's functions begin at `first`.
        Some(unsafe { hooks.function(number - self.first) } as usize)
    }

    fn load(&self) -> Option<&'static Hooks> {
        if next::ends() {
            // A program that ends loads nothing.
            return self.hooks.get().copied().flatten();
        }
        *get_or_make(&self.hooks, || {
            let hooks = self.library.hooks()?;
            if hooks.digest != self.digest {
                self.library.is_other();
                return None;
            }
            Some(hooks)
        })
    }
}

/// Returns true if the environment names a manager.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let said = || match rejoin_abi::variable("REJOIN_MANAGER").filter(|said| !said.is_empty()) {
        Some(said) => said != "no",
        None => {
            // Of other misspelled variables those complain who read them.
            let why = rejoin_abi::check_variables().err();
            let why = why.filter(|why| why.ends_with("did you mean REJOIN_MANAGER?"));
            why.iter().for_each(|why| rejoin_abi::report(why));
            false
        }
    };
    *get_or_make(&WANTED, said)
}

/// Returns false if the environment names no manager, so that [`is_wanted`] is false. It takes no lock and no memory, and is for
/// functions that any thread calls at any time.
pub(crate) fn may_be_wanted() -> bool {
    unsafe extern "C" {
        /// `secure_getenv` of glibc and musl.
        fn secure_getenv(name: *const libc::c_char) -> *mut libc::c_char;
    }
    const UNKNOWN: u8 = 2;
    static IS_SET: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = IS_SET.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    // SAFETY: the name ends with a zero byte.
    let is_set = !unsafe { secure_getenv(c"REJOIN_MANAGER".as_ptr()) }.is_null();
    IS_SET.store(is_set.into(), Ordering::Relaxed);
    is_set
}

/// Returns the hooks of the adapters that are loaded.
pub(crate) fn loaded() -> impl Iterator<Item = &'static Hooks> {
    ADAPTERS.iter().filter_map(|adapter| adapter.hooks.get().copied().flatten())
}
