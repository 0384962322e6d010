//! The memory of idle connections.

use std::thread;

use rejoin_manager::client::{Manager, Stream};
use rejoin_manager::protocol::Connect;

use super::process::{Taken, raise_descriptor_limit};
use super::{Effort, Found};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::stacks::{Stack, Tls};

const MOST_KIB: f64 = 64.0;
/// Threads that connect at the same time.
const THREADS: usize = 20;
/// Connections before the measurement, which allocate what is allocated once.
const WARM: usize = 50;

pub(crate) fn memory(effort: Effort) -> Option<Found> {
    raise_descriptor_limit();
    let connections = if effort.quick { 200 } else { 2_000 };
    let managed = Managed::start("check-idle");
    let server = Stack::Nginx.start(&managed, Tls::V13)?;
    let manager = Manager::at(managed.socket());
    let wanted = Connect::new("localhost".parse().ok()?, server.port.try_into().ok()?);
    let connect = |number: usize| -> Vec<Stream> {
        (0..number).map(|_| manager.connect(&wanted).expect("a connection")).collect()
    };
    drop(connect(WARM));
    let before = Taken::by(&managed, 0);
    let open: Vec<Stream> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| connect(connections / THREADS))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let after = Taken::by(&managed, open.len() as u64);
    let each = after.kib.saturating_sub(before.kib) as f64 / open.len() as f64;
    let figure = format!("{each:.1} ({} connections)", open.len());
    Some(Found { figure, holds: each <= MOST_KIB })
}
