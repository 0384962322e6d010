//! How `librejoin.so` is linked.

use std::path::Path;
use std::{env, fs};

/// All symbols that are exported, with the version of the C API: programs that were linked with it name it.
const VERSIONS: &str = "REJOIN_0 { global: OPENSSL_init; OPENSSL_finish; rejoin_*; local: *; };\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // OpenSSL unloads its modules before the last contexts are freed, and those call back into this one.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librejoin.so.0");
    // rustc gives the linker a list of exports. Zig's takes this one instead; GNU's takes no second one.
    println!("cargo:rerun-if-env-changed=REJOIN_ZIG");
    if env::var_os("REJOIN_ZIG").is_some() {
        let file = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("versions.map");
        fs::write(&file, VERSIONS).expect("cargo's folder can be written");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", file.display());
    }
}
