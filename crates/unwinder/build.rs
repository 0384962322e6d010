//! Names the compiler's `libgcc_eh.a` to the linker, where there is one.

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
        // All of it, for those who need it come later on the linker's command line.
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}

/// Where the compiler that links has its parts. Who has none of GCC's takes `libgcc_s.so.1`, and so does who links for
/// another machine by a compiler that cargo does not name.
fn folder() -> Option<PathBuf> {
    let own = || (env::var_os("HOST") == env::var_os("TARGET")).then(|| "cc".into());
    let linker = env::var_os("RUSTC_LINKER").or_else(own)?;
    let said = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let file = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    // Otherwise it says the name as it was asked.
    (said.status.success() && file.is_absolute() && file.is_file())
        .then(|| file.parent().map(Into::into))?
}
