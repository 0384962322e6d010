//! Programs with a TLS library of their own that pass their socket: the manager is the program's server, and the
//! client of the origin server.
//!
//! If the manager cannot serve such a program, the program connects without it. Before the program's ClientHello has
//! arrived, the manager refuses, and the program's socket is unused. After that, if the program passed a spare socket,
//! the manager connects it to the server and passes bytes between the two: the program's ClientHello offers
//! everything that the server needs, and a PSK that the server does not know.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown, ipproto, recv, sockopt};
use tokio::io::Interest;
use tokio::net::TcpSocket;
use tokio::time::{Instant, timeout, timeout_at};

use crate::downstream::connection::{
    FAILED, ProgramConnection, counted, gone, refuse, service, stopping,
};
use crate::downstream::descriptors::{PassedDescriptor, ProgramSocket};
use crate::downstream::input::{is_gone, received};
use crate::downstream::messages;
use crate::downstream::stream::Downstream;
use crate::failure::Failure;
use crate::hop::line::Line;
use crate::hop::passing;
use crate::hop::tls::Hop;
use crate::protocol::{self, Answer, Directly, ErrorKind, Request};
use crate::relay::Relay;
use crate::upstream::dial::taken_over;
use crate::upstream::handshake::{OriginHandshake, Unverified};
use crate::upstream::tcp::Tcp;

/// The longest pause that a program may make in its handshake, and before its verdict on the server. Servers, too, leave
/// programs a minute or more, and a program may be stopped, or ask its user.
const PAUSE: Duration = Duration::from_secs(600);

/// The time for which a program may hold a connection after the server's side has ended.
pub(super) const LINGER: Duration = Duration::from_secs(120);
/// The deadline for connecting to a server a second time.
const CALL: Duration = Duration::from_secs(60);
/// The time in which a message that a program has sent must arrive.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The sockets that a program passes for a hop.
struct Sockets {
    socket: ProgramSocket,
    /// The connection to the server. Not used before the program's ClientHello arrives, because until then the program
    /// may connect without the manager.
    tcp: PassedDescriptor,
    spare: Option<PassedDescriptor>,
}

/// Serves a hop until it ends.
pub(crate) async fn serve_hop(
    downstream: ProgramConnection,
    hop: Box<protocol::Hop>,
    sockets: Vec<PassedDescriptor>,
) {
    let ProgramConnection { state, program, stream, phase } = downstream;
    let Ok(stream) = stream.move_here() else { return };
    let mut is_stopped = phase.clone();
    let downstream = ProgramConnection { state, program, stream, phase };
    tokio::select! {
        () = serve(&downstream, hop, sockets) => {}
        () = stopping(&mut is_stopped) => {}
    }
}

async fn serve(
    downstream: &ProgramConnection,
    hop: Box<protocol::Hop>,
    sockets: Vec<PassedDescriptor>,
) {
    let wish = hop.wish();
    let (state, program) = (&downstream.state, &downstream.program);
    let refused = async |failure| {
        downstream.goes_directly(Directly::ManagerRefused);
        refuse(&downstream.stream, failure).await;
    };
    let Sockets { mut socket, tcp, spare } = match Sockets::of(sockets) {
        Ok(sockets) => sockets,
        Err(failure) => return refused(failure).await,
    };
    let offered = (&wish, Some(&hop.offers));
    let needs_session = spare.is_none();
    let origin = match OriginHandshake::of(state, program, offered, needs_session, hop.staple) {
        Ok(origin) => origin,
        // The sockets are closed after the answer, which the program looks for when they are.
        Err(failure) => return refused(failure).await,
    };
    let is_told = messages::write(&downstream.stream, Answer::Ready {}).await.is_ok();
    if !is_told || !matches!(timeout(PAUSE, speaks(&socket)).await, Ok(Ok(true))) {
        return;
    }
    // From here on the program reads the manager's end as that of a broken connection.
    socket.set_resets(true);
    let service = service(&wish);
    let made = match taken_over(tcp) {
        Ok(tcp) => {
            let peer = tcp.peer_addr().ok();
            let run = Box::pin(origin.run(tcp));
            let made = tokio::select! {
                made = run => made,
                () = gone(&socket) => return,
            };
            made.map(|made| (made, peer)).map_err(|failure| (failure, peer))
        }
        Err(failure) => Err((failure, None)),
    };
    let (made, peer) = match made {
        Ok(made) => made,
        Err((_, peer)) => {
            downstream.record(&service, &FAILED);
            // A socket that is connected to nobody says nothing about the server.
            let Some(peer) = peer else { return };
            origin.failed();
            // Without a spare socket this connection is lost; the next one goes directly.
            let Some(spare) = spare else { return };
            downstream.goes_directly(Directly::ManagerFailed);
            // The outcome concerns only the program and the server.
            let _ = pass_on(socket, spare, peer).await;
            return;
        }
    };
    downstream.record(&service, &counted(&made.connected));
    let description = Answer::Connected(made.connected.clone().into());
    // Sent before the program's handshake is complete, because the program may ask then.
    if messages::write(&downstream.stream, description).await.is_err() {
        // The program gave up waiting just as the connection was taken over, and expects the server's answer.
        if let (Some(spare), Some(peer), false) = (spare, peer, is_gone(&socket)) {
            drop(made);
            let _ = pass_on(socket, spare, peer).await;
        }
        return;
    }
    let introduced = Box::pin(introduce(downstream, &hop, socket, &made)).await;
    // Dropped here, so that the program does not wait for the close.
    drop((hop, spare));
    let Some((near, is_verified)) = introduced else {
        return origin.refused(&made.upstream, &made.resumes);
    };
    relay(downstream, &origin, (near, is_verified), made).await;
}

/// Performs the handshake with the program, which knows the server's description. No plaintext moves before the program
/// goes on. Returns the hop, and true if the program has verified the server.
async fn introduce(
    downstream: &ProgramConnection,
    hop: &protocol::Hop,
    socket: ProgramSocket,
    made: &Unverified,
) -> Option<(Hop, bool)> {
    let state = &downstream.state;
    let alpn = made.upstream.tls.alpn_protocol();
    let until = Instant::now() + PAUSE;
    let near = state.hops.accept(socket, hop, alpn, until).await.ok()?;
    timeout_at(until, downstream.stream.readable()).await.ok()?.ok()?;
    let is_verified = says(downstream).await?;
    Some((near, is_verified))
}

/// Reads the program's verdict on the server: true if it has verified the server, false if it only goes on.
async fn says(downstream: &ProgramConnection) -> Option<bool> {
    let said = messages::read_request(
        &downstream.stream,
        (&downstream.state.rooms, downstream.program.uid),
    )
    .await;
    match said {
        Some(Ok((Request::Verified {}, ..))) => Some(true),
        Some(Ok((Request::Accepted {}, ..))) => Some(false),
        _ => None,
    }
}

/// Relays until the connection ends. Sessions that the server issues are kept if the program has verified the server,
/// or reports so shortly after going on, as some programs do.
async fn relay(
    downstream: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    (mut near, is_verified): (Hop, bool),
    made: Unverified,
) {
    let Unverified { mut upstream, connected, resumes } = made;
    let state = &downstream.state;
    let standing = downstream.open(connected.connection, false);
    drop(connected);
    if is_verified {
        origin.keep(&mut upstream, &resumes);
    }
    let mut relay = Relay::new(state, &standing, Downstream::Hop(&mut near), &mut upstream);
    state.counts.opened();
    let early = if is_verified {
        None
    } else {
        let mut verdict = Box::pin(says(downstream));
        let early = tokio::select! {
            biased;
            verdict = &mut verdict => Err(verdict),
            ended = relay.run(downstream.phase.clone()) => Ok(ended),
        };
        // A verdict sent before the program's end has arrived by the time the end is seen.
        let verdict = match early {
            Err(verdict) => verdict,
            Ok(_) => timeout(LAST_WORD, &mut verdict).await.ok().flatten(),
        };
        match verdict {
            Some(true) => origin.keep(relay.upstream(), &resumes),
            _ => relay.upstream().keep_nothing(),
        }
        early.ok()
    };
    let ended = match early {
        Some(ended) => ended,
        None => relay.run(downstream.phase.clone()).await,
    };
    let (is_broken, is_unused) = (relay.is_broken(), relay.is_unused());
    // What the program writes must fail then.
    let ends = if relay.is_refused() { Shutdown::Both } else { Shutdown::Write };
    if is_unused {
        origin.refused(&upstream, &resumes);
    }
    state.counts.closed();
    standing.ended(ended);
    drop(upstream);
    if is_broken {
        // The program reads a reset.
        return;
    }
    near.settle();
    let _ = timeout(LINGER, drain(near.socket(), ends)).await;
}

/// Closes the program's socket as TCP would. What the program sends first is dropped, without an error for the program:
/// a program that writes to a Unix socket whose other end is closed gets SIGPIPE at once. What it sends after that
/// fails, as after a server's answer to what reached a closed socket.
async fn drain(socket: &ProgramSocket, ends: Shutdown) -> io::Result<()> {
    rustix::net::shutdown(&**socket, ends)?;
    let (mut unheard, mut was_heard) = ([0; 1_024], false);
    loop {
        socket.readable().await?;
        match received(socket, &mut unheard) {
            Ok(0) => return Ok(()),
            Ok(_) => was_heard = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && was_heard => {
                rustix::net::shutdown(&**socket, Shutdown::Both)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

impl Sockets {
    fn of(brought: Vec<PassedDescriptor>) -> Result<Self, Failure> {
        let bad = |detail| Failure::new(ErrorKind::BadRequest, detail);
        let mut brought = brought.into_iter();
        let (Some(socket), Some(tcp)) = (brought.next(), brought.next()) else {
            return Err(bad("a hop needs two or three sockets"));
        };
        let spare = brought.next();
        if spare.as_ref().is_some_and(|spare| !is_unconnected(spare)) {
            return Err(bad("the third socket must be an unconnected TCP socket"));
        }
        let socket = ProgramSocket::take_over(socket).map_err(|error| Failure::of_io(&error))?;
        let socket = socket
            .ok_or_else(|| bad("the first socket must be one end of a pair of Unix sockets"))?;
        Ok(Self { socket, tcp, spare })
    }
}

fn is_unconnected(spare: &PassedDescriptor) -> bool {
    let is_tcp = sockopt::socket_protocol(spare).ok().flatten() == Some(ipproto::TCP);
    is_tcp && rustix::net::getpeername(spare).is_err()
}

/// Waits for the program's first byte. Returns false at the end of file.
async fn speaks(socket: &ProgramSocket) -> io::Result<bool> {
    let mut first = [0_u8];
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read =
        socket.async_io(Interest::READABLE, || Ok(recv(&**socket, &mut first, peek)?.0)).await?;
    Ok(read > 0)
}

/// Connects the spare socket to the server, and passes bytes both ways until the connection ends.
async fn pass_on(
    socket: ProgramSocket,
    spare: PassedDescriptor,
    peer: SocketAddr,
) -> io::Result<()> {
    let stream = std::net::TcpStream::from(spare.as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    let called = timeout(CALL, TcpSocket::from_std_stream(stream).connect(peer)).await;
    let tcp = Tcp::connected(called.map_err(|_| io::ErrorKind::TimedOut)??, spare);
    let _ = tcp.set_nodelay(true);
    passing::pass_on(Line::new(socket), tcp).await
}
