//! OpenSSL's own QUIC (3.2 and later), which is left alone.
//!
//! Its listeners, connections and streams are `SSL` objects, too, and smaller than a connection of TLS. OpenSSL reports that
//! an object is made before it writes its kind and its context there, and until then each function takes it for a connection
//! of TLS, and may write beyond its end. So no function is called on a new object while it may be one of QUIC: that takes a
//! context of QUIC, and each context shows by its method what it is for.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl_sys::{SSL_CTX, SSL_METHOD};

use crate::{ffi, imports};

/// The methods of QUIC's contexts. The last one is for servers.
pub(crate) const METHODS: [&CStr; 3] =
    [c"OSSL_QUIC_client_method", c"OSSL_QUIC_client_thread_method", c"OSSL_QUIC_server_method"];

/// True if a context of QUIC may have been made before contexts were reported.
static MAY_BE_EARLIER: AtomicBool = AtomicBool::new(true);
/// True once a context of QUIC was seen.
static IS_SEEN: AtomicBool = AtomicBool::new(false);

/// Returns true for a context of OpenSSL's own QUIC, and notes that there is one.
///
/// # Safety
/// `context` is valid.
pub unsafe fn is_quic(context: *const SSL_CTX) -> bool {
    // SAFETY: the caller vouches for `context`; the call reads a pointer.
    let method = unsafe { ffi::SSL_CTX_get_ssl_method(context) };
    let is_one = !method.is_null() && methods().contains(&method.addr());
    if is_one {
        IS_SEEN.store(true, Ordering::Relaxed);
    }
    is_one
}

/// Returns true for a method of QUIC's clients.
pub(crate) fn is_of_clients(method: *const SSL_METHOD) -> bool {
    let [client, client_with_thread, _] = methods();
    !method.is_null() && [*client, *client_with_thread].contains(&method.addr())
}

/// Returns true while an object that is being made may be one of QUIC.
pub(crate) fn may_be() -> bool {
    MAY_BE_EARLIER.load(Ordering::Relaxed) || IS_SEEN.load(Ordering::Relaxed)
}

/// Finds out whether a context of QUIC may be there already. To be called once contexts are reported. A program that asks
/// the linker for a method (`dlsym(3)`), and makes a context before, does not show it.
pub(crate) fn look_for_earlier() {
    let has_methods = methods().iter().any(|method| *method != 0);
    // With each context OpenSSL registers an index for the verification of certificates
    // (`SSL_get_ex_data_X509_STORE_CTX_idx(3)`).
    let is_any_there = || ffi::is_any_index_there(ffi::CRYPTO_EX_INDEX_X509_STORE_CTX);
    let may_be = has_methods && imports::makes_quic_contexts() && is_any_there();
    MAY_BE_EARLIER.store(may_be, Ordering::Relaxed);
}

/// Returns the addresses of the methods; 0 for one that this release does not have.
fn methods() -> &'static [usize; 3] {
    static FOUND: OnceLock<[usize; 3]> = OnceLock::new();
    FOUND.get_or_init(|| METHODS.map(method))
}

fn method(name: &CStr) -> usize {
    // The linker looks where it has found all functions of libssl that are called here.
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        // The program must not see the error of this lookup.
        // SAFETY: the function takes no arguments.
        unsafe { libc::dlerror() };
        return 0;
    }
    // SAFETY: OpenSSL's function of this name has this type. It returns the address of a static.
    let method = unsafe {
        std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> *const SSL_METHOD>(found)
    };
    method().addr()
}
