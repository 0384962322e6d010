//! A look at a service after its start: does a client that returns resume?

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::{SslContext, SslMethod, SslSessionCacheMode, SslVerifyMode, SslVersion};
use rejoin_openssl::{Client, ClientSession};

use super::unit::Unit;
use crate::status;
use crate::status::{listening, process};
use crate::terminal::print;

/// The longest that a service may take until it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// The longest that a server may take for each step of a connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// The most addresses of one service that are tried.
const ADDRESSES: usize = 16;
/// The connections that must resume: several, because workers take turns.
const RETURNS: usize = 3;

const VERSIONS: [(&str, SslVersion); 2] =
    [("1.2", SslVersion::TLS1_2), ("1.3", SslVersion::TLS1_3)];

/// Connects to all that the service listens on, and prints what resumed.
///
/// # Errors
/// It does not listen, or nothing resumed, and why.
pub(super) fn tell(unit: &Unit) -> anyhow::Result<()> {
    anyhow::ensure!(
        !unit.has_own_network,
        "it has a network of its own: nothing can connect to it from here"
    );
    let began = Instant::now();
    let mut addresses = listening(&unit.id)?;
    while addresses.is_empty() && began.elapsed() < STARTS_WITHIN {
        thread::sleep(Duration::from_millis(100));
        addresses = listening(&unit.id)?;
    }
    anyhow::ensure!(!addresses.is_empty(), "it listens on no TCP port so far");
    let mut resumed = false;
    for address in addresses.into_iter().take(ADDRESSES) {
        for (name, version) in VERSIONS {
            let told = match returns(address, version) {
                Some(true) => "resumes",
                Some(false) => "does not resume",
                None => continue,
            };
            resumed |= told == "resumes";
            print(&format!("{address}   TLS {name} {told}"));
        }
    }
    match status::verdict_on(&unit.id)? {
        Ok(verdict) if resumed => print(&format!("{}: {verdict}", unit.id)),
        Ok(verdict) => anyhow::bail!("{verdict}, but no connection resumed"),
        Err(why) => anyhow::bail!(why),
    }
    Ok(())
}

/// Connects and returns. `None` if no handshake of this version succeeds.
fn returns(address: SocketAddr, version: SslVersion) -> Option<bool> {
    let client = client(version)?;
    let (_, mut session) = connection(&client, address, None)?;
    for _ in 0..RETURNS {
        let (reused, newer) = connection(&client, address, session.as_ref())?;
        if !reused {
            return Some(false);
        }
        session = newer.or(session);
    }
    Some(true)
}

/// A client that measures, and therefore trusts every certificate: it says nothing to the server and believes nothing.
fn client(version: SslVersion) -> Option<Client> {
    let mut context = SslContext::builder(SslMethod::tls_client()).ok()?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_min_proto_version(Some(version)).ok()?;
    context.set_max_proto_version(Some(version)).ok()?;
    context.set_session_cache_mode(SslSessionCacheMode::CLIENT);
    Some(Client::new(context))
}

/// Connects once. Returns whether the session was resumed, and the newest one.
fn connection(
    client: &Client,
    address: SocketAddr,
    session: Option<&ClientSession>,
) -> Option<(bool, Option<ClientSession>)> {
    let stream = TcpStream::connect_timeout(&address, ANSWERS_WITHIN).ok()?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN)).ok()?;
    stream.set_write_timeout(Some(ANSWERS_WITHIN)).ok()?;
    let mut stream = client.connection(session).ok()?.connect(stream).ok()?;
    let reused = stream.ssl().session_reused();
    if stream.ssl().version_str() == "TLSv1.3" {
        // Tickets come after the handshake, and a read takes them in. Servers wait for a request meanwhile.
        stream.get_ref().set_read_timeout(Some(ANSWERS_WITHIN / 8)).ok()?;
        let _ = stream.read(&mut [0]);
    }
    let newest = ClientSession::newest(stream.ssl());
    let _ = stream.shutdown();
    Some((reused, newest))
}

/// Returns the addresses on which a unit's processes listen, as a client on this machine reaches them.
fn listening(unit: &str) -> anyhow::Result<BTreeSet<SocketAddr>> {
    let members = process::all()?.into_iter().filter(|process| process.is_in_unit(unit));
    Ok(members.flat_map(|member| listening::of(member.id)).collect())
}
