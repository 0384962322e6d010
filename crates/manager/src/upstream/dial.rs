//! Name resolution and TCP connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::downstream::descriptors::PassedDescriptor;
use crate::downstream::quota::Quota;
use crate::failure::Failure;
use crate::protocol::{Connect, ErrorKind};
use crate::upstream::tcp::Tcp;

/// The concurrent name lookups, of all users and of one user. A lookup cannot be cancelled, and
/// occupies a thread while a name server is silent.
const LOOKUPS: usize = 256;
const LOOKUPS_PER_USER: usize = 32;
/// The least time for connecting to one of several addresses.
const LEAST_TRY: Duration = Duration::from_millis(250);

/// The quota of concurrent name lookups.
#[derive(Debug)]
pub(crate) struct Lookups {
    turns: Quota,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { turns: Quota::new(LOOKUPS, LOOKUPS_PER_USER) }
    }
}

impl Lookups {
    /// Waits for its turn, and looks up a name.
    async fn look_up(
        &self,
        uid: u32,
        (host, port): (String, u16),
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let busy = || Failure::new(ErrorKind::Busy, "too many names are being looked up");
        let late = || Failure::new(ErrorKind::Timeout, format!("resolving {host} took too long"));
        let turn = timeout_at(deadline, self.turns.wait(uid)).await.ok().flatten();
        let turn = turn.ok_or_else(busy)?;
        let name = host.clone();
        // The permit is held until the lookup ends, even if the caller no longer waits for it.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((name, port)).await;
            drop(turn);
            found.map(Iterator::collect::<Vec<_>>)
        });
        match timeout_at(deadline, lookup).await.map_err(|_| late())? {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) if Failure::is_want(&error) => Err(Failure::of_io(&error)),
            Ok(Err(error)) => {
                Err(Failure::new(ErrorKind::NameNotFound, format!("{host}: {error}")))
            }
            // The runtime is shutting down.
            Err(_) => Err(busy()),
        }
    }
}

/// Connects to the server that a program asked for, or takes over the socket that it passed.
pub(crate) async fn dial(
    (lookups, uid): (&Lookups, u32),
    connect: &Connect,
    socket: Option<PassedDescriptor>,
    deadline: Instant,
) -> Result<Tcp, Failure> {
    let stream = match (connect.socket, socket) {
        (true, Some(socket)) => return taken_over(socket),
        (true, None) => return Err(bad("socket: none was passed with the request's first byte")),
        (false, Some(_)) => {
            return Err(bad("socket: one was passed, but the request does not say so"));
        }
        (false, None) => {
            let addresses = addresses((lookups, uid), connect, deadline).await?;
            first_of(&addresses, deadline).await?
        }
    };
    Ok(prompt(stream))
}

/// Sets TCP_NODELAY, so that handshake messages are sent at once. A failure is harmless.
fn prompt(stream: Tcp) -> Tcp {
    let _ = stream.set_nodelay(true);
    stream
}

fn bad(detail: &str) -> Failure {
    Failure::new(ErrorKind::BadRequest, detail)
}

/// Takes over a connected TCP socket that a program passed.
pub(crate) fn taken_over(socket: PassedDescriptor) -> Result<Tcp, Failure> {
    let taken = Tcp::take_over(socket).map_err(|error| Failure::of_io(&error))?;
    taken
        .map(prompt)
        .ok_or_else(|| bad("socket: the passed descriptor is not a connected TCP socket"))
}

async fn addresses(
    (lookups, uid): (&Lookups, u32),
    connect: &Connect,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, Failure> {
    let (host, port) = (connect.host.as_str(), connect.port.get());
    let with_port = |address: &IpAddr| SocketAddr::new(*address, port);
    if !connect.addresses.is_empty() {
        return Ok(connect.addresses.iter().map(with_port).collect());
    }
    if let Ok(address) = host.parse() {
        return Ok(vec![with_port(&address)]);
    }
    let found = lookups.look_up(uid, (host.to_owned(), port), deadline).await?;
    if found.is_empty() {
        return Err(Failure::new(ErrorKind::NameNotFound, format!("{host} has no address")));
    }
    Ok(found)
}

/// Connects to the first address that answers, trying each in order for its share of the remaining time.
async fn first_of(addresses: &[SocketAddr], deadline: Instant) -> Result<Tcp, Failure> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let part = (left / (addresses.len() - at) as u32).max(LEAST_TRY).min(left);
        match timeout(part, Tcp::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    let Failure { kind, detail, .. } = Failure::of_io(&last);
    // A reset before the connection is established is a refusal.
    let kind = if kind == ErrorKind::TlsFailed { ErrorKind::Refused } else { kind };
    let tried: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Err(Failure::new(kind, format!("{}: {detail}", tried.join(", "))))
}
