//! Programs that do their own TLS: the manager is their server, and their client towards the real one.
//!
//! Whatever the manager cannot do for them is done without it. Before the program's ClientHello has
//! come, by refusing: its socket is as it was. After that, where there is a second socket, by
//! calling the server anew and passing on what either says: the program's ClientHello offers all that
//! the server needs, and a key of which the server knows nothing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown, ipproto, recv, sockopt};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::downstream::connection::{
    ASK_WHETHER_GONE, FAILED, ProgramConnection, counted, gone, refuse, service, stopping,
};
use crate::downstream::descriptors::{PassedDescriptor, ProgramSocket};
use crate::downstream::messages;
use crate::downstream::stream::{Downstream, is_gone, received};
use crate::failure::Failure;
use crate::hop::tls::Hop;
use crate::protocol::{self, Answer, Directly, ErrorKind, Request};
use crate::relay::Relay;
use crate::upstream::dial::taken_over;
use crate::upstream::handshake::{OriginHandshake, Unverified};

/// A program that was told that all is ready says its ClientHello at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a program may hold a connection of which the server's side has ended.
const LINGER: Duration = Duration::from_secs(120);
/// To call a server a second time.
const CALL: Duration = Duration::from_secs(60);
/// A word that was said is there.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The sockets that come with a hop.
struct Sockets {
    line: ProgramSocket,
    /// Not touched before the program's ClientHello comes: until then it may go on alone.
    tcp: PassedDescriptor,
    spare: Option<PassedDescriptor>,
}

/// Serves it until it ends.
pub(crate) async fn serve_hop(
    program_connection: ProgramConnection,
    hop: Box<protocol::Hop>,
    sockets: Vec<PassedDescriptor>,
) {
    let ProgramConnection { state, program, stream, stopped } = program_connection;
    let Ok(stream) = stream.move_here() else { return };
    let mut is_stopped = stopped.clone();
    let program_connection = ProgramConnection { state, program, stream, stopped };
    tokio::select! {
        () = serve(&program_connection, hop, sockets) => {}
        () = stopping(&mut is_stopped) => {}
    }
}

async fn serve(
    program_connection: &ProgramConnection,
    hop: Box<protocol::Hop>,
    sockets: Vec<PassedDescriptor>,
) {
    let wish = hop.wish();
    let (state, program) = (&program_connection.state, &program_connection.program);
    let agreed = Sockets::of(sockets).and_then(|sockets| {
        let origin = OriginHandshake::of(state, program, &wish, sockets.spare.is_none())?;
        Ok((sockets, origin))
    });
    let (sockets, origin) = match agreed {
        Ok(agreed) => agreed,
        Err(failure) => {
            state.counts.went_directly(program.uid, Directly::ManagerRefused, 1);
            return refuse(&program_connection.stream, failure).await;
        }
    };
    let Sockets { line, tcp, spare } = sockets;
    let is_told = messages::write(&program_connection.stream, Answer::Ready {}).await.is_ok();
    if !is_told || !matches!(timeout(PATIENCE, speaks(&line)).await, Ok(Ok(true))) {
        return;
    }
    let service = service(&wish);
    let made = match taken_over(tcp) {
        Ok(tcp) => {
            let peer = tcp.peer_addr().ok();
            let run = Box::pin(origin.run(state, tcp));
            let made = tokio::select! {
                made = run => made,
                () = gone(&line) => return,
            };
            made.map_err(|failure| (failure, peer))
        }
        Err(failure) => Err((failure, None)),
    };
    let made = match made {
        Ok(made) => made,
        Err((failure, peer)) => {
            program_connection.record(&service, &FAILED);
            let (Some(spare), Some(peer)) = (spare, peer) else { return };
            state.counts.went_directly(program.uid, Directly::ManagerFailed, 1);
            origin.failed(state, &failure);
            // How it ends is between the program and the server.
            let _ = pass_on(line, spare, peer).await;
            return;
        }
    };
    program_connection.record(&service, &counted(&made.connected));
    let introduced = Box::pin(introduce(program_connection, &hop, &origin, line, &made)).await;
    // Only now: the program does not wait for it to be closed.
    drop((hop, spare));
    let Some((near, is_verified)) = introduced else {
        return origin.refused(state, &made.upstream, &made.resumes);
    };
    relay(program_connection, &origin, (near, is_verified), made).await;
}

/// Tells the program of the server, and does the handshake with it. Nothing goes either way before the program
/// says that it goes on, and whether it has verified the server.
async fn introduce(
    program_connection: &ProgramConnection,
    hop: &protocol::Hop,
    origin: &OriginHandshake<'_>,
    line: ProgramSocket,
    made: &Unverified,
) -> Option<(Hop, bool)> {
    let state = &program_connection.state;
    // Before the program's handshake is over, and it asks.
    messages::write(&program_connection.stream, Answer::Connected(made.connected.clone().into()))
        .await
        .ok()?;
    let alpn = made.upstream.tls.alpn_protocol();
    let near = state.hops.accept(line, hop, alpn, origin.deadline() + PATIENCE).await.ok()?;
    let is_verified = says(program_connection).await?;
    Some((near, is_verified))
}

/// What the program says of the server: that it has verified it, or that it goes on.
async fn says(program_connection: &ProgramConnection) -> Option<bool> {
    let said = messages::read_request(
        &program_connection.stream,
        (&program_connection.state.rooms, program_connection.program.uid),
    )
    .await;
    match said {
        Some(Ok((Request::Verified {}, ..))) => Some(true),
        Some(Ok((Request::Accepted {}, ..))) => Some(false),
        _ => None,
    }
}

/// What the server issued is kept if the program has verified the server, or says within seconds that it has:
/// some programs go on first.
async fn relay(
    program_connection: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    (mut near, is_verified): (Hop, bool),
    made: Unverified,
) {
    let Unverified { mut upstream, connected, resumes } = made;
    let (state, uid) = (&program_connection.state, program_connection.program.uid);
    let standing = state.endings.open(connected.connection, uid, &state.settings.clock);
    drop(connected);
    if is_verified {
        origin.keep(state, &mut upstream, &resumes);
    }
    let mut relay = Relay::new(state, &standing, Downstream::Hop(&mut near), &mut upstream);
    state.counts.opened();
    let early = if is_verified {
        None
    } else {
        let mut verdict = Box::pin(says(program_connection));
        let early = tokio::select! {
            biased;
            verdict = &mut verdict => Err(verdict),
            ended = relay.run(program_connection.stopped.clone()) => Ok(ended),
        };
        // What a program says before its end has been said when that is seen.
        let verdict = match early {
            Err(verdict) => verdict,
            Ok(_) => timeout(LAST_WORD, &mut verdict).await.ok().flatten(),
        };
        match verdict {
            Some(true) => origin.keep(state, relay.upstream(), &resumes),
            _ => relay.upstream().keep_nothing(),
        }
        early.ok()
    };
    drop(resumes);
    let ended = match early {
        Some(ended) => ended,
        None => relay.run(program_connection.stopped.clone()).await,
    };
    state.counts.closed();
    standing.ended(ended);
    drop(upstream);
    let _ = timeout(LINGER, drain(near.line())).await;
}

/// Ends the program's socket as TCP would have: its last words are taken, and are no error to it. One
/// that writes to a Unix socket whose other end is closed gets a signal at once.
async fn drain(line: &ProgramSocket) -> io::Result<()> {
    rustix::net::shutdown(&**line, Shutdown::Write)?;
    let mut unheard = [0; 1_024];
    loop {
        line.readable().await?;
        match received(line, &mut unheard) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

impl Sockets {
    fn of(brought: Vec<PassedDescriptor>) -> Result<Self, Failure> {
        let bad = |detail| Failure::new(ErrorKind::BadRequest, detail);
        let mut brought = brought.into_iter();
        let (Some(line), Some(tcp)) = (brought.next(), brought.next()) else {
            return Err(bad("two sockets or three come with a hop"));
        };
        let spare = brought.next();
        if spare.as_ref().is_some_and(|spare| !is_unconnected(spare)) {
            return Err(bad("the third socket is no TCP socket that is not connected"));
        }
        let line = ProgramSocket::take_over(line).map_err(|error| Failure::of_io(&error))?;
        let line = line.ok_or_else(|| bad("the first socket is no end of a pair"))?;
        Ok(Self { line, tcp, spare })
    }
}

fn is_unconnected(spare: &PassedDescriptor) -> bool {
    let is_tcp = sockopt::socket_protocol(spare).ok().flatten() == Some(ipproto::TCP);
    is_tcp && rustix::net::getpeername(spare).is_err()
}

/// Whether the program says anything.
async fn speaks(line: &ProgramSocket) -> io::Result<bool> {
    let mut first = [0_u8];
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = line.async_io(Interest::READABLE, || Ok(recv(&**line, &mut first, peek)?.0)).await?;
    Ok(read > 0)
}

/// Calls the server anew, and passes on what either side says, until both have ended or the program is gone.
async fn pass_on(
    mut line: ProgramSocket,
    spare: PassedDescriptor,
    peer: SocketAddr,
) -> io::Result<()> {
    let stream = std::net::TcpStream::from(spare.as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    let called = timeout(CALL, TcpSocket::from_std_stream(stream).connect(peer)).await;
    let mut tcp: TcpStream = called.map_err(|_| io::ErrorKind::TimedOut)??;
    let _ = tcp.set_nodelay(true);
    // The program may clear O_NONBLOCK, and so keep waiting the thread that serves its own user alone.
    let (mut from_server, mut to_server) = tcp.split();
    let (mut from_program, mut to_program) = line.stream_mut().split();
    let up = async {
        tokio::io::copy(&mut from_program, &mut to_server).await?;
        to_server.shutdown().await?;
        // A server that says nothing would keep what nobody waits for.
        while !is_gone(from_program.as_ref()) {
            tokio::time::sleep(ASK_WHETHER_GONE).await;
        }
        Ok(())
    };
    let down = async {
        tokio::io::copy(&mut from_server, &mut to_program).await?;
        to_program.shutdown().await
    };
    let mut up = std::pin::pin!(up);
    tokio::select! {
        done = down => done?,
        done = &mut up => return done,
    }
    timeout(LINGER, up).await.map_err(|_| io::ErrorKind::TimedOut)?
}
