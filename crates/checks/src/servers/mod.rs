//! The promises of Rejoin inside servers: `make check-servers`.
//!
//! sslyze comes from PyPI into the target folder, everything else from Debian's packages. Which servers share sessions,
//! and through what, is tested in `crates/capi/tests`.

mod fleet;
mod instructions;
mod judges;
mod kills;
mod operation;
mod processes;

use crate::frame::{self, Check, Effort, Found, Group};
use rejoin_report::median;
use rejoin_testkit::site::Site;

pub(crate) const GROUP: Group = Group {
    name: "servers",
    arguments: "CHECKS='[--quick] [--only PART_OF_A_NAME] [--soak-s SECONDS]'",
    example: "fleet",
    packages: frame::SHIPPED,
    checks: CHECKS,
};

pub(crate) const COST_INSTRUCTIONS: Check =
    (3, "cost-instructions", "a connection's instructions, times (≤ 1.02)", instructions::ratio);
pub(crate) const COST_PROCESSES: Check =
    (3, "cost-processes", "two processes, times one (≥ 1.5)", processes::gain);

const CHECKS: &[Check] = &[
    (2, "fleet-nginx-1.2", "resumed, times nginx's own cache (≥ 2.5)", fleet::nginx_tls12),
    (2, "fleet-nginx-1.3", "the same, TLS 1.3, tickets off (≥ 2.5)", fleet::nginx_tls13),
    (2, "fleet-haproxy-1.2", "resumed, times HAProxy's own cache (≥ 2.5)", fleet::haproxy_tls12),
    (2, "fleet-haproxy-1.3", "the same, TLS 1.3, tickets off (≥ 2.5)", fleet::haproxy_tls13),
    COST_INSTRUCTIONS,
    (3, "cost-operation", "µs to get and insert with serialisation (≤ 6)", operation::microseconds),
    COST_PROCESSES,
    (4, "kill", "a worker killed every second (nothing else lost)", kills::survived),
    (5, "judges-sslyze", "verdicts of sslyze (none worse)", judges::sslyze),
    (5, "judges-testssl-off", "verdicts of testssl.sh, tickets off", judges::testssl_off),
    (5, "judges-testssl-on", "verdicts of testssl.sh, tickets on", judges::testssl_on),
];

/// Leaves a server only the system's own configuration.
fn without_rejoin(site: &Site) {
    let text = ".include /etc/ssl/openssl.cnf\n";
    std::fs::write(site.file("openssl.cnf"), text).expect("a file");
}
