//! The promises of Rejoin to servers that do not load it: `make check-reach`.

mod ground;
mod kinds;
mod play;
mod predictive;
mod table;
mod visits;

use crate::frame::{self, Effort, Found, Group};
use play::{rotations, second};

const SECOND: &str = "second connections at the other machine that resume (≥ 99 %)";
const ROTATIONS: &str =
    "1,000 rotations under load (none fails, none is lost but to the server's limit)";

pub(crate) const GROUP: Group = Group {
    name: "reach",
    arguments: frame::ARGUMENTS,
    example: "second",
    packages: &["rejoin-cli"],
    checks: &[
        (1, "second-envoy-file", SECOND, |effort| second(effort, "envoy-file")),
        (1, "second-envoy-sds", SECOND, |effort| second(effort, "envoy-sds")),
        (1, "second-nginx", SECOND, |effort| second(effort, "nginx")),
        (1, "second-haproxy", SECOND, |effort| second(effort, "haproxy")),
        (1, "second-apache", SECOND, |effort| second(effort, "apache")),
        (1, "second-go", SECOND, |effort| second(effort, "go")),
        (1, "second-caddy", SECOND, |effort| second(effort, "caddy")),
        (1, "second-node", SECOND, |effort| second(effort, "node")),
        (2, "table", "docs/keys.md says who opens whose tickets", table::who_opens_whose),
        (
            3,
            "predictive-1.2",
            "points that Go with sessions is from rejoin serve (≤ 3)",
            predictive::tls12,
        ),
        (3, "predictive-1.3", "the same, TLS 1.3", predictive::tls13),
        (
            3,
            "cost",
            "a resumption from the cache behind Go, 1.3 (≤ 1.5 of Go's tickets)",
            predictive::cost,
        ),
        (1, "rotations-envoy-file", ROTATIONS, |effort| rotations(effort, "envoy-file")),
        (1, "rotations-envoy-sds", ROTATIONS, |effort| rotations(effort, "envoy-sds")),
        (1, "rotations-nginx", ROTATIONS, |effort| rotations(effort, "nginx")),
        (1, "rotations-haproxy", ROTATIONS, |effort| rotations(effort, "haproxy")),
        (1, "rotations-apache", ROTATIONS, |effort| rotations(effort, "apache")),
        (1, "rotations-go", ROTATIONS, |effort| rotations(effort, "go")),
        (1, "rotations-caddy", ROTATIONS, |effort| rotations(effort, "caddy")),
        (1, "rotations-node", ROTATIONS, |effort| rotations(effort, "node")),
    ],
};
