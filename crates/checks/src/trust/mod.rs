//! The promises of docs/audit.md that take too long for `make test`: `make check-trust`.
//!
//! Calls what exists elsewhere: tests of the libraries, `make fuzz`, two checks of `servers`.

mod fuzzing;
mod soak;

use crate::frame::{self, Check, Effort, Found, Group};
use crate::servers::{COST_INSTRUCTIONS, COST_PROCESSES};

pub(crate) const GROUP: Group = Group {
    name: "trust",
    arguments: "CHECKS='[--quick] [--only PART_OF_A_NAME] [--soak-s SECONDS]'",
    example: "soak",
    packages: frame::SHIPPED,
    checks: CHECKS,
};

const CHECKS: &[Check] = &[
    (1, "release", "paths of the machine in its files, made by make release (none)", |_| {
        tested("a_release_names_no_folder")
    }),
    (1, "freeradius", "its peers get in, as without (passes)", |_| tested("freeradius")),
    (2, "compat", "docs/compat.md is what servers do (passes)", |_| tested("compat")),
    (3, "client-certificates", "docs/client-certificates.md is what happens (passes)", |_| {
        tested("client_certificates")
    }),
    (
        4,
        "soak",
        "kills, reloads, resizes, upgrades: failed (0), and s to resumption (≤ 1)",
        soak::survived,
    ),
    (5, "fuzz", "a minute of each fuzz target (clean)", fuzzing::clean),
    of_line_6(COST_INSTRUCTIONS),
    of_line_6(COST_PROCESSES),
];

const fn of_line_6((_, name, promise, check): Check) -> Check {
    (6, name, promise, check)
}

/// Runs the tests of `librejoin.so` whose names contain this.
fn tested(name: &str) -> Option<Found> {
    let (figure, holds) = frame::test("rejoin-capi", name)?;
    Some(Found { figure, holds })
}
