//! Trampolines: functions that look up the destination of a call, and jump there with all arguments in place. They keep
//! arguments of every type but floating-point numbers.

/// Makes a trampoline that is exported under the name of a TLS library's function.
macro_rules! trampoline {
    ($name:ident, $number:expr) => {
        /// # Safety
        /// The same as for the function of the TLS library.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "mov rdx, rdi",
                "mov rcx, rsi",
                "mov rsi, [rsp + 56]",
                "mov edi, {number}",
                "call {destination}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                number = const $number,
                destination = sym $crate::destination,
            )
        }

        /// # Safety
        /// The same as for the function of the TLS library.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-96]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "str x8, [sp, #80]",
                "mov x2, x0",
                "mov x3, x1",
                "mov x1, x30",
                "mov x0, #{number}",
                "bl {destination}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldr x8, [sp, #80]",
                "ldp x29, x30, [sp], #96",
                "br x16",
                number = const $number,
                destination = sym $crate::destination,
            )
        }
    };
}

pub(crate) use trampoline;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "say how this processor passes arguments, and where it keeps the address to return to"
);
