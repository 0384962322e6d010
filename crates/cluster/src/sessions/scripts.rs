//! The scripts that run inside Valkey: one file for each operation.

use redis::Script;

pub(super) struct Scripts {
    pub(super) put: Script,
    pub(super) take: Script,
    pub(super) expect: Script,
    pub(super) remove: Script,
    pub(super) discard: Script,
    pub(super) evict: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            put: Script::new(include_str!("../scripts/put.lua")),
            take: Script::new(&with_master(include_str!("../scripts/take.lua"))),
            expect: Script::new(include_str!("../scripts/expect.lua")),
            remove: Script::new(include_str!("../scripts/remove.lua")),
            discard: Script::new(include_str!("../scripts/discard.lua")),
            evict: Script::new(&with_master(include_str!("../scripts/evict.lua"))),
        }
    }
}

/// A script that tells which process of Valkey runs it.
fn with_master(script: &str) -> String {
    [include_str!("../scripts/master.lua"), script].concat()
}
