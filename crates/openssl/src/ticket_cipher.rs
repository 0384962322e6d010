//! The cipher and the MAC with which OpenSSL encrypts or decrypts a ticket.

use libc::c_int;
use openssl_sys::{EVP_CIPHER_CTX, EVP_MAC_CTX};
use rejoin_tickets::{ContextKey, NAME_BYTES};
use zeroize::Zeroizing;

use crate::ffi;

/// The length of an IV of AES-256-CBC: `EVP_MAX_IV_LENGTH` of `evp.h`.
pub(crate) const IV_BYTES: usize = 16;

/// The variables of OpenSSL that take a ticket's IV and keys: valid, and its own.
pub(crate) struct TicketCipher<'t> {
    pub(crate) iv: &'t mut [u8; IV_BYTES],
    pub(crate) cipher: *mut EVP_CIPHER_CTX,
    pub(crate) mac: *mut EVP_MAC_CTX,
}

impl TicketCipher<'_> {
    /// Prepares a ticket to be encrypted under this key. Returns false if OpenSSL fails.
    pub(crate) fn seal(&mut self, key: &ContextKey, name: &mut [u8; NAME_BYTES]) -> bool {
        *name = *key.name();
        openssl::rand::rand_bytes(self.iv).is_ok()
            && self.set_keys(key.cipher_key(), key.mac_key(), true)
    }

    /// Prepares a ticket to be decrypted under this key. Returns false if OpenSSL fails.
    pub(crate) fn open(&self, key: &ContextKey) -> bool {
        self.set_keys(key.cipher_key(), key.mac_key(), false)
    }

    /// Prepares a ticket to be encrypted under keys that are thrown away. Some releases of OpenSSL 3 send a TLS 1.3
    /// client a malformed message when they are told to issue no ticket.
    pub(crate) fn seal_for_nobody(&mut self, name: &mut [u8; NAME_BYTES]) -> bool {
        let mut throwaway = Zeroizing::new([[0; 32]; 2]);
        let random = openssl::rand::rand_bytes(self.iv)
            .and_then(|()| openssl::rand::rand_bytes(name))
            .and_then(|()| openssl::rand::rand_bytes(throwaway.as_flattened_mut()));
        random.is_ok() && self.set_keys(&throwaway[0], &throwaway[1], true)
    }

    /// Sets the keys of AES-256-CBC and HMAC-SHA-256.
    fn set_keys(&self, cipher_key: &[u8; 32], mac_key: &[u8; 32], encrypt: bool) -> bool {
        // SAFETY: a constant of OpenSSL's.
        let aes = unsafe { openssl_sys::EVP_aes_256_cbc() };
        let (engine, key, iv) = (std::ptr::null_mut(), cipher_key.as_ptr(), self.iv.as_ptr());
        let direction = c_int::from(encrypt);
        // SAFETY: the cipher wants a key of 32 bytes and an IV of 16.
        let set =
            unsafe { openssl_sys::EVP_CipherInit_ex(self.cipher, aes, engine, key, iv, direction) };
        // SAFETY: both are texts that live as long as the program, and nothing writes to them.
        let digest = unsafe {
            ffi::OSSL_PARAM_construct_utf8_string(
                c"digest".as_ptr(),
                c"SHA256".as_ptr().cast_mut(),
                0,
            )
        };
        // SAFETY: it only makes a value.
        let parameters = [digest, unsafe { openssl_sys::OSSL_PARAM_construct_end() }];
        let (key, length) = (mac_key.as_ptr(), mac_key.len());
        set == 1
            // SAFETY: the key has that length, and the parameters end as they must.
            && unsafe { openssl_sys::EVP_MAC_init(self.mac, key, length, parameters.as_ptr()) } == 1
    }
}
