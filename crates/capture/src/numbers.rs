//! Cipher suites and groups by number, with the names of IANA's registry of TLS parameters for those in use.

use std::fmt;

use serde::{Serialize, Serializer};

/// A cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CipherSuite(pub u16);

/// A group of a key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group(pub u16);

impl fmt::Display for CipherSuite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(&SUITES, self.0, formatter)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(&GROUPS, self.0, formatter)
    }
}

impl Serialize for CipherSuite {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn named(names: &[(u16, &str)], number: u16, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    match names.binary_search_by_key(&number, |(number, _)| *number) {
        Ok(place) => formatter.write_str(names[place].1),
        Err(_) => write!(formatter, "{number:#06x}"),
    }
}

const SUITES: [(u16, &str); 66] = [
    (0x0004, "TLS_RSA_WITH_RC4_128_MD5"),
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0016, "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0032, "TLS_DHE_DSS_WITH_AES_128_CBC_SHA"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0034, "TLS_DH_anon_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x0038, "TLS_DHE_DSS_WITH_AES_256_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x003a, "TLS_DH_anon_WITH_AES_256_CBC_SHA"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0041, "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0084, "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA"),
    (0x008c, "TLS_PSK_WITH_AES_128_CBC_SHA"),
    (0x008d, "TLS_PSK_WITH_AES_256_CBC_SHA"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0x00a8, "TLS_PSK_WITH_AES_128_GCM_SHA256"),
    (0x00a9, "TLS_PSK_WITH_AES_256_GCM_SHA384"),
    (0x00ae, "TLS_PSK_WITH_AES_128_CBC_SHA256"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0xc007, "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
    (0xc008, "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc011, "TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
    (0xc012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc018, "TLS_ECDH_anon_WITH_AES_128_CBC_SHA"),
    (0xc019, "TLS_ECDH_anon_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xc035, "TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA"),
    (0xc036, "TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA"),
    (0xc037, "TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA256"),
    (0xc09c, "TLS_RSA_WITH_AES_128_CCM"),
    (0xc09d, "TLS_RSA_WITH_AES_256_CCM"),
    (0xc0a0, "TLS_RSA_WITH_AES_128_CCM_8"),
    (0xc0a4, "TLS_PSK_WITH_AES_128_CCM"),
    (0xc0a8, "TLS_PSK_WITH_AES_128_CCM_8"),
    (0xc0ac, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM"),
    (0xc0ad, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM"),
    (0xc0ae, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccaa, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccab, "TLS_PSK_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccac, "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256"),
];

const GROUPS: [(u16, &str); 15] = [
    (23, "secp256r1"),
    (24, "secp384r1"),
    (25, "secp521r1"),
    (29, "x25519"),
    (30, "x448"),
    (256, "ffdhe2048"),
    (257, "ffdhe3072"),
    (258, "ffdhe4096"),
    (512, "MLKEM512"),
    (513, "MLKEM768"),
    (514, "MLKEM1024"),
    (4587, "SecP256r1MLKEM768"),
    (4588, "X25519MLKEM768"),
    (4589, "SecP384r1MLKEM1024"),
    (0x6399, "X25519Kyber768Draft00"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_name_are_shown_as_such() {
        assert_eq!(CipherSuite(0x1301).to_string(), "TLS_AES_128_GCM_SHA256");
        assert_eq!(CipherSuite(0xfafa).to_string(), "0xfafa");
        assert_eq!(Group(4588).to_string(), "X25519MLKEM768");
    }

    #[test]
    fn the_tables_are_sorted() {
        assert!(SUITES.is_sorted_by_key(|(number, _)| *number));
        assert!(GROUPS.is_sorted_by_key(|(number, _)| *number));
    }
}
