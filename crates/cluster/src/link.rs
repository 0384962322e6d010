//! A connection to Valkey or Redis that finds the primary, and follows it.

mod asker;
mod clustered;
mod primary;
mod refusals;
mod servers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::Error;
use asker::lost;
use primary::Search;
use refusals::Refusals;

pub(crate) use primary::Majority;
pub(crate) use refusals::is_refusal;
pub use servers::{Login, NodeAddress, Place, Sentinels, Servers, Tls};

/// A connection. Clones share it; commands of all are pipelined.
#[derive(Clone)]
pub struct Link {
    state: watch::Receiver<State>,
    shared: Arc<Shared>,
}

/// The part that the task behind a link does without. When it is dropped, that task ends.
struct Shared {
    troubles: mpsc::Sender<Trouble>,
    /// `None` if there is nothing to be certain of: one address, or a cluster whose nodes see to it.
    majority: Option<Arc<Majority>>,
    /// The first command that Valkey denied.
    denied: Mutex<Denied>,
    refusals: Mutex<Refusals>,
    /// Another primary beside the one in use.
    rival: Arc<Mutex<Option<Error>>>,
}

#[derive(Default)]
enum Denied {
    #[default]
    None,
    First(RedisError),
    Told,
}

#[derive(Clone)]
enum State {
    /// The first answers are awaited.
    Seeking,
    Up(Up),
    Down(RedisError),
}

/// A connection that is in use.
#[derive(Clone)]
struct Up {
    serial: u64,
    connection: Connection,
    name: Arc<str>,
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A command's failure that may mean that the primary is another one.
struct Trouble {
    /// The connection's number.
    serial: u64,
    error: RedisError,
}

/// The time limit for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// The time limit for an answer, if the caller has no deadline of its own. One that takes longer means trouble.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// The longest time for which a command waits for a connection.
const FIND_WITHIN: Duration = Duration::from_millis(400);
/// The longest time until the first answers.
const BEGIN_WITHIN: Duration = Duration::from_secs(3);
/// The troubles that wait to be looked at. One is enough.
const MOST_TROUBLES: usize = 8;

impl Link {
    /// Begins to connect. Commands wait for that, and fail if it takes too long; the link goes on trying for as long as it
    /// exists. Reads no files except the system's authorities, and the password's when Valkey refuses the password. Must
    /// be called in a runtime of tokio.
    pub fn open(servers: Servers) -> Self {
        let (sender, state) = watch::channel(State::Seeking);
        let (troubles, received) = mpsc::channel(MOST_TROUBLES);
        let has_majority = match &servers.place {
            Place::Primary(addresses) => addresses.len() > 1,
            Place::Cluster(_) => false,
            Place::Sentinels(_) => true,
        };
        let majority = has_majority.then(Arc::<Majority>::default);
        let rival = Arc::<Mutex<Option<Error>>>::default();
        match &servers.place {
            Place::Cluster(nodes) => {
                let nodes = nodes.clone();
                drop(tokio::spawn(clustered::run(servers, nodes, sender, received)));
            }
            _ => {
                let majority = majority.clone().unwrap_or_default();
                let search = Search::new(servers, sender, majority, Arc::clone(&rival));
                drop(tokio::spawn(search.run(received)));
            }
        }
        let (denied, refusals) = (Mutex::default(), Mutex::default());
        Self { state, shared: Arc::new(Shared { troubles, majority, denied, refusals, rival }) }
    }

    /// Connects.
    ///
    /// # Errors
    /// The reason why there is no connection at first.
    pub async fn connect(servers: &Servers) -> Result<Self, Error> {
        let link = Self::open(servers.clone());
        link.begun().await.map(|()| link)
    }

    /// Waits for the first answers.
    ///
    /// # Errors
    /// The reason why there is no connection at first.
    pub(crate) async fn begun(&self) -> Result<(), Error> {
        let mut state = self.state.clone();
        let begun = state.wait_for(|state| !matches!(state, State::Seeking));
        match timeout(BEGIN_WITHIN, begun).await.map_err(|_| Error::NoAnswer)?.as_deref() {
            Ok(State::Down(error)) => Err(error.clone().into()),
            Ok(State::Up(_)) => Ok(()),
            _ => Err(lost("the link has ended".to_owned()).into()),
        }
    }

    /// Returns the address of the primary in use, or those of the cluster's nodes. `None` while there is none.
    pub fn primary(&self) -> Option<Arc<str>> {
        self.state.borrow().up().map(|up| Arc::clone(&up.name))
    }

    /// Returns the first command that Valkey denied to the user, once, or else a reason for which it refuses sessions
    /// ([`Error::Refused`]), each once an hour.
    pub fn take_denied(&self) -> Option<Error> {
        let mut denied = lock(&self.shared.denied);
        match std::mem::replace(&mut *denied, Denied::Told) {
            Denied::First(error) => Some(error.into()),
            before => {
                *denied = before;
                lock(&self.shared.refusals).take()
            }
        }
    }

    /// Returns another server that says that it is the primary, beside the one in use ([`Error::TwoPrimaries`]), once.
    pub fn take_rival(&self) -> Option<Error> {
        lock(&self.shared.rival).take()
    }

    /// Notes the error of a command for sessions, for the operator. `what` says what Valkey does not do.
    pub(crate) fn note_refusal(&self, what: &'static str, error: &RedisError) {
        lock(&self.shared.refusals).note(what, error, Instant::now());
    }

    /// Returns true if no other server can be the primary of some other machine, to this machine's knowledge. One that is
    /// cut off may not know that another was promoted.
    pub(crate) fn is_sole(&self) -> bool {
        match &self.shared.majority {
            None => true,
            Some(majority) => {
                let serial = self.state.borrow().up().map(|up| up.serial);
                serial.is_some_and(|serial| majority.is_for(serial))
            }
        }
    }

    /// Returns the connection. Waits a moment if there is none.
    async fn current(&self) -> RedisResult<Up> {
        if let State::Up(up) = &*self.state.borrow() {
            return Ok(up.clone());
        }
        let mut state = self.state.clone();
        let found = timeout(FIND_WITHIN, state.wait_for(|state| state.up().is_some())).await;
        if let Ok(Ok(state)) = found
            && let State::Up(up) = &*state
        {
            return Ok(up.clone());
        }
        Err(match &*self.state.borrow() {
            State::Down(error) => error.clone(),
            _ => lost("no connection in time".to_owned()),
        })
    }

    /// Notes what an error says about the server.
    fn note<T>(&self, serial: u64, answer: RedisResult<T>) -> RedisResult<T> {
        let Err(error) = &answer else { return answer };
        if is_denied(error) {
            let mut denied = lock(&self.shared.denied);
            if matches!(*denied, Denied::None) {
                *denied = Denied::First(error.clone());
            }
        }
        if is_trouble(error) {
            // If many wait, one more says nothing new.
            let _ = self.shared.troubles.try_send(Trouble { serial, error: error.clone() });
        }
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn up(&self) -> Option<&Up> {
        match self {
            Self::Up(up) => Some(up),
            Self::Seeking | Self::Down(_) => None,
        }
    }
}

/// Returns true if the server may not be the primary, or not be there.
fn is_trouble(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly};
    let of_server =
        |kind| matches!(kind, BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly);
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.kind(), ErrorKind::Server(kind) if of_server(kind))
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// Returns true if the user may not do this.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    // A script's own commands are denied in other words.
    error.code() == Some("NOPERM") || error.to_string().contains("user executing the script")
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(one) => one.req_packed_command(cmd),
            Self::Cluster(cluster) => cluster.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(one) => one.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let Up { serial, mut connection, .. } = self.current().await?;
            let answer = match connection.req_packed_command(cmd).await {
                Ok(Value::ServerError(error)) => Err(error.into()),
                answer => answer,
            };
            self.note(serial, answer)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let Up { serial, mut connection, .. } = self.current().await?;
            self.note(serial, connection.req_packed_commands(pipeline, offset, count).await)
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("primary", &self.primary()).finish_non_exhaustive()
    }
}
