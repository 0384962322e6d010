//! What the libraries define for others, which is what they may get between.

use std::collections::BTreeSet;
use std::process::Command;

/// The names in a library's dynamic symbol table that are its own.
fn exported(library: &str) -> BTreeSet<String> {
    let library = rejoin_testkit::shipped::library(library);
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let listed = String::from_utf8(listed.expect("nm is installed").stdout).expect("text");
    listed.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect()
}

#[test]
fn the_library_has_its_two_interfaces_and_nothing_else() {
    let header = include_str!("../../include/rejoin.h");
    let functions = header.lines().filter(|line| line.starts_with(char::is_alphabetic));
    let functions = functions.filter(|line| line.contains('('));
    let names = functions.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let declared: BTreeSet<_> = names
        .chain(["OPENSSL_init", "OPENSSL_finish", "rejoin_client_hooks"])
        .map(str::to_owned)
        .collect();
    assert_eq!(exported("librejoin.so"), declared);
    assert!(declared.contains("rejoin_attach") && declared.contains("rejoin_version"));
}

/// Of libssl and GnuTLS: what servers and clients begin with, what clients ask about their connections, and
/// what they set that nobody can ask for. Of the C library: what clients send, and ask about sockets.
const INTERPOSED: [&str; 84] = [
    "SSL_CTX_set_cert_cb",
    "SSL_CTX_set_cert_verify_callback",
    "SSL_CTX_set_psk_client_callback",
    "SSL_CTX_set_psk_use_session_callback",
    "SSL_connect",
    "SSL_dane_enable",
    "SSL_do_handshake",
    "SSL_get0_peer_certificate",
    "SSL_get0_verified_chain",
    "SSL_get1_peer_certificate",
    "SSL_get_current_cipher",
    "SSL_get_peer_cert_chain",
    "SSL_get_version",
    "SSL_new",
    "SSL_peek",
    "SSL_peek_ex",
    "SSL_read",
    "SSL_read_ex",
    "SSL_session_reused",
    "SSL_set_cert_cb",
    "SSL_set_psk_client_callback",
    "SSL_set_psk_use_session_callback",
    "SSL_version",
    "SSL_write",
    "SSL_write_ex",
    "getpeername",
    "getsockname",
    "getsockopt",
    "gnutls_auth_client_get_type",
    "gnutls_auth_get_type",
    "gnutls_auth_server_get_type",
    "gnutls_certificate_activation_time_peers",
    "gnutls_certificate_expiration_time_peers",
    "gnutls_certificate_free_credentials",
    "gnutls_certificate_get_peers",
    "gnutls_certificate_set_retrieve_function",
    "gnutls_certificate_set_retrieve_function2",
    "gnutls_certificate_set_retrieve_function3",
    "gnutls_certificate_set_verify_function",
    "gnutls_certificate_type_get",
    "gnutls_certificate_type_get2",
    "gnutls_certificate_verify_peers",
    "gnutls_certificate_verify_peers2",
    "gnutls_certificate_verify_peers3",
    "gnutls_cipher_get",
    "gnutls_deinit",
    "gnutls_handshake",
    "gnutls_init",
    "gnutls_kx_get",
    "gnutls_mac_get",
    "gnutls_ocsp_status_request_get",
    "gnutls_ocsp_status_request_get2",
    "gnutls_ocsp_status_request_is_checked",
    "gnutls_prf",
    "gnutls_prf_raw",
    "gnutls_prf_rfc5705",
    "gnutls_priority_deinit",
    "gnutls_priority_init",
    "gnutls_priority_init2",
    "gnutls_priority_set",
    "gnutls_priority_set_direct",
    "gnutls_protocol_get_version",
    "gnutls_safe_renegotiation_status",
    "gnutls_session_channel_binding",
    "gnutls_session_enable_compatibility_mode",
    "gnutls_session_ext_master_secret_status",
    "gnutls_session_get_data",
    "gnutls_session_get_data2",
    "gnutls_session_get_desc",
    "gnutls_session_get_verify_cert_status",
    "gnutls_session_is_resumed",
    "gnutls_session_set_data",
    "gnutls_session_set_keylog_function",
    "gnutls_session_set_verify_cert",
    "gnutls_session_set_verify_cert2",
    "gnutls_session_set_verify_function",
    "gnutls_session_set_verify_output_function",
    "gnutls_set_default_priority",
    "gnutls_set_default_priority_append",
    "send",
    "sendmsg",
    "setsockopt",
    "write",
    "writev",
];

#[test]
fn the_preload_library_has_what_it_takes_the_place_of() {
    assert_eq!(exported("librejoin_preload.so"), INTERPOSED.map(str::to_owned).into());
}

/// Those that every program has that uses our library, and nothing that panics need: it would be loaded into each
/// program of a machine.
#[test]
fn the_libraries_bring_no_others_along() {
    let c = ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    for (library, tls) in [
        ("librejoin_preload.so", &[][..]),
        ("librejoin_gnutls.so", &[]),
        ("librejoin.so", &["libssl.so.3", "libcrypto.so.3"]),
    ] {
        let listed = Command::new("readelf")
            .arg("-d")
            .arg(rejoin_testkit::shipped::library(library))
            .output();
        let listed = String::from_utf8(listed.expect("readelf is installed").stdout).expect("text");
        let needed = listed.lines().filter(|line| line.contains("(NEEDED)"));
        let needed: Vec<_> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
        assert!(needed.contains(&"libc.so.6"), "{library}: {listed}");
        let others = needed.iter().filter(|name| !c.contains(name) && !tls.contains(name));
        assert_eq!(others.count(), 0, "{library}: {needed:?}");
    }
}
