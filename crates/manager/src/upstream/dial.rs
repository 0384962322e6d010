//! From a name to a TCP connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::downstream::descriptors::PassedDescriptor;
use crate::downstream::quota::Quota;
use crate::failure::Failure;
use crate::protocol::{Connect, ErrorKind};
use crate::upstream::tcp::Tcp;

/// Names that are looked up at once, for all and for one user. A lookup cannot be broken off, and
/// takes a thread for as long as a name server is silent.
const LOOKUPS: usize = 256;
const LOOKUPS_PER_USER: usize = 32;
/// The least time for one address of several.
const LEAST_TRY: Duration = Duration::from_millis(250);

/// Who may look a name up now.
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
        // The turn is over when the lookup is, whether or not somebody still waits for it.
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
            // The manager ends.
            Err(_) => Err(busy()),
        }
    }
}

/// Connects to where a program wants to, or takes over the socket that it brought.
pub(crate) async fn dial(
    (lookups, uid): (&Lookups, u32),
    connect: &Connect,
    socket: Option<PassedDescriptor>,
    deadline: Instant,
) -> Result<Tcp, Failure> {
    let stream = match (connect.socket, socket) {
        (true, Some(socket)) => return taken_over(socket),
        (true, None) => return Err(bad("socket: none came with the first byte")),
        (false, Some(_)) => return Err(bad("a socket came, and the request does not say so")),
        (false, None) => {
            let addresses = addresses((lookups, uid), connect, deadline).await?;
            first_of(&addresses, deadline).await?
        }
    };
    Ok(prompt(stream))
}

/// Handshake messages wait for nobody; without it the connection works just as well.
fn prompt(stream: Tcp) -> Tcp {
    let _ = stream.set_nodelay(true);
    stream
}

fn bad(detail: &str) -> Failure {
    Failure::new(ErrorKind::BadRequest, detail)
}

/// A connected TCP socket that a program brought.
pub(crate) fn taken_over(socket: PassedDescriptor) -> Result<Tcp, Failure> {
    let taken = Tcp::take_over(socket).map_err(|error| Failure::of_io(&error))?;
    taken.map(prompt).ok_or_else(|| bad("socket: no connected TCP socket"))
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

/// Tries the addresses in their order, each for its part of the time that is left.
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
    // Whoever resets a connection before there is one refuses it.
    let kind = if kind == ErrorKind::TlsFailed { ErrorKind::Refused } else { kind };
    let tried: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Err(Failure::new(kind, format!("{}: {detail}", tried.join(", "))))
}
