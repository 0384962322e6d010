//! The connection to a Valkey cluster. The client follows promotions and moved slots by itself, as long as nodes answer.
//!
//! It goes on with a node that has stopped to answer, and with a password that is no longer the right one. Then it is
//! made anew.

use std::time::Duration;

use redis::RedisResult;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::asker::is_refused;
use super::servers::{NodeAddress, Servers};
use super::{ANSWER_WITHIN, CONNECT_WITHIN, Connection, State, Trouble, Up};

/// The shortest and the longest pause between two connections.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Connects, and again when there is trouble, until nobody needs the link.
pub(super) async fn run(
    servers: Servers,
    nodes: Vec<NodeAddress>,
    state: watch::Sender<State>,
    mut troubles: mpsc::Receiver<Trouble>,
) {
    let [shortest, longest] = PAUSES;
    let mut pause = shortest;
    for serial in 0_u64.. {
        let began = Instant::now();
        let is_up = match connect(&servers, &nodes).await {
            Ok(connection) => {
                let (connection, name) =
                    (Connection::Cluster(connection), servers.place.to_string());
                state.send_replace(State::Up(Up { serial, connection, name: name.into() }));
                true
            }
            Err(error) => {
                state.send_replace(State::Down(error));
                false
            }
        };
        loop {
            // What came before was trouble of the last connection.
            let over =
                async { if is_up { std::future::pending().await } else { sleep(pause).await } };
            tokio::select! {
                () = over => break,
                trouble = troubles.recv() => match trouble {
                    None => return,
                    Some(trouble) if is_up && trouble.serial == serial => break,
                    Some(_) => {}
                },
            }
        }
        pause = if began.elapsed() > 2 * longest { shortest } else { longest.min(2 * pause) };
        sleep(pause.saturating_sub(began.elapsed())).await;
    }
}

/// Connects. If the password is refused, its file is read again.
async fn connect(servers: &Servers, nodes: &[NodeAddress]) -> RedisResult<ClusterConnection> {
    loop {
        let changes = servers.login.changes();
        match connect_once(servers, nodes).await {
            Err(error) if is_refused(&error) => servers.login.renew(changes, &servers.place)?,
            connected => return connected,
        }
    }
}

async fn connect_once(servers: &Servers, nodes: &[NodeAddress]) -> RedisResult<ClusterConnection> {
    let node = |address: &NodeAddress| address.node(&servers.login, servers.tls.is_some());
    let nodes = nodes.iter().map(node).collect::<RedisResult<Vec<_>>>()?;
    let mut builder = ClusterClientBuilder::new(nodes)
        .connection_timeout(CONNECT_WITHIN)
        .response_timeout(ANSWER_WITHIN)
        .overall_response_timeout(Some(2 * ANSWER_WITHIN));
    if let Some(tls) = &servers.tls {
        builder = builder.certs(tls.certificates());
    }
    builder.build()?.get_async_connection().await
}
