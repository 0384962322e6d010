//! A task for each server and each sentinel, which asks it again and again: a server for its role, a sentinel for the
//! address of the primary.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::servers::{Login, NodeAddress, Tls};
use super::{ANSWER_WITHIN, CONNECT_WITHIN, is_denied};

/// One server or sentinel, and the way to it.
pub(super) struct Asker {
    pub(super) address: NodeAddress,
    pub(super) login: Login,
    pub(super) tls: Option<Tls>,
    pub(super) question: Question,
}

/// The question to a server or sentinel.
#[derive(Debug, Clone)]
pub(super) enum Question {
    /// Its role, again every second.
    Role,
    /// Its role, until it is the primary: there is no other server, and its writes tell when it no longer is.
    RoleOfOnlyOne,
    /// The address of this primary, again every second.
    Master(String),
}

/// The answer of a server or sentinel, or the reason why there is none.
pub(super) type Answer = Result<Told, RedisError>;

#[derive(Clone)]
pub(super) enum Told {
    Node(Node),
    Master(Named),
}

/// A server that answers.
#[derive(Clone)]
pub(super) struct Node {
    /// The number of the connection in this process.
    pub(super) serial: u64,
    pub(super) connection: MultiplexedConnection,
    pub(super) role: Role,
    /// The identity of the data set, which a primary and its replicas have in common (`master_replid`).
    pub(super) lineage: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Replica {
        of: String,
    },
    /// It reads its data from a file.
    Loading,
    Sentinel,
    /// The user may not ask.
    Unknown,
}

/// The primary, by what a sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: NodeAddress,
    /// It grows with each promotion.
    pub(super) epoch: u64,
    /// True if this sentinel does not reach it, or replaces it.
    pub(super) is_down: bool,
    /// The sentinels that watch it.
    pub(super) sentinels: usize,
}

/// A running task. It ends when this is dropped.
pub(super) struct Task(AbortHandle);

impl Asker {
    /// The time between two answers.
    const AGAIN_AFTER: Duration = Duration::from_secs(1);
    /// The shortest time until the next attempt after a failed one; it doubles up to [`Self::AGAIN_AFTER`].
    const RETRY_AFTER: Duration = Duration::from_millis(50);

    /// Starts the task. It asks at once whenever `poke` changes, and sends each answer with `number`.
    pub(super) fn start(
        self,
        number: u64,
        poke: watch::Receiver<()>,
        answers: mpsc::UnboundedSender<(u64, Answer)>,
    ) -> Task {
        Task(tokio::spawn(self.run(number, poke, answers)).abort_handle())
    }

    async fn run(
        self,
        number: u64,
        mut poke: watch::Receiver<()>,
        answers: mpsc::UnboundedSender<(u64, Answer)>,
    ) {
        let (mut connection, mut retry_after) = (None, Self::RETRY_AFTER);
        loop {
            let answer = self.ask(&mut connection).await;
            let is_only_primary = self.is_settled(&answer);
            let pause = match &answer {
                Ok(_) if !self.is_to_look_elsewhere(&answer) => {
                    retry_after = Self::RETRY_AFTER;
                    Self::AGAIN_AFTER
                }
                _ => {
                    // The host may have another address by now.
                    connection = None;
                    let pause = jittered(retry_after);
                    retry_after = Self::AGAIN_AFTER.min(2 * retry_after);
                    pause
                }
            };
            if answers.send((number, answer)).is_err() {
                return;
            }
            let poked = tokio::select! {
                () = sleep(pause), if !is_only_primary => Ok(()),
                poked = poke.changed() => poked,
            };
            if poked.is_err() {
                return;
            }
        }
    }

    /// Returns true if nothing can be learned by asking again.
    fn is_settled(&self, answer: &Answer) -> bool {
        let is_usable = |node: &Node| matches!(node.role, Role::Primary | Role::Unknown);
        matches!(self.question, Question::RoleOfOnlyOne)
            && matches!(answer, Ok(Told::Node(node)) if is_usable(node))
    }

    /// Returns true if the only address leads to a server that is not the primary.
    fn is_to_look_elsewhere(&self, answer: &Answer) -> bool {
        matches!(self.question, Question::RoleOfOnlyOne) && !self.is_settled(answer)
    }

    async fn ask(&self, connection: &mut Option<(u64, MultiplexedConnection)>) -> Answer {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        if connection.is_none() {
            *connection = Some((SERIAL.fetch_add(1, Relaxed), self.connect().await?));
        }
        let Some((serial, connection)) = connection else {
            return Err(lost(format!("{}: no connection", self.address)));
        };
        // The connection's own limit is for each command.
        let told = match &self.question {
            Question::Role | Question::RoleOfOnlyOne => {
                node(*serial, connection).await.map(Told::Node)
            }
            Question::Master(name) => named(connection, name).await.map(Told::Master),
        };
        told.map_err(|error| self.explained(&error))
    }

    /// Connects. If the password is refused, its file is read again.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        loop {
            let changes = self.login.changes();
            match self.connect_once().await {
                Err(error) if is_refused(&error) => self.login.renew(changes, &self.address)?,
                connected => return connected.map_err(|error| self.explained(&error)),
            }
        }
    }

    async fn connect_once(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        let client = self.address.client(&self.login, self.tls.as_ref())?;
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Names the server, and the remedy where it is known.
    fn explained(&self, error: &RedisError) -> RedisError {
        let address = &self.address;
        let text = error.to_string();
        let needs_password = error.code() == Some("NOAUTH");
        lost(match &self.question {
            Question::Master(_) if needs_password && !self.login.has_password() => {
                format!(
                    "sentinel {address} asks for a password: set user and password_file in [sentinel]"
                )
            }
            _ if needs_password && !self.login.has_password() => {
                format!("{address} asks for a password: set user and password_file")
            }
            Question::Master(name) if text.contains("No such master") => {
                format!(
                    "sentinel {address} watches no primary of the name {name}: correct sentinel.master"
                )
            }
            Question::Master(_) if text.contains("unknown command") => {
                format!("{address} is no sentinel: name it in servers, or correct sentinel.servers")
            }
            Question::Master(_) => format!("sentinel {address}: {text}"),
            _ => format!("{address}: {text}"),
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns true if the user or the password is refused.
pub(super) fn is_refused(error: &RedisError) -> bool {
    // Of several servers, one's reason is told as a text.
    let is_reason = |text: &str| text.contains("AuthenticationFailed");
    error.kind() == ErrorKind::AuthenticationFailed || error.detail().is_some_and(is_reason)
}

/// An error with this text, which means that Valkey cannot be reached.
pub(super) fn lost(text: String) -> RedisError {
    io::Error::other(text).into()
}

/// Asks a server for its role.
async fn node(serial: u64, connection: &mut MultiplexedConnection) -> RedisResult<Node> {
    let mut info = redis::cmd("INFO");
    info.arg("server").arg("replication").arg("persistence");
    let answer: RedisResult<Value> = info.query_async(connection).await;
    let (role, lineage) = match answer {
        Err(error) if !is_denied(&error) => return Err(error),
        Err(_) => (Role::Unknown, None),
        Ok(answer) => {
            let text = redis::from_redis_value::<String>(answer).unwrap_or_default();
            let lineage = field(&text, "master_replid").map(str::to_owned);
            (role(&text), lineage)
        }
    };
    Ok(Node { serial, connection: connection.clone(), role, lineage })
}

/// Reads the answer to `INFO`.
fn role(info: &str) -> Role {
    let of = || {
        let part = |name| field(info, name).unwrap_or("?");
        format!("{}:{}", part("master_host"), part("master_port"))
    };
    match field(info, "role") {
        _ if ["redis_mode", "server_mode"]
            .iter()
            .any(|name| field(info, name) == Some("sentinel")) =>
        {
            Role::Sentinel
        }
        _ if field(info, "loading") == Some("1") => Role::Loading,
        Some("master") => Role::Primary,
        Some("slave" | "replica") => Role::Replica { of: of() },
        _ => Role::Unknown,
    }
}

fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The flags of a primary that a sentinel cannot reach, or that it replaces.
const DOWN: [&str; 4] = ["s_down", "o_down", "disconnected", "failover_in_progress"];

/// Asks a sentinel for the primary of this name.
async fn named(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<Named> {
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("MASTER").arg(name);
    let told: HashMap<String, String> = ask.query_async(connection).await?;
    read_named(&told).ok_or_else(|| lost("it does not say where the primary is".to_owned()))
}

fn read_named(told: &HashMap<String, String>) -> Option<Named> {
    let number = |name: &str| told.get(name)?.parse::<u64>().ok();
    let flags = told.get("flags")?;
    Some(Named {
        address: NodeAddress::new(told.get("ip")?, number("port")?.try_into().ok()?)?,
        epoch: number("config-epoch")?,
        is_down: flags.split(',').any(|flag| DOWN.contains(&flag)),
        sentinels: usize::try_from(number("num-other-sentinels")?).ok()?.checked_add(1)?,
    })
}

/// A time between half of this one and all of it, so that agents that lost the same server do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(pause) % 512;
    pause.mul_f64(0.5 + random as f64 / 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read() {
        let replica = "# Replication\r\nrole:slave\r\nmaster_host:10.0.0.5\r\nmaster_port:6379\r\n";
        for (info, expected) in [
            ("", Role::Unknown),
            ("redis_mode:standalone\r\nrole:master\r\nloading:0\r\n", Role::Primary),
            ("role:master\r\nloading:1\r\n", Role::Loading),
            ("redis_mode:sentinel\r\n", Role::Sentinel),
            (replica, Role::Replica { of: "10.0.0.5:6379".to_owned() }),
            ("role:slave", Role::Replica { of: "?:?".to_owned() }),
            ("xrole:master", Role::Unknown),
        ] {
            assert_eq!(role(info), expected, "{info}");
        }
    }

    #[test]
    fn a_sentinels_answer_is_read_whole_or_not_at_all() {
        let told = |ip: &str, port: &str, epoch: &str, flags: &str| {
            let pairs = [("ip", ip), ("port", port), ("config-epoch", epoch), ("flags", flags)];
            let pairs = pairs.into_iter().chain([("num-other-sentinels", "2")]);
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let named = read_named(&told("10.0.0.5", "6379", "3", "master")).expect("whole");
        assert_eq!((named.address.to_string().as_str(), named.epoch), ("10.0.0.5:6379", 3));
        assert_eq!((named.is_down, named.sentinels), (false, 3));
        for flags in ["s_down,master", "master,failover_in_progress"] {
            assert!(read_named(&told("10.0.0.5", "6379", "3", flags)).expect("whole").is_down);
        }
        for wrong in [
            told("", "6379", "3", "master"),
            told("a b", "6379", "3", "master"),
            told("10.0.0.5", "65536", "3", "master"),
            told("10.0.0.5", "6379", "-1", "master"),
        ] {
            assert_eq!(read_named(&wrong), None, "{wrong:?}");
        }
        assert_eq!(read_named(&HashMap::new()), None);
    }
}
