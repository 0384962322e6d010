//! Clients whose connections go through the manager: the functions of libssl that `librejoin.so`
//! answers instead, and those of GnuTLS that `librejoin_gnutls.so` does.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use libc::{c_int, c_void, size_t, sockaddr, socklen_t};

use crate::is_known;
use crate::next::{self, Function};
use crate::rejoin::{self, LIBREJOIN, LIBREJOIN_GNUTLS, Library};
use crate::trampoline::trampoline;

/// As `LAYOUT` of `rejoin-hop`.
const LAYOUT: size_t = 1;

/// As `Hooks` of `rejoin-hop`, of which both libraries have one.
#[repr(C)]
pub(crate) struct Hooks {
    layout: size_t,
    functions: *const *const c_void,
    count: size_t,
    pub(crate) pending: *const AtomicUsize,
    pub(crate) taken: *const AtomicUsize,
    pub(crate) sending: unsafe extern "C" fn(c_int, u16, *const c_void, size_t),
    pub(crate) name: unsafe extern "C" fn(c_int, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub(crate) option: unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub(crate) is_taken: extern "C" fn(c_int) -> c_int,
}

// SAFETY: addresses of functions and of what is shared.
unsafe impl Sync for Hooks {}

/// One of our libraries, which answers instead of a TLS library.
struct Adapter {
    library: &'static Library,
    /// Its function that gives the hooks.
    gives: &'static CStr,
    /// The number of the first function, and how many there are.
    first: usize,
    count: usize,
    /// What the TLS library calls itself is not answered.
    is_for_others: bool,
    hooks: OnceLock<Option<&'static Hooks>>,
    /// Where the TLS library begins, and where ours.
    own: OnceLock<[usize; 2]>,
}

static ADAPTERS: [Adapter; 2] = [
    Adapter {
        library: &LIBREJOIN,
        gives: c"rejoin_client_hooks",
        first: 1,
        count: OPENSSL,
        is_for_others: false,
        hooks: OnceLock::new(),
        own: OnceLock::new(),
    },
    Adapter {
        library: &LIBREJOIN_GNUTLS,
        gives: c"rejoin_gnutls_hooks",
        first: 1 + OPENSSL,
        count: GNUTLS,
        is_for_others: true,
        hooks: OnceLock::new(),
        own: OnceLock::new(),
    },
];

macro_rules! functions {
    ($($count:ident $library:literal { $($number:literal $own:ident $name:literal,)* })*) => {
        $($(trampoline!($own, $name, $number);)*)*

        $(const $count: usize = [$($number),*].len();)*

        /// Functions of TLS libraries, without `SSL_new`.
        pub(crate) const NAMES: usize = [$($($number),*),*].len();

        /// In the order of [`Hooks::functions`], one library's after the other's; `SSL_new` has the number
        /// before.
        fn function(number: usize) -> Function {
            let (name, library, own) = match number {
                $($($number => {
                    const NAME: &CStr =
                        match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name"),
                        };
                    (NAME, $library, $own as *const c_void)
                })*)*
                _ => unreachable!("there is a trampoline for each"),
            };
            Function { name, library, number, own }
        }
    };
}

functions! {
    OPENSSL c"libssl.so.3" {
        1 do_handshake "SSL_do_handshake",
        2 connect "SSL_connect",
        3 get_version "SSL_get_version",
        4 version "SSL_version",
        5 get_current_cipher "SSL_get_current_cipher",
        6 session_reused "SSL_session_reused",
        7 get0_peer_certificate "SSL_get0_peer_certificate",
        8 get1_peer_certificate "SSL_get1_peer_certificate",
        9 get_peer_cert_chain "SSL_get_peer_cert_chain",
        10 get0_verified_chain "SSL_get0_verified_chain",
        11 ctx_set_cert_verify_callback "SSL_CTX_set_cert_verify_callback",
        12 set_psk_use_session_callback "SSL_set_psk_use_session_callback",
        13 ctx_set_psk_use_session_callback "SSL_CTX_set_psk_use_session_callback",
        14 set_psk_client_callback "SSL_set_psk_client_callback",
        15 ctx_set_psk_client_callback "SSL_CTX_set_psk_client_callback",
        16 set_cert_cb "SSL_set_cert_cb",
        17 ctx_set_cert_cb "SSL_CTX_set_cert_cb",
        18 dane_enable "SSL_dane_enable",
        19 read "SSL_read",
        20 peek "SSL_peek",
        21 write "SSL_write",
        22 read_ex "SSL_read_ex",
        23 peek_ex "SSL_peek_ex",
        24 write_ex "SSL_write_ex",
    }
    GNUTLS c"libgnutls.so.30" {
        25 gnutls_init "gnutls_init",
        26 gnutls_deinit "gnutls_deinit",
        27 gnutls_priority_set_direct "gnutls_priority_set_direct",
        28 gnutls_set_default_priority "gnutls_set_default_priority",
        29 gnutls_set_default_priority_append "gnutls_set_default_priority_append",
        30 gnutls_priority_init "gnutls_priority_init",
        31 gnutls_priority_init2 "gnutls_priority_init2",
        32 gnutls_priority_deinit "gnutls_priority_deinit",
        33 gnutls_priority_set "gnutls_priority_set",
        34 gnutls_session_set_verify_cert "gnutls_session_set_verify_cert",
        35 gnutls_session_set_verify_cert2 "gnutls_session_set_verify_cert2",
        36 gnutls_session_set_verify_function "gnutls_session_set_verify_function",
        37 gnutls_session_set_verify_output_function "gnutls_session_set_verify_output_function",
        38 gnutls_certificate_set_verify_function "gnutls_certificate_set_verify_function",
        39 gnutls_certificate_set_retrieve_function "gnutls_certificate_set_retrieve_function",
        40 gnutls_certificate_set_retrieve_function2 "gnutls_certificate_set_retrieve_function2",
        41 gnutls_certificate_set_retrieve_function3 "gnutls_certificate_set_retrieve_function3",
        42 gnutls_certificate_free_credentials "gnutls_certificate_free_credentials",
        43 gnutls_session_set_data "gnutls_session_set_data",
        44 gnutls_session_set_keylog_function "gnutls_session_set_keylog_function",
        45 gnutls_handshake "gnutls_handshake",
        46 gnutls_certificate_get_peers "gnutls_certificate_get_peers",
        47 gnutls_certificate_verify_peers "gnutls_certificate_verify_peers",
        48 gnutls_certificate_verify_peers2 "gnutls_certificate_verify_peers2",
        49 gnutls_certificate_verify_peers3 "gnutls_certificate_verify_peers3",
        50 gnutls_certificate_type_get "gnutls_certificate_type_get",
        51 gnutls_certificate_type_get2 "gnutls_certificate_type_get2",
        52 gnutls_certificate_expiration_time_peers "gnutls_certificate_expiration_time_peers",
        53 gnutls_certificate_activation_time_peers "gnutls_certificate_activation_time_peers",
        54 gnutls_auth_get_type "gnutls_auth_get_type",
        55 gnutls_auth_server_get_type "gnutls_auth_server_get_type",
        56 gnutls_auth_client_get_type "gnutls_auth_client_get_type",
        57 gnutls_ocsp_status_request_get "gnutls_ocsp_status_request_get",
        58 gnutls_ocsp_status_request_get2 "gnutls_ocsp_status_request_get2",
        59 gnutls_ocsp_status_request_is_checked "gnutls_ocsp_status_request_is_checked",
        60 gnutls_session_ext_master_secret_status "gnutls_session_ext_master_secret_status",
        61 gnutls_safe_renegotiation_status "gnutls_safe_renegotiation_status",
        62 gnutls_protocol_get_version "gnutls_protocol_get_version",
        63 gnutls_kx_get "gnutls_kx_get",
        64 gnutls_cipher_get "gnutls_cipher_get",
        65 gnutls_mac_get "gnutls_mac_get",
        66 gnutls_session_get_verify_cert_status "gnutls_session_get_verify_cert_status",
        67 gnutls_session_get_desc "gnutls_session_get_desc",
        68 gnutls_session_is_resumed "gnutls_session_is_resumed",
        69 gnutls_session_get_data "gnutls_session_get_data",
        70 gnutls_session_get_data2 "gnutls_session_get_data2",
        71 gnutls_session_channel_binding "gnutls_session_channel_binding",
        72 gnutls_prf "gnutls_prf",
        73 gnutls_prf_raw "gnutls_prf_raw",
        74 gnutls_prf_rfc5705 "gnutls_prf_rfc5705",
        75 gnutls_session_enable_compatibility_mode "gnutls_session_enable_compatibility_mode",
    }
}

/// Where such a call goes.
pub(crate) fn destination(number: usize, caller: *const c_void) -> Option<usize> {
    let function = function(number);
    let next = function.next(caller)?;
    if !is_wanted() || !is_known(&function, next.address) {
        return Some(next.address);
    }
    let adapter = &ADAPTERS[usize::from(number > OPENSSL)];
    Some(adapter.answer(number, next).unwrap_or(next.address))
}

impl Adapter {
    fn answer(&self, number: usize, next: next::Next) -> Option<usize> {
        let hooks = self.load()?;
        let begins = || [next.address, hooks.functions as usize].map(next::beginning_of);
        // A TLS library calls its own functions by their names, and we call them, too.
        if self.is_for_others && self.own.get_or_init(begins).contains(&next.within) {
            return None;
        }
        // SAFETY: there are as many as was looked at.
        let functions = unsafe { std::slice::from_raw_parts(hooks.functions, hooks.count) };
        Some(functions[number - self.first] as usize)
    }

    fn load(&self) -> Option<&'static Hooks> {
        *self.hooks.get_or_init(|| {
            let found = self.library.function(self.gives)?;
            // SAFETY: the function of this name has this type in every version.
            let give = unsafe {
                std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Hooks>(found)
            };
            // SAFETY: it is static, and begins with its layout in every version.
            let hooks = unsafe { give().as_ref() }?;
            if hooks.layout != LAYOUT || hooks.count != self.count {
                self.library.is_other();
                return None;
            }
            Some(hooks)
        })
    }
}

/// Whether the environment names a manager.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let said =
        || rejoin::variable("REJOIN_MANAGER").is_some_and(|said| !said.is_empty() && said != "no");
    *WANTED.get_or_init(said)
}

/// The hooks of the libraries that are loaded: before that nothing is to be done.
pub(crate) fn loaded() -> impl Iterator<Item = &'static Hooks> {
    ADAPTERS.iter().filter_map(|adapter| adapter.hooks.get().copied().flatten())
}
