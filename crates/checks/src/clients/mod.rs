//! The promises of Rejoin to programs that are not changed: `make check-clients`.

mod costs;
mod faults;
mod java;
mod kills;
mod many;
mod scripts;

use crate::frame::{self, Check, Effort, Found, Group};

pub(crate) const GROUP: Group = Group {
    name: "clients",
    arguments: "CHECKS='[--quick] [--only PART_OF_A_NAME] [--programs PARTS_OF_NAMES]'",
    example: "faults --programs curl,wget",
    packages: frame::SHIPPED,
    checks: CHECKS,
};

const CHECKS: &[Check] = &[
    (1, "scripts", "with Rejoin and without: output, exit code (all alike)", scripts::all),
    (1, "faults", "programs × servers × faults (none worse than the document says)", faults::all),
    (2, "sharing", "programs on each service (one full handshake)", scripts::sharing),
    (3, "security", "tests of what nobody may gain (all pass)", scripts::security),
    (3, "trouble", "tests of what may go wrong (all pass)", scripts::trouble),
    (
        3,
        "kills",
        "manager killed, stopped, restarted: success with other bytes (0)",
        kills::survived,
    ),
    (4, "round-trip-1.2", "of 40 ms, saved by curl (≥ 1; of its time ≥ 0.95)", costs::round_trip),
    (4, "sequential-1.2", "thirty curls, RSA-2048, times those without (≤ 1.15)", costs::curls_1_2),
    (4, "sequential-1.3", "the same", costs::curls_1_3),
    (4, "sequential-p256", "the same, P-256", costs::curls_p256),
    (4, "server-cpu-1.2", "a hundred curls, RSA-2048, times those without (≤ 0.6)", costs::cpu_1_2),
    (4, "server-cpu-1.3", "the same", costs::cpu_1_3),
    (4, "no-tls", "instructions of a program without TLS, more (≤ 1 %)", costs::without_tls),
    (4, "at-once", "of asyncio: CPU, times that without (≤ 1.25), failures", many::at_once),
    (5, "java", "curl's and Java's sessions, each other's (all resumed)", java::shares),
];
