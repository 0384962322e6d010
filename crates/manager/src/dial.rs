//! From a name to a TCP connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::closing::Brought;
use crate::failure::Failure;
use crate::protocol::{Connect, ErrorKind};
use crate::tcp::Tcp;

/// The least time for one address of several.
const LEAST_TRY: Duration = Duration::from_millis(250);

/// Connects to where a program wants to, or takes over the socket that it brought.
pub(crate) async fn dial(
    connect: &Connect,
    socket: Option<Brought>,
    deadline: Instant,
) -> Result<Tcp, Failure> {
    let stream = match (connect.socket, socket) {
        (true, Some(socket)) => taken_over(socket)?,
        (true, None) => return Err(bad("socket: none came with the first byte")),
        (false, Some(_)) => return Err(bad("a socket came, and the request does not say so")),
        (false, None) => {
            let addresses = addresses(connect, deadline).await?;
            first_of(&addresses, deadline).await?.into()
        }
    };
    // Handshake messages wait for nobody; without it the connection works just as well.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn bad(detail: &str) -> Failure {
    Failure::new(ErrorKind::BadRequest, detail)
}

fn taken_over(socket: Brought) -> Result<Tcp, Failure> {
    let taken = Tcp::take_over(socket).map_err(|error| Failure::of_io(&error))?;
    taken.ok_or_else(|| bad("socket: no connected TCP socket"))
}

async fn addresses(connect: &Connect, deadline: Instant) -> Result<Vec<SocketAddr>, Failure> {
    let (host, port) = (connect.host.as_str(), connect.port.get());
    let with_port = |address: &IpAddr| SocketAddr::new(*address, port);
    if !connect.addresses.is_empty() {
        return Ok(connect.addresses.iter().map(with_port).collect());
    }
    if let Ok(address) = host.parse() {
        return Ok(vec![with_port(&address)]);
    }
    let not_found = |detail: String| Failure::new(ErrorKind::NameNotFound, detail);
    match timeout_at(deadline, tokio::net::lookup_host((host, port))).await {
        Err(_) => Err(Failure::new(ErrorKind::Timeout, format!("resolving {host} took too long"))),
        Ok(Err(error)) => Err(not_found(format!("{host}: {error}"))),
        Ok(Ok(found)) => {
            let found: Vec<_> = found.collect();
            let some = !found.is_empty();
            some.then_some(found).ok_or_else(|| not_found(format!("{host} has no address")))
        }
    }
}

/// Tries the addresses in their order, each for its part of the time that is left.
async fn first_of(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Failure> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let part = (left / (addresses.len() - at) as u32).max(LEAST_TRY).min(left);
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    let Failure { kind, detail } = Failure::of_io(&last);
    // Whoever resets a connection before there is one refuses it.
    let kind = if kind == ErrorKind::TlsFailed { ErrorKind::Refused } else { kind };
    let tried: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Err(Failure::new(kind, format!("{}: {detail}", tried.join(", "))))
}
