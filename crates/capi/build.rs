//! Links the library so that it stays loaded until the process ends. OpenSSL unloads its modules before the last
//! contexts are freed, and those call back into this one.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
