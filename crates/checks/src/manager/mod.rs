//! The promises of the manager: `make check-manager`.

mod costs;
mod idle;
mod life;
mod measured;
mod process;
mod rules;
mod sharing;
mod soak;
mod unseen;

use crate::frame::{self, Effort, Found, Group};
use rejoin_testkit::stacks::Stack;
use sharing::twenty;

pub(crate) const GROUP: Group = Group {
    name: "manager",
    arguments: frame::ARGUMENTS,
    example: "programs",
    packages: frame::SHIPPED,
    checks: &[
        (1, "programs-nginx", "twenty programs (1 full, 19 resumed)", |_| twenty(Stack::Nginx)),
        (1, "programs-openssl", "the same", |_| twenty(Stack::OpenSsl)),
        (1, "programs-rustls", "the same", |_| twenty(Stack::Rustls)),
        (1, "programs-java", "the same", |_| twenty(Stack::Java)),
        (1, "table-i", "full handshakes, % (≥ 75, then one a service)", sharing::table_i),
        (2, "rules", "tests of the sixteen rules (all pass)", rules::all),
        (2, "rule-1", "tickets sent twice, 200 at once and a kill (none)", rules::once),
        (3, "first-byte-1.3", "times own resumed (≤ 1.25), RSA in full (< 0.7)", costs::tls13),
        (3, "first-byte-1.2", "the same", costs::tls12),
        (3, "round-trip-1.2", "of 40 ms, saved by resuming (one)", costs::resumed),
        (3, "round-trip-1.3", "of 40 ms, saved by 0-RTT (one)", costs::early),
        (3, "relay", "throughput, times the program's own (≥ 0.6)", costs::relay),
        (3, "idle", "KiB for each idle connection (≤ 64)", idle::memory),
        (4, "secrets-programs", "found in programs' memory (none)", unseen::programs),
        (4, "secrets-manager", "its memory, to its own user (hidden, no core)", unseen::manager),
        (5, "life", "tests of its end, 200 downloads, and its successor (all pass)", life::ends),
        (5, "limits", "tests of users at their limits (all pass)", life::limits),
        (5, "sandboxes", "tests of sandboxed programs (all pass)", life::sandboxes),
        (5, "soak", "connections, failed (none), growth (none)", soak::steady),
    ],
};
