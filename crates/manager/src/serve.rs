//! Requests: each is read, checked against the settings, and handed to its handler.

use std::io::Write;
use std::sync::Arc;

use rustix::net::{RecvFlags, recv};
use tokio::net::UnixStream;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::admission::Admissions;
use crate::client::FIRST_BYTES;
use crate::downstream::connection::{FAILED, ProgramConnection, counted, refuse, service};
use crate::downstream::descriptors::{PassedDescriptor, ProgramSocket};
use crate::downstream::input::received;
use crate::downstream::messages;
use crate::downstream::program::Program;
use crate::downstream::quota::Permit;
use crate::downstream::stream::Downstream;
use crate::failure::Failure;
use crate::hop::records::serve_records;
use crate::hop::sockets::serve_hop;
use crate::life::Phase;
use crate::protocol::{
    self, Answer, Base64, Connect, Connected, Directly, EarlyData, End, ErrorKind, Records,
    Request, Token,
};
use crate::relay::Relay;
use crate::state::State;
use crate::upstream::connection::Upstream;
use crate::upstream::handshake::{ZeroRtt, connect};

/// Returns the recommended number of threads: one for every two processors, and at least one. A connection
/// uses one thread at a time, and the programs need processors, too.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

/// Serves a program that has connected, if the limits allow it.
pub(crate) async fn admit(
    state: Arc<State>,
    admissions: &Admissions,
    stream: UnixStream,
    phase: watch::Receiver<Phase>,
) {
    let Ok(program) = Program::of(&stream) else { return };
    let stream = ProgramSocket::new(stream, state.closers.of(program.uid));
    if !state.settings.unshared_programs.is_empty() {
        // Read now: the process may execute another program before it is served.
        program.name();
    }
    let Some((_admission, let_in)) = admissions.admit(program.uid, &state.settings) else { return };
    let downstream = ProgramConnection { state, program, stream, phase };
    // Boxed: the request and the handshake take memory that the connection does not need afterwards.
    let asked = Box::pin(downstream.while_awaited(downstream.receive(let_in))).await;
    let Some(Some(order)) = asked else { return };
    if order.1.is_empty() {
        return downstream.serve(order).await;
    }
    match downstream.state.user_threads.of(downstream.program.uid) {
        Some(thread) => thread.run(downstream.serve(order)).await,
        None => {
            let failure = Failure::new(ErrorKind::Busy, "too many users pass sockets at once");
            refuse(&downstream.stream, failure).await;
        }
    }
}

/// A program's request, the sockets that it passed, and the permit for a long request.
type AdmittedRequest = (ConnectionRequest, Vec<PassedDescriptor>, Option<Permit>);

/// The requests that take more than an answer.
enum ConnectionRequest {
    Connect(Box<Connect>),
    Hop(Box<protocol::Hop>),
    Records(Box<Records>),
    /// The end of a connection that another manager may know.
    EndElsewhere(Token),
    TakeOver,
}

fn is_for_a_connection(request: &Request) -> bool {
    matches!(request, Request::Connect(_) | Request::Hop(_) | Request::Records(_))
}

impl ProgramConnection {
    /// Reads a request. Returns it if it takes more than an answer, otherwise answers it.
    async fn receive(&self, let_in: Result<(), Failure>) -> Option<AdmittedRequest> {
        let Self { state, program, stream, .. } = self;
        let let_in = match let_in {
            // The settings cannot keep out whoever is in charge: they see and end it.
            Err(failure) if failure.kind == ErrorKind::NotPermitted && !program.is_in_charge() => {
                refuse(stream, failure).await;
                return None;
            }
            let_in => let_in,
        };
        let read = messages::read_request(stream, (&state.rooms, program.uid)).await?;
        let (request, sockets, room) = match (read, let_in) {
            // A question needs no place among the connections.
            (Ok(read), Err(_)) if !is_for_a_connection(&read.0) => read,
            (Ok(read), Ok(())) => read,
            (_, Err(failure)) | (Err(failure), _) => {
                refuse(stream, failure).await;
                return None;
            }
        };
        if let Err(failure) = self.permits(&request) {
            if matches!(request, Request::Hop(_) | Request::Records(_)) {
                self.goes_directly(Directly::ManagerRefused);
            }
            refuse(stream, failure).await;
            return None;
        }
        let answer = match request {
            Request::Connect(wish) => {
                return Some((ConnectionRequest::Connect(wish), sockets, room));
            }
            Request::Hop(hop) => return Some((ConnectionRequest::Hop(hop), sockets, room)),
            Request::Records(wanted) => {
                return Some((ConnectionRequest::Records(wanted), sockets, room));
            }
            Request::TakeOver {} => return Some((ConnectionRequest::TakeOver, Vec::new(), None)),
            Request::Verified {} | Request::Accepted {} => {
                let detail = "this request is valid only after the answer to a hop";
                Answer::Error(Failure::new(ErrorKind::BadRequest, detail).into())
            }
            Request::End { connection } => match state.end_of(connection, program.uid) {
                End::Unknown if state.succession.has_predecessor() => {
                    return Some((ConnectionRequest::EndElsewhere(connection), Vec::new(), None));
                }
                end => Answer::End(end),
            },
            Request::Directly { why, times } => {
                state.counts.went_directly(program.uid, why, times.into());
                return None;
            }
            Request::Stats {} => {
                let stats = state.counts.of(program.uid, state.sessions.count());
                Answer::Stats(Box::new(stats))
            }
        };
        // The program may be gone.
        let _ = messages::write(stream, answer).await;
        None
    }

    /// Returns the reason why a request for a connection is refused, if there is one.
    fn permits(&self, request: &Request) -> Result<(), Failure> {
        if !is_for_a_connection(request) {
            return Ok(());
        }
        if *self.phase.borrow() >= Phase::Draining {
            return Err(Failure::new(ErrorKind::ShuttingDown, "the manager is shutting down"));
        }
        self.is_in_a_served_namespace()?;
        match request {
            Request::Connect(wish) if !wish.socket => self.may_connect(wish),
            _ => Ok(()),
        }
    }

    async fn serve(self, (wish, sockets, room): AdmittedRequest) {
        match wish {
            ConnectionRequest::Connect(wish) => {
                let socket = sockets.into_iter().next();
                self.connect((wish, socket, room)).await;
            }
            ConnectionRequest::Hop(hop) => serve_hop(self, hop, sockets).await,
            ConnectionRequest::EndElsewhere(connection) => self.forward_question(connection).await,
            // It outlives this connection's place among the others, and does not keep the manager from its end.
            ConnectionRequest::TakeOver => drop(tokio::spawn(self.hand_over())),
            ConnectionRequest::Records(wanted) if sockets.is_empty() => {
                serve_records(self, wanted, room).await;
            }
            ConnectionRequest::Records(_) => {
                let detail = "a request for records must not pass a socket";
                refuse(&self.stream, Failure::new(ErrorKind::BadRequest, detail)).await;
            }
        }
    }

    /// Makes a connection, and relays plaintext until it ends.
    async fn connect(self, order: PlaintextRequest) {
        let made = Box::pin(self.while_awaited(self.make(order))).await;
        let Some(Some((mut upstream, connected, service))) = made else { return };
        let (state, stream) = (&self.state, &self.stream);
        let standing = self.open(connected.connection, true);
        let mut relay = Relay::new(state, &standing, Downstream::Plain(stream), &mut upstream);
        // The server works while the manager counts the connection and answers the program.
        relay.begin();
        self.record(&service, &counted(&connected));
        drop(service);
        if messages::write(stream, Answer::Connected(connected)).await.is_err() {
            return;
        }
        state.counts.opened();
        let ended = relay.run(self.phase.clone()).await;
        state.counts.closed();
        standing.ended(ended);
    }

    /// Connects to the server. On failure, answers the program and returns `None`.
    async fn make(
        &self,
        order: PlaintextRequest,
    ) -> Option<(Box<Upstream>, Box<Connected>, String)> {
        let (wish, socket, _room) = order;
        let service = service(&wish);
        let first = self.first_to_send_early(&wish);
        let wished = wish.early_data.as_ref().map(|Base64(data)| data.as_slice());
        let early = wished.or_else(|| first.as_deref().map(Vec::as_slice));
        let early = early.map(|data| ZeroRtt { data, may_be_repeated: wished.is_none() });
        match connect(&self.state, &self.program, (&wish, None, early), socket).await {
            Ok((mut upstream, mut connected)) => {
                if let Some(first) = first.filter(|_| connected.early_data != EarlyData::Accepted) {
                    connected.early_data = EarlyData::NotOffered;
                    // An error shows when more is sent.
                    let _ = upstream.tls.writer().write_all(&first);
                }
                Some((Box::new(upstream), Box::new(connected), service))
            }
            Err(failure) => {
                self.record(&service, &FAILED);
                refuse(&self.stream, failure).await;
                None
            }
        }
    }
}

impl ProgramConnection {
    /// Takes the first bytes that the program sent behind its request, if the settings list them as safe to repeat.
    fn first_to_send_early(&self, wish: &Connect) -> Option<Zeroizing<Vec<u8>>> {
        let rules = &self.state.settings.early_data;
        if wish.early_data.is_some() || !rules.lists(&wish.host) {
            return None;
        }
        let mut first = Zeroizing::new(vec![0; FIRST_BYTES]);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (bytes, _) = recv(&*self.stream, &mut first[..], flags).ok()?;
        if !rules.may_be_repeated(&first[..bytes]) {
            return None;
        }
        let bytes = received(&self.stream, &mut first[..bytes]).ok()?;
        first.truncate(bytes);
        Some(first)
    }
}

/// A request for a plaintext connection, the socket that the program passed, and the permit for a long request.
type PlaintextRequest = (Box<Connect>, Option<PassedDescriptor>, Option<Permit>);
