//! Functions of a TLS library that the program has loaded, looked up by name. A call by name would lead back to the
//! function that interposes it.

pub use rejoin_abi::gate::get_or_make;

/// Makes a structure of functions. Its `get` looks all of them up once in a library that is loaded already, and returns
/// `None` if the library is not loaded or lacks one. The caller must give each the type that the library's header
/// declares.
#[macro_export]
macro_rules! functions_of {
    (
        $library:literal
        $(#[$about:meta])*
        $seen:vis struct $own:ident { $($name:ident: $type:ty;)* }
    ) => {
        $(#[$about])*
        $seen struct $own {
            $($seen $name: $type,)*
        }

        impl $own {
            /// Returns the functions of the loaded library.
            $seen fn get() -> Option<&'static Self> {
                static FOUND: std::sync::OnceLock<Option<$own>> = std::sync::OnceLock::new();
                $crate::functions::get_or_make(&FOUND, Self::find).as_ref()
            }

            fn find() -> Option<Self> {
                let library = $crate::functions::loaded($library)?;
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the library is open, and the name ends with a zero byte.
                        let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if found.is_null() {
                            return None;
                        }
                        // SAFETY: the caller of the macro gave the type that the library's header declares.
                        unsafe { std::mem::transmute::<*mut libc::c_void, $type>(found) }
                    },)*
                })
            }
        }
    };
}

/// Returns the library if it is loaded. It stays loaded from then on.
pub fn loaded(name: &std::ffi::CStr) -> Option<*mut libc::c_void> {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: the name ends with a zero byte; RTLD_NOLOAD loads nothing, so that no initialiser runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}
