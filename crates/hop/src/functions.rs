//! Functions of a TLS library that the program has loaded, found by their names: what is called by its name may
//! lead back to who interposes it.

/// Makes a structure of functions, with `get`, which finds all of them once in a library that is loaded
/// already, and is `None` where there is no such library, or it lacks one. The types are what the library's
/// header says, and that is for the caller to vouch for.
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
            /// Those of the library that is loaded.
            $seen fn get() -> Option<&'static Self> {
                static FOUND: std::sync::OnceLock<Option<$own>> = std::sync::OnceLock::new();
                FOUND.get_or_init(Self::find).as_ref()
            }

            fn find() -> Option<Self> {
                let library = $crate::functions::loaded($library)?;
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the library is open, and the name ends.
                        let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if found.is_null() {
                            return None;
                        }
                        // SAFETY: what the library has by this name, of the type that its header says.
                        unsafe { std::mem::transmute::<*mut libc::c_void, $type>(found) }
                    },)*
                })
            }
        }
    };
}

/// A library that is loaded; it is not unloaded any more.
pub fn loaded(name: &std::ffi::CStr) -> Option<*mut libc::c_void> {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: nothing is loaded, so that no code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}
