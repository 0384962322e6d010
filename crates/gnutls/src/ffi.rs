//! The functions of libgnutls. They are called by their addresses, because this library does not link libgnutls, and
//! the names of many lead back here.

use libc::{c_char, c_int, c_uchar, c_uint, c_void, size_t, ssize_t, time_t};

/// `gnutls_session_t`.
pub(crate) type Session = *mut c_void;
/// `gnutls_certificate_credentials_t` and `gnutls_psk_client_credentials_t`.
pub(crate) type Credentials = *mut c_void;
/// `gnutls_priority_t`.
pub(crate) type Cache = *mut c_void;
/// `gnutls_x509_crt_t`.
pub(crate) type Certificate = *mut c_void;

/// `gnutls_datum_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Datum {
    pub(crate) data: *mut c_uchar,
    pub(crate) size: c_uint,
}

impl Datum {
    pub(crate) const EMPTY: Self = Self { data: std::ptr::null_mut(), size: 0 };

    /// Makes a datum of bytes that libgnutls only reads. `None`: there are too many.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self { data: bytes.as_ptr().cast_mut(), size: bytes.len().try_into().ok()? })
    }
}

/// `gnutls_typed_vdata_st`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TypedData {
    pub(crate) kind: c_int,
    pub(crate) data: *mut c_uchar,
    pub(crate) size: c_uint,
}

/// `gnutls_certificate_verify_function`.
pub(crate) type Verify = unsafe extern "C" fn(Session) -> c_int;
/// A callback of any type, which is only passed on.
pub(crate) type AnyCallback = Option<unsafe extern "C" fn()>;
type Receive = unsafe extern "C" fn(Session, *const c_uchar, size_t) -> c_int;
type Send = unsafe extern "C" fn(Session, *mut c_void) -> c_int;
type Push = unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> ssize_t;
type Pull = unsafe extern "C" fn(*mut c_void, *mut c_void, size_t) -> ssize_t;

/// `gnutls.h`.
pub(crate) const GNUTLS_CLIENT: c_uint = 1 << 1;
pub(crate) const GNUTLS_DATAGRAM: c_uint = 1 << 2;
pub(crate) const GNUTLS_NONBLOCK: c_uint = 1 << 3;
pub(crate) const GNUTLS_NO_EXTENSIONS: c_uint = 1 << 4;
pub(crate) const GNUTLS_NO_TICKETS: c_uint = 1 << 10;
pub(crate) const GNUTLS_ENABLE_RAWPK: c_uint = 1 << 18;
pub(crate) const GNUTLS_ENABLE_EARLY_DATA: c_uint = 1 << 20;
pub(crate) const GNUTLS_CRD_CERTIFICATE: c_int = 1;
pub(crate) const GNUTLS_CRD_ANON: c_int = 2;
pub(crate) const GNUTLS_CRD_SRP: c_int = 3;
pub(crate) const GNUTLS_CRD_PSK: c_int = 4;
pub(crate) const GNUTLS_KX_PSK: c_int = 9;
pub(crate) const GNUTLS_KX_DHE_PSK: c_int = 10;
pub(crate) const GNUTLS_KX_ECDHE_RSA: c_int = 12;
pub(crate) const GNUTLS_KX_ECDHE_PSK: c_int = 14;
pub(crate) const GNUTLS_MAC_AEAD: c_int = 200;
pub(crate) const GNUTLS_TLS1_2: c_int = 4;
pub(crate) const GNUTLS_TLS1_3: c_int = 5;
pub(crate) const GNUTLS_PK_ECDSA: c_int = 4;
pub(crate) const GNUTLS_PK_EDDSA_ED25519: c_int = 7;
pub(crate) const GNUTLS_PK_EDDSA_ED448: c_int = 12;
pub(crate) const GNUTLS_KEY_DIGITAL_SIGNATURE: c_uint = 128;
pub(crate) const GNUTLS_X509_FMT_DER: c_int = 0;
pub(crate) const GNUTLS_PSK_KEY_RAW: c_int = 0;
pub(crate) const GNUTLS_DT_DNS_HOSTNAME: c_int = 1;
pub(crate) const GNUTLS_PRIORITY_INIT_DEF_APPEND: c_uint = 1;
pub(crate) const GNUTLS_EXT_ANY: c_int = 0;
pub(crate) const GNUTLS_EXT_FLAG_CLIENT_HELLO: c_uint = 1 << 1;
pub(crate) const GNUTLS_EXT_FLAG_TLS: c_uint = 1 << 7;
pub(crate) const GNUTLS_E_SUCCESS: c_int = 0;
pub(crate) const GNUTLS_E_AGAIN: c_int = -28;
pub(crate) const GNUTLS_E_CERTIFICATE_ERROR: c_int = -43;
pub(crate) const GNUTLS_E_KEY_USAGE_VIOLATION: c_int = -48;
pub(crate) const GNUTLS_E_INVALID_REQUEST: c_int = -50;
pub(crate) const GNUTLS_E_SHORT_MEMORY_BUFFER: c_int = -51;
pub(crate) const GNUTLS_E_INTERRUPTED: c_int = -52;
pub(crate) const GNUTLS_E_INTERNAL_ERROR: c_int = -59;
pub(crate) const GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR: c_int = -348;
pub(crate) const GNUTLS_E_CHANNEL_BINDING_NOT_AVAILABLE: c_int = -213;

/// The address of a variable that holds the function.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Allocate(*const unsafe extern "C" fn(size_t) -> *mut c_void);

// SAFETY: the program sets the variable before it starts threads, as gnutls.h demands.
unsafe impl std::marker::Send for Allocate {}
// SAFETY: the program sets the variable before it starts threads, as gnutls.h demands.
unsafe impl Sync for Allocate {}

impl Gnutls {
    /// Allocates memory that the program frees with `gnutls_free`. Returns null if there is none.
    pub(crate) fn allocate(&self, bytes: usize) -> *mut c_uchar {
        // SAFETY: `gnutls_malloc` is a variable of the loaded libgnutls, which is never unloaded.
        let allocate = unsafe { self.gnutls_malloc.0.read() };
        // SAFETY: the function takes any number.
        unsafe { allocate(bytes) }.cast()
    }
}

type OfSession<T> = unsafe extern "C" fn(Session) -> T;
type Prf = unsafe extern "C" fn(
    Session,
    size_t,
    *const c_char,
    size_t,
    *const c_char,
    size_t,
    *mut c_char,
) -> c_int;

rejoin_hop::functions_of! {
    c"libgnutls.so.30"
    /// The functions of libgnutls that this library calls.
    pub(crate) struct Gnutls {
        gnutls_auth_client_get_type: OfSession<c_int>;
        gnutls_auth_get_type: OfSession<c_int>;
        gnutls_auth_server_get_type: OfSession<c_int>;
        gnutls_certificate_activation_time_peers: OfSession<time_t>;
        gnutls_certificate_expiration_time_peers: OfSession<time_t>;
        gnutls_certificate_free_credentials: unsafe extern "C" fn(Credentials);
        gnutls_certificate_get_crt_raw: unsafe extern "C" fn(Credentials, c_uint, c_uint, *mut Datum) -> c_int;
        gnutls_certificate_get_peers: unsafe extern "C" fn(Session, *mut c_uint) -> *const Datum;
        gnutls_certificate_get_trust_list: unsafe extern "C" fn(Credentials, *mut *mut c_void);
        gnutls_certificate_set_retrieve_function: unsafe extern "C" fn(Credentials, AnyCallback);
        gnutls_certificate_set_retrieve_function2: unsafe extern "C" fn(Credentials, AnyCallback);
        gnutls_certificate_set_retrieve_function3: unsafe extern "C" fn(Credentials, AnyCallback);
        gnutls_certificate_set_verify_function: unsafe extern "C" fn(Credentials, Option<Verify>);
        gnutls_certificate_type_get2: unsafe extern "C" fn(Session, c_int) -> c_int;
        gnutls_certificate_type_get: OfSession<c_int>;
        gnutls_certificate_verify_peers2: unsafe extern "C" fn(Session, *mut c_uint) -> c_int;
        gnutls_certificate_verify_peers3: unsafe extern "C" fn(Session, *const c_char, *mut c_uint) -> c_int;
        gnutls_certificate_verify_peers: unsafe extern "C" fn(Session, *mut TypedData, c_uint, *mut c_uint) -> c_int;
        gnutls_cipher_get: OfSession<c_int>;
        gnutls_cipher_get_name: unsafe extern "C" fn(c_int) -> *const c_char;
        gnutls_cipher_suite_info: unsafe extern "C" fn(size_t, *mut c_uchar, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> *const c_char;
        gnutls_credentials_get: unsafe extern "C" fn(Session, c_int, *mut Credentials) -> c_int;
        gnutls_credentials_set: unsafe extern "C" fn(Session, c_int, Credentials) -> c_int;
        gnutls_deinit: unsafe extern "C" fn(Session);
        gnutls_handshake: OfSession<c_int>;
        gnutls_init: unsafe extern "C" fn(*mut Session, c_uint) -> c_int;
        gnutls_kx_get: OfSession<c_int>;
        gnutls_kx_get_name: unsafe extern "C" fn(c_int) -> *const c_char;
        gnutls_mac_get: OfSession<c_int>;
        gnutls_mac_get_name: unsafe extern "C" fn(c_int) -> *const c_char;
        gnutls_malloc: Allocate;
        gnutls_ocsp_status_request_get2: unsafe extern "C" fn(Session, c_uint, *mut Datum) -> c_int;
        gnutls_ocsp_status_request_get: unsafe extern "C" fn(Session, *mut Datum) -> c_int;
        gnutls_ocsp_status_request_is_checked: unsafe extern "C" fn(Session, c_uint) -> c_uint;
        gnutls_prf: unsafe extern "C" fn(Session, size_t, *const c_char, c_int, size_t, *const c_char, size_t, *mut c_char) -> c_int;
        gnutls_prf_raw: Prf;
        gnutls_prf_rfc5705: Prf;
        gnutls_priority_deinit: unsafe extern "C" fn(Cache);
        gnutls_priority_init2: unsafe extern "C" fn(*mut Cache, *const c_char, *mut *const c_char, c_uint) -> c_int;
        gnutls_priority_init: unsafe extern "C" fn(*mut Cache, *const c_char, *mut *const c_char) -> c_int;
        gnutls_priority_kx_list: unsafe extern "C" fn(Cache, *mut *const c_uint) -> c_int;
        gnutls_priority_set: unsafe extern "C" fn(Session, Cache) -> c_int;
        gnutls_priority_set_direct: unsafe extern "C" fn(Session, *const c_char, *mut *const c_char) -> c_int;
        gnutls_protocol_get_name: unsafe extern "C" fn(c_int) -> *const c_char;
        gnutls_protocol_get_version: OfSession<c_int>;
        gnutls_psk_allocate_client_credentials: unsafe extern "C" fn(*mut Credentials) -> c_int;
        gnutls_psk_free_client_credentials: unsafe extern "C" fn(Credentials);
        gnutls_psk_set_client_credentials: unsafe extern "C" fn(Credentials, *const c_char, *const Datum, c_int) -> c_int;
        gnutls_record_send: unsafe extern "C" fn(Session, *const c_void, size_t) -> ssize_t;
        gnutls_safe_renegotiation_status: OfSession<c_uint>;
        gnutls_session_channel_binding: unsafe extern "C" fn(Session, c_int, *mut Datum) -> c_int;
        gnutls_session_enable_compatibility_mode: unsafe extern "C" fn(Session);
        gnutls_session_ext_master_secret_status: OfSession<c_uint>;
        gnutls_session_ext_register: unsafe extern "C" fn(Session, *const c_char, c_int, c_int, Receive, Send, AnyCallback, AnyCallback, AnyCallback, c_uint) -> c_int;
        gnutls_session_get_data2: unsafe extern "C" fn(Session, *mut Datum) -> c_int;
        gnutls_session_get_data: unsafe extern "C" fn(Session, *mut c_void, *mut size_t) -> c_int;
        gnutls_session_get_desc: OfSession<*mut c_char>;
        gnutls_session_get_verify_cert_status: OfSession<c_uint>;
        gnutls_session_is_resumed: OfSession<c_int>;
        gnutls_session_set_data: unsafe extern "C" fn(Session, *const c_void, size_t) -> c_int;
        gnutls_session_set_keylog_function: unsafe extern "C" fn(Session, AnyCallback);
        gnutls_session_set_verify_cert2: unsafe extern "C" fn(Session, *mut TypedData, c_uint, c_uint);
        gnutls_session_set_verify_cert: unsafe extern "C" fn(Session, *const c_char, c_uint);
        gnutls_session_set_verify_function: unsafe extern "C" fn(Session, Option<Verify>);
        gnutls_session_set_verify_output_function: unsafe extern "C" fn(Session, AnyCallback);
        gnutls_set_default_priority: OfSession<c_int>;
        gnutls_set_default_priority_append: unsafe extern "C" fn(Session, *const c_char, *mut *const c_char, c_uint) -> c_int;
        gnutls_transport_set_errno: unsafe extern "C" fn(Session, c_int);
        gnutls_transport_set_ptr: unsafe extern "C" fn(Session, *mut c_void);
        gnutls_transport_set_pull_function: unsafe extern "C" fn(Session, Pull);
        gnutls_transport_set_push_function: unsafe extern "C" fn(Session, Push);
        gnutls_x509_crt_deinit: unsafe extern "C" fn(Certificate);
        gnutls_x509_crt_get_key_usage: unsafe extern "C" fn(Certificate, *mut c_uint, *mut c_uint) -> c_int;
        gnutls_x509_crt_get_pk_algorithm: unsafe extern "C" fn(Certificate, *mut c_uint) -> c_int;
        gnutls_x509_crt_import: unsafe extern "C" fn(Certificate, *const Datum, c_int) -> c_int;
        gnutls_x509_crt_init: unsafe extern "C" fn(*mut Certificate) -> c_int;
        gnutls_x509_trust_list_iter_deinit: unsafe extern "C" fn(*mut c_void);
        gnutls_x509_trust_list_iter_get_ca: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Certificate) -> c_int;
    }
}
