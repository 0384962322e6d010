//! One device: a TLS client that keeps its session.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use openssl::ssl::{SslContextBuilder, SslMethod, SslSessionRef, SslVerifyMode, SslVersion};
use openssl::x509::store::X509StoreBuilder;
use rejoin_openssl::{Client, ClientSession, is_early_data_accepted};
use rejoin_report::printable;
use rejoin_serve::Versions;
use rejoin_trace::{Event, SpeedUp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use crate::Error;
use crate::fleet::{Kind, REQUEST_BYTES, Routing, Settings, Trust};

/// A server, or several that go by one name.
pub(crate) struct Server {
    client: Client,
    name: String,
    early_data: bool,
}

/// The servers, as every device of a fleet sees them.
pub(super) struct Target {
    server: Server,
    addresses: Vec<SocketAddr>,
    routing: Routing,
    speed_up: SpeedUp,
    hints: bool,
    forgets_between_runs: bool,
    liars_percent: u64,
}

/// The state that a device keeps between its connections.
#[derive(Default)]
pub(crate) struct Device {
    /// Locked while it connects: a device makes one connection at a time.
    session: tokio::sync::Mutex<Option<ClientSession>>,
}

type Stream = SslStream<TcpStream>;

/// The time that a server has to give the next session after its answer, and that between two looks.
const SESSION_PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(2);
/// The most bytes of an answer that are kept, and those read at a time: thousands of devices share one memory.
const STATUS_BYTES: usize = 128;
const READ_BYTES: usize = 2_048;
/// The return time that a liar claims, in milliseconds of the population's time.
const LIE_MS: u32 = 1_000;

impl Server {
    pub(crate) fn new(trust: &Trust, name: &str, versions: Versions) -> Result<Self, Error> {
        let mut context = SslContextBuilder::new(SslMethod::tls_client())?;
        versions.limit(&mut context)?;
        context.set_verify(SslVerifyMode::PEER);
        match trust {
            Trust::System => context.set_default_verify_paths()?,
            Trust::Certificates(certificates) => {
                let mut store = X509StoreBuilder::new()?;
                for certificate in certificates {
                    store.add_cert(certificate.clone())?;
                }
                context.set_cert_store(store.build());
            }
            Trust::Anybody => context.set_verify(SslVerifyMode::NONE),
        }
        Ok(Self { client: Client::new(context), name: name.to_owned(), early_data: false })
    }
}

impl Target {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        if settings.targets.is_empty() {
            return Err(Error::Settings("a fleet without a server"));
        }
        let Settings { trust, server_name, versions, early_data, .. } = settings;
        let server = Server::new(trust, server_name, *versions)?;
        Ok(Self {
            server: Server { early_data: *early_data, ..server },
            addresses: settings.targets.clone(),
            routing: settings.routing,
            speed_up: settings.speed_up,
            hints: settings.hints,
            forgets_between_runs: settings.forgets_between_runs,
            liars_percent: u64::from(settings.liars.percent),
        })
    }

    /// Returns true if a client lies: the same ones in every run.
    pub(super) fn lies(&self, client: u64) -> bool {
        client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff
            < self.liars_percent * 0xffff / 100
    }

    fn address(&self, event: &Event) -> SocketAddr {
        self.addresses[self.routing.of(event, self.addresses.len())]
    }

    fn announcement_ms(&self, event: &Event, lies: bool) -> Option<u64> {
        let ms = if lies { Some(LIE_MS) } else { event.returns_in_ms };
        ms.filter(|_| self.hints).map(|ms| self.speed_up.ms(u64::from(ms)))
    }
}

impl Device {
    /// Makes the connection of an arrival, as [`Self::visit`].
    pub(super) async fn connect(
        &self,
        target: &Target,
        event: &Event,
        lies: bool,
    ) -> io::Result<Option<Kind>> {
        let forgets = target.forgets_between_runs && event.first_of_run;
        let hint = target.announcement_ms(event, lies);
        self.visit(&target.server, target.address(event), forgets, hint).await
    }

    /// Connects, asks, reads the answer to its end. `hint`: the time until it is back, in milliseconds. `None` when the
    /// device's last connection is not over yet.
    pub(crate) async fn visit(
        &self,
        server: &Server,
        address: SocketAddr,
        forgets: bool,
        hint: Option<u64>,
    ) -> io::Result<Option<Kind>> {
        let Ok(mut kept) = self.session.try_lock() else { return Ok(None) };
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let session = kept.take().filter(|_| !forgets);
        let mut ssl = server.client.connection(session.as_ref())?;
        match server.name.parse() {
            // RFC 6066, section 3: an address is no server name.
            Ok(address) => ssl.param_mut().set_ip(address)?,
            Err(_) => {
                ssl.set_hostname(&server.name)?;
                ssl.param_mut().set_host(&server.name)?;
            }
        }
        let mut stream = SslStream::new(ssl, tcp)?;
        let request =
            rejoin_serve::padded_request(&server.name, hint, REQUEST_BYTES, server.early_data);
        let start = Instant::now();
        let is_early = server.early_data && write_early(&mut stream, &request).await?;
        Pin::new(&mut stream).connect().await.map_err(io::Error::other)?;
        let took = start.elapsed();
        let early = is_early.then(|| is_early_data_accepted(stream.ssl()));
        if early != Some(true) {
            stream.write_all(&request).await?;
        }
        match server.early_data {
            true => read_answer_and_session(&mut stream).await?,
            false => read_to_end(&mut stream).await?,
        }
        let _ = stream.shutdown().await;
        *kept = ClientSession::newest(stream.ssl());
        Ok(Some(Kind { resumed: stream.ssl().session_reused(), took, early }))
    }
}

/// Sends a request as early data. Returns false if the session does not allow it.
async fn write_early(stream: &mut Stream, request: &[u8]) -> io::Result<bool> {
    let most = stream.ssl().session().map_or(0, SslSessionRef::max_early_data);
    if (most as usize) < request.len() {
        return Ok(false);
    }
    let mut unsent = request;
    while !unsent.is_empty() {
        let sent = Pin::new(&mut *stream).write_early_data(unsent).await;
        unsent = &unsent[sent.map_err(io::Error::other)?..];
    }
    Ok(true)
}

/// Reads an answer up to the end of the connection, and keeps its first bytes only: the server decides how long it is.
async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut first = Vec::with_capacity(STATUS_BYTES);
    let mut part = [0; READ_BYTES];
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return check_status(&first);
        }
        let kept = read.min(STATUS_BYTES - first.len());
        first.extend_from_slice(&part[..kept]);
    }
}

/// Returns an error that has the status line, unless an answer that begins so has HTTP's status 200.
fn check_status(answer: &[u8]) -> io::Result<()> {
    let line = answer.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let is_http = words.next().is_some_and(|version| version.starts_with(b"HTTP/1."));
    if is_http && words.next() == Some(b"200") {
        return Ok(());
    }
    let line = &line[..line.len().min(STATUS_BYTES)];
    let told = match line.is_empty() {
        true => "the connection ended without an answer".to_owned(),
        false => format!(
            "the answer is not HTTP 200: {}",
            printable(&String::from_utf8_lossy(line)).trim_end()
        ),
    };
    Err(io::Error::other(told))
}

/// Reads an answer, and waits for the session that comes with it or after it. A server that answers early data and then
/// closes gives none.
async fn read_answer_and_session(stream: &mut Stream) -> io::Result<()> {
    let before = session_id(stream);
    read_answer(stream).await?;
    let is_tls13 = stream.ssl().version2() == Some(SslVersion::TLS1_3);
    let began = Instant::now();
    // A read returns when data comes, and not when a session does.
    while is_tls13 && session_id(stream) == before && began.elapsed() < SESSION_PATIENCE {
        let _ = timeout(STEP, stream.read(&mut [0])).await;
    }
    Ok(())
}

/// Reads an answer that says its length, of which the head is kept until it is whole.
async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut head = Vec::with_capacity(READ_BYTES);
    let all = loop {
        if head.contains(&b'\n') {
            check_status(&head)?;
        }
        if let Some(all) = rejoin_serve::response_bytes(&head)? {
            break all;
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut missing = all.saturating_sub(head.len());
    let mut part = [0; READ_BYTES];
    while missing > 0 {
        let most = missing.min(READ_BYTES);
        match stream.read(&mut part[..most]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => missing -= read,
        }
    }
    Ok(())
}

/// The id of a connection's session, which OpenSSL makes from its ticket over TLS 1.3.
fn session_id(stream: &Stream) -> Vec<u8> {
    stream.ssl().session().map_or_else(Vec::new, |session| session.id().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(answer: &[u8]) -> String {
        check_status(answer).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn answers_of_http_1_are_told_from_others() {
        for good in [&b"HTTP/1.1 200 OK\r\n\r\nx"[..], b"HTTP/1.0 200 ok\r\n", b"HTTP/1.1 200\r\n"]
        {
            assert_eq!(told(good), "");
        }
        let bad = b"HTTP/1.1 404 Not \x1b[2JFound\r\nServer: x\r\n";
        assert_eq!(told(bad), "the answer is not HTTP 200: HTTP/1.1 404 Not \u{fffd}[2JFound");
        for odd in
            [&b"HTTP/1.1 2000 OK\r\n"[..], b"HTTP/2 200\r\n", b"220 mail ESMTP\r\n", &[0xff; 400]]
        {
            let told = told(odd);
            assert!(told.starts_with("the answer is not HTTP 200: ") && told.len() < 500, "{told}");
        }
        assert_eq!(told(b""), "the connection ended without an answer");
    }

    /// A server that never ends its answer costs time, and no memory.
    #[test]
    fn long_answers_are_read_and_not_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n";
        let answer = [&head[..], &[b'.'; 70_000]].concat();
        let read = |answer: &[u8], to_end| {
            let mut left = answer;
            let done = runtime.block_on(async {
                if to_end { read_to_end(&mut left).await } else { read_answer(&mut left).await }
            });
            done.map(|()| left.len()).map_err(|error| error.kind())
        };
        for to_end in [true, false] {
            assert_eq!(read(&answer, to_end), Ok(0), "{to_end}");
        }
        let longer = [&answer[..], b"the next answer"].concat();
        assert!(read(&longer, false).is_ok());
        let cut = read(&answer[..60_000], false);
        assert_eq!(cut, Err(io::ErrorKind::UnexpectedEof));
    }
}
