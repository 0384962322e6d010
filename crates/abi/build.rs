//! Links the compiler's `libgcc_eh.a` into the libraries, where there is one.
//!
//! Rust's standard library takes the unwinder from `libgcc_s.so.1`, which a program of C has no use for. The loader
//! would bring it into every program that loads a library of ours, and search it for each name of every other library,
//! which takes longer than all else (docs/benchmarks.md). GCC has the same unwinder as an archive; nothing of it is
//! exported. Its licence, GPL-3.0 with the GCC Runtime Library Exception, lets compiled code be linked with it under
//! any terms.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    if is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && let Some(folder) = folder()
    {
        println!("cargo:rustc-link-search=native={}", folder.display());
        // The whole archive: the code that needs it comes later on the linker's command line.
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}

/// Returns the folder of the linking compiler's archives. `None`: the compiler is not GCC, or cargo does not name the
/// compiler of another machine; the libraries then need `libgcc_s.so.1`.
fn folder() -> Option<PathBuf> {
    let own = || (env::var_os("HOST") == env::var_os("TARGET")).then(|| "cc".into());
    let linker = env::var_os("RUSTC_LINKER").or_else(own)?;
    let answer = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let file = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    // A compiler without the file repeats the bare name.
    (answer.status.success() && file.is_absolute() && file.is_file())
        .then(|| file.parent().map(Into::into))?
}
