//! OpenSSL unloads its modules before the last contexts are freed, which call back into this one: it
//! stays until the process ends.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
