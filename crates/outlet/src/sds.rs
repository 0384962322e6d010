//! Envoy's secret discovery service: `session_ticket_keys_sds_secret_config` gets its keys here, over gRPC on a Unix socket.
//!
//! A secret's name is the context of its keys. Each stream gets them anew whenever they change.

mod place;
mod proto;

use std::convert::Infallible;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::listing::Listing;
use crate::peers::{Door, Room};
use crate::rings::{every_second, now_s};
use crate::{Context, Error, Peers, Rings};
use place::{Asked, Placed};
use proto::{Any, DataSource, DiscoveryRequest, DiscoveryResponse, Secret, SessionTicketKeys};
use rejoin_tickets::{KeyId, KeyState, ServerKeyForm};

/// The service.
#[derive(Debug, Clone)]
pub struct Sds {
    rings: Rings,
    complain: fn(&str),
    /// The time in which a connection must ask for secrets.
    longest_silence: Duration,
}

const TYPE: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const METHOD: &str = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
const LONGEST_REQUEST_BYTES: usize = 64 * 1024;
/// The most secrets of a stream.
const MOST_NAMES: usize = 64;
/// The time after which a connection that has asked for nothing gives its place up. Envoy asks at once.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

type Answers = ReceiverStream<Result<DiscoveryResponse, Status>>;

impl Sds {
    /// The most connections at a time. More are closed at once, and those that have asked for no secrets after a minute.
    pub const MOST_CONNECTIONS: usize = 256;

    /// Serves the ring that is followed. `complain` is told when Envoy rejects keys, and when no more connections are taken,
    /// once until that is over.
    pub fn new(rings: Rings, complain: fn(&str)) -> Self {
        Self { rings, complain, longest_silence: LONGEST_SILENCE }
    }

    /// Serves these users until the socket fails.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn serve(
        self,
        listener: UnixListener,
        socket: &Path,
        peers: Peers,
    ) -> Result<(), Error> {
        let (accepted, incoming) = mpsc::channel(1);
        let Self { complain, longest_silence, .. } = self;
        let accept = async {
            let happens = "closed at once: end those that ask for nothing";
            let mut room = Room::new(Self::MOST_CONNECTIONS, &listener, happens, complain);
            let mut door = Door::new(&listener, &peers, complain);
            loop {
                let stream = door.next().await;
                let Some(place) = room.take() else { continue };
                let placed = Placed::new(stream, place, longest_silence);
                if accepted.send(Ok::<_, Infallible>(placed)).await.is_err() {
                    return;
                }
            }
        };
        let server = tonic::transport::Server::builder()
            .max_concurrent_streams(Some(MOST_NAMES as u32))
            .serve_with_incoming(self, ReceiverStream::new(incoming));
        tokio::select! {
            () = accept => Ok(()),
            served = server => served.map_err(|error| Error::Stopped {
                socket: socket.into(),
                cause: error.to_string(),
            }),
        }
    }
}

impl Service<http::Request<Body>> for Sds {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != METHOD {
            let unknown = Status::unimplemented(format!("this service has {METHOD} alone"));
            return Box::pin(std::future::ready(Ok(unknown.into_http())));
        }
        request.extensions().get::<Asked>().into_iter().for_each(Asked::set);
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default();
            let grpc = Grpc::new(codec);
            let mut grpc = grpc.apply_max_message_size_config(Some(LONGEST_REQUEST_BYTES), None);
            Ok(grpc.streaming(service, request).await)
        })
    }
}

impl StreamingService<DiscoveryRequest> for Sds {
    type Response = DiscoveryResponse;
    type ResponseStream = Answers;
    type Future = BoxFuture<Response<Answers>, Status>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let (answers, stream) = mpsc::channel(1);
        let Self { rings, complain, .. } = self.clone();
        let subscription = Subscription::new(rings, complain);
        tokio::spawn(subscription.serve(request.into_inner(), answers));
        Box::pin(std::future::ready(Ok(Response::new(ReceiverStream::new(stream)))))
    }
}

/// One stream: the secrets that it asks for, and what it was sent last.
struct Subscription {
    rings: Rings,
    complain: fn(&str),
    names: Vec<Context>,
    /// The ring's keys at the last look.
    seen: Vec<(KeyId, KeyState)>,
    sent: Vec<u8>,
    nonce: u64,
}

impl Subscription {
    fn new(rings: Rings, complain: fn(&str)) -> Self {
        let (names, seen, sent) = (Vec::new(), Vec::new(), Vec::new());
        Self { rings, complain, names, seen, sent, nonce: 0 }
    }

    async fn serve(
        mut self,
        mut requests: Streaming<DiscoveryRequest>,
        answers: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    ) {
        let mut look = every_second();
        loop {
            tokio::select! {
                request = requests.message() => match request.map(|request| request.map(|request| self.ask(&request))) {
                    Ok(Some(Ok(()))) => {}
                    Ok(Some(Err(refused))) => return drop(answers.send(Err(refused)).await),
                    Ok(None) | Err(_) => return,
                },
                // Turns begin and end without a change of the ring.
                _ = look.tick() => {}
                Ok(()) = self.rings.changed() => {}
            }
            if let Some(answer) = self.answer()
                && answers.send(Ok(answer)).await.is_err()
            {
                return;
            }
        }
    }

    fn ask(&mut self, request: &DiscoveryRequest) -> Result<(), Status> {
        if let Some(error) = &request.error_detail {
            let said: String =
                error.message.chars().filter(|c| !c.is_control()).take(200).collect();
            (self.complain)(&format!(
                "Envoy rejects ticket keys: {said}; it goes on with those it has"
            ));
        }
        if request.resource_names.len() > MOST_NAMES {
            return Err(Status::invalid_argument(format!("ask for {MOST_NAMES} secrets at most")));
        }
        let names = request.resource_names.iter().map(|name| Context::new(name));
        let names: Result<Vec<_>, _> = names.collect();
        let names = names.map_err(|error| Status::invalid_argument(error.to_string()))?;
        if names != self.names {
            (self.names, self.seen, self.sent) = (names, Vec::new(), Vec::new());
        }
        Ok(())
    }

    /// Returns the secrets if they have changed since they were sent.
    fn answer(&mut self) -> Option<DiscoveryResponse> {
        let ring = self.rings.borrow_and_update().clone()?;
        let now_s = now_s();
        // Each look would derive all keys of all names otherwise.
        let seen: Vec<_> = ring.list(now_s).map(|key| (key.id, key.state)).collect();
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        let list = |context| Listing::of(&ring, context, ServerKeyForm::Raw80, now_s);
        let listings: Vec<_> = self.names.iter().map(list).collect();
        if listings.is_empty() || listings.iter().any(Listing::is_empty) {
            return None;
        }
        // Names of keys are public, and tell one list from another.
        let names = listings.iter().flat_map(Listing::mark).flat_map(|(name, _)| name);
        let mark: Vec<u8> = names.collect();
        if mark == self.sent {
            return None;
        }
        (self.sent, self.nonce) = (mark, self.nonce + 1);
        let resources = self.names.iter().zip(&listings).map(|(name, keys)| resource(name, keys));
        Some(DiscoveryResponse {
            version_info: self.nonce.to_string(),
            resources: resources.collect(),
            type_url: TYPE.to_owned(),
            nonce: self.nonce.to_string(),
        })
    }
}

fn resource(name: &Context, keys: &Listing) -> Any {
    let keys = keys.bytes().map(|key| DataSource { inline_bytes: key.to_vec() });
    let keys = Some(SessionTicketKeys { keys: keys.collect() });
    let secret = Secret { name: name.as_str().to_owned(), session_ticket_keys: keys };
    Any { type_url: TYPE.to_owned(), value: secret.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rejoin_testkit::folder::Folder;
    use rejoin_tickets::{KeyRing, Schedule};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A frame of HTTP/2 (RFC 9113, section 4.1).
    fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
        [&[0, 0, body.len() as u8, kind, flags, 0, 0, 0, stream][..], body].concat()
    }

    /// A call of the method, by the static table of HPACK (RFC 7541, appendix A).
    fn call() -> Vec<u8> {
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        let path = [vec![0x04], text(METHOD)].concat();
        let kind = [vec![0x0f, 0x10], text("application/grpc")].concat();
        frame(1, 4, 1, &[vec![0x83, 0x86], path, kind].concat())
    }

    /// Sends frames, and returns true if a ping is answered within some seconds, and false if the connection ends.
    async fn answers(stream: &mut UnixStream, frames: &[u8]) -> bool {
        const PING: u8 = 6;
        let ping = frame(PING, 0, 0, &[7; 8]);
        if stream.write_all(&[frames, &ping].concat()).await.is_err() {
            return false;
        }
        let answered = async {
            loop {
                let mut head = [0; 9];
                if stream.read_exact(&mut head).await.is_err() {
                    return false;
                }
                let mut body = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
                if stream.read_exact(&mut body).await.is_err() {
                    return false;
                }
                if head[3] == PING {
                    return true;
                }
            }
        };
        timeout(Duration::from_secs(30), answered).await.expect("an answer, or the end")
    }

    #[tokio::test]
    async fn a_connection_that_never_asks_gives_its_place_up() {
        let folder = Folder::new();
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (_rings, followed) = tokio::sync::watch::channel(None);
        let longest_silence = Duration::from_secs(1);
        let service = Sds { longest_silence, ..Sds::new(followed, |_| {}) };
        let served = {
            let socket = socket.clone();
            tokio::spawn(async move { service.serve(listener, &socket, Peers::new([])).await })
        };
        let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
        let connect = || UnixStream::connect(&socket);
        let [mut silent, mut idle, mut envoy] =
            [connect().await, connect().await, connect().await].map(|to| to.expect("it listens"));
        assert!(answers(&mut idle, &begin).await);
        assert!(answers(&mut envoy, &[begin, call()].concat()).await);
        sleep(2 * longest_silence).await;
        // The service's own settings come first.
        let ended = timeout(Duration::from_secs(30), silent.read_to_end(&mut Vec::new())).await;
        ended.expect("in time").expect("an end");
        assert!(!answers(&mut idle, &[]).await);
        assert!(answers(&mut envoy, &[]).await);
        served.abort();
    }

    #[test]
    fn keys_are_sent_when_they_or_the_names_change() {
        let mut ring = KeyRing::new(Schedule::default());
        let first = ring.rotate(now_s(), &mut [1; 32]).expect("a key");
        let (rings, followed) = tokio::sync::watch::channel(Some(Arc::new(ring.clone())));
        let mut stream = Subscription::new(followed, |_| {});
        let mut sent = |names: &[&str]| {
            let resource_names = names.iter().map(|name| (*name).to_owned()).collect();
            let request = DiscoveryRequest { resource_names, ..DiscoveryRequest::default() };
            stream.ask(&request).expect("taken");
            stream.answer().map(|answer| answer.resources.len())
        };
        assert_eq!(sent(&[]), None);
        assert_eq!([sent(&["shop"]), sent(&["shop"])], [Some(1), None]);
        assert_eq!([sent(&["shop", "other"]), sent(&["shop", "other"])], [Some(2), None]);
        rings.send_replace(Some(Arc::new(ring.clone())));
        assert_eq!(sent(&["shop", "other"]), None, "another copy of the same ring");
        ring.rotate(now_s(), &mut [2; 32]).expect("a key");
        rings.send_replace(Some(Arc::new(ring.clone())));
        assert_eq!([sent(&["shop", "other"]), sent(&["shop", "other"])], [Some(2), None]);
        assert!(ring.retire(&first));
        rings.send_replace(Some(Arc::new(ring)));
        assert_eq!([sent(&["shop", "other"]), sent(&["shop", "other"])], [Some(2), None]);
    }
}
