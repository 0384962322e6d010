//! The promises of Rejoin about early data (0-RTT): `make check-early`.
//!
//! A recorder keeps what clients sent before they read anything, and sends it again. What counts as accepted is what
//! the server's application saw.

mod after;
mod conversations;
mod copies;
mod first_byte;
mod instructions;
mod limits;
mod machines;
mod programs;
mod replays;
mod servers;
mod ways;

use crate::frame::{self, Effort, Found, Group};
use replays::{with_rejoin, without_rejoin};
use servers::Kind;

const REPLAYS: &str =
    "copies of first flights that are accepted, in every way (none; originals ≥ 99 %)";
const AFTER: &str =
    "the same after a restart, and with the cache removed, restored, or replaced (none)";
const AT_ONCE: &str = "10,000 copies at once, before the original (one)";
const TALK: &str = "conversations about early data that end otherwise than without Rejoin (none)";
const FIRST_BYTE: &str =
    "ms to the first byte at 40 ms (a round trip less than resumed, two less than TLS 1.2 in full)";
const BEYOND: &str = "copies with more early data than allowed (one of each flight at most)";

pub(crate) const GROUP: Group = Group {
    name: "early",
    arguments: frame::ARGUMENTS,
    example: "replays",
    packages: frame::SHIPPED,
    checks: &[
        (1, "replays-nginx", REPLAYS, |effort| with_rejoin(effort, Kind::Nginx, 50_000)),
        (1, "replays-haproxy", REPLAYS, |effort| with_rejoin(effort, Kind::Haproxy, 40_000)),
        (1, "replays-newer-haproxy", REPLAYS, |effort| {
            with_rejoin(effort, Kind::NewerHaproxy, 12_000)
        }),
        (1, "replays-s_server", REPLAYS, |effort| with_rejoin(effort, Kind::SServer, 12_000)),
        (1, "after-nginx", AFTER, |effort| after::changes(effort, Kind::Nginx)),
        (1, "after-haproxy", AFTER, |effort| after::changes(effort, Kind::Haproxy)),
        (1, "after-s_server", AFTER, |effort| after::changes(effort, Kind::SServer)),
        (1, "at-once-nginx", AT_ONCE, |effort| limits::at_once(effort, Kind::Nginx)),
        (1, "at-once-haproxy", AT_ONCE, |effort| limits::at_once(effort, Kind::Haproxy)),
        (1, "beyond-nginx", BEYOND, |effort| limits::beyond(effort, Kind::Nginx)),
        (1, "beyond-haproxy", BEYOND, |effort| limits::beyond(effort, Kind::Haproxy)),
        (1, "beyond-s_server", BEYOND, |effort| limits::beyond(effort, Kind::SServer)),
        (1, "never-read", "early data that a server never reads (rejected)", limits::never_read),
        (1, "plain-nginx", "copies that nginx accepts without Rejoin (some)", |effort| {
            without_rejoin(effort, Kind::Nginx)
        }),
        (1, "plain-haproxy", "the same, HAProxy (some, or no early data passed on)", |effort| {
            without_rejoin(effort, Kind::Haproxy)
        }),
        (1, "plain-newer-haproxy", "the same, HAProxy of target/haproxy (some)", |effort| {
            without_rejoin(effort, Kind::NewerHaproxy)
        }),
        (1, "plain-s_server", "the same, openssl s_server without its own protection", |effort| {
            without_rejoin(effort, Kind::SServer)
        }),
        (
            1,
            "machines-once",
            "the same at two machines with Valkey, in turn (≥ 95 %)",
            machines::once,
        ),
        (
            1,
            "machines-once-here",
            "the same at the machine that issued (≥ 99 %)",
            machines::once_here,
        ),
        (
            1,
            "machines-elsewhere",
            "once-here, at the other machine (rejected)",
            machines::once_elsewhere,
        ),
        (2, "talk-nginx", TALK, |effort| conversations::same(effort, Kind::Nginx)),
        (2, "talk-haproxy", TALK, |effort| conversations::same(effort, Kind::Haproxy)),
        (
            2,
            "s_client",
            "openssl s_client: accepted once, and again only without Rejoin",
            programs::s_client,
        ),
        (2, "curl", "curl --tls-earlydata as with plain nginx", programs::curl),
        (2, "browser", "Chromium with early data as with plain nginx", programs::browser),
        (3, "first-byte-nginx", FIRST_BYTE, |effort| first_byte::saved(effort, Kind::Nginx)),
        (3, "first-byte-haproxy", FIRST_BYTE, |effort| first_byte::saved(effort, Kind::Haproxy)),
        (
            3,
            "instructions",
            "nginx's instructions with early data, times a resumption's (≤ 1.03), and the same without Rejoin",
            instructions::ratio,
        ),
        (
            4,
            "faults-killed",
            "Valkey killed, and back empty (none fails, none accepted)",
            machines::killed,
        ),
        (4, "faults-older", "Valkey back without its last writes", machines::older),
        (4, "faults-paused", "Valkey stands still", machines::paused),
        (4, "faults-frozen", "the agents stand still", machines::frozen),
        (4, "faults-flushed", "Valkey flushed", machines::flushed),
        (4, "faults-cut", "one machine cut off from Valkey", machines::cut),
    ],
};
