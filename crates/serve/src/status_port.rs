//! A port for onlookers, in clear: counts for Prometheus, pages for people.
//!
//! Whoever reaches the port may read everything it has; nothing can be changed through it. A browser
//! on the same machine reaches it for whatever site it shows, so a request must be meant for the
//! address and not for a name that somebody else's name server made of it (DNS rebinding), and what
//! is answered may load nothing from elsewhere.
//!
//! What is not here: connections that are kept, bodies, ranges, compression, TLS.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::Error;
use crate::http::{Request, read_request};

/// Connections open at once. For one more the oldest makes way: a request takes a millisecond, and
/// who takes longer keeps nobody out.
const MOST_CONNECTIONS: usize = 64;
/// For a connection, from its beginning to its end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Read of a request that was refused before its end: a connection closed on unread bytes is reset,
/// and the client may never see why.
const LONGEST_REST_BYTES: u64 = 256 * 1024;

/// In every answer. Whatever a page shows, it loads nothing from elsewhere, and no other site
/// shows it or reads it.
const PROTECTION: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// What a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: Cow<'static, str>,
}

impl Answer {
    /// What was asked for.
    pub fn found(content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status: "200 OK", content_type, body: body.into() }
    }

    /// Nothing is there; a line that says what is.
    pub fn not_found(line: &'static str) -> Self {
        Self::refused("404 Not Found", line)
    }

    fn refused(status: &'static str, line: &'static str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: line.into() }
    }

    fn to_bytes(&self, with_body: bool) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             {allow}{PROTECTION}Connection: close\r\n\r\n"
        );
        let body = if with_body { body } else { "" };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

/// A port that listens.
#[derive(Debug)]
pub struct StatusPort(TcpListener);

impl StatusPort {
    /// Listens; on a port of the system's choice, if it is 0.
    ///
    /// # Errors
    /// An address in use, or not this machine's.
    pub async fn listen(address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        listener.map(Self).map_err(|source| Error::Listen { address, source })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers until it is dropped. `pages` is asked with a path, on a thread that may wait.
    pub async fn serve(&self, pages: impl Fn(&str) -> Answer + Send + Sync + 'static) {
        let pages = Arc::new(pages);
        let mut open = Open::default();
        loop {
            let Ok((tcp, _)) = self.0.accept().await else {
                // Out of descriptors, or the client is gone already: either passes.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let pages = Arc::clone(&pages);
            open.add(tokio::spawn(async move {
                // Too slow, or gone: nobody is left to be told.
                let _ = timeout(PATIENCE, converse(tcp, pages)).await;
            }));
        }
    }
}

/// The connections, oldest first. They end when it is dropped.
#[derive(Default)]
struct Open(VecDeque<JoinHandle<()>>);

impl Open {
    fn add(&mut self, connection: JoinHandle<()>) {
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= MOST_CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// One request, one answer.
async fn converse(
    mut tcp: TcpStream,
    pages: Arc<impl Fn(&str) -> Answer + Send + Sync + 'static>,
) -> io::Result<()> {
    let request = match read_request(&mut tcp, &mut Vec::new()).await {
        Ok(Some(request)) => request,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let refused = Answer::refused("400 Bad Request", "no request that is understood\n");
            tcp.write_all(&refused.to_bytes(true)).await?;
            tcp.shutdown().await?;
            return copy(&mut tcp.take(LONGEST_REST_BYTES), &mut sink()).await.map(drop);
        }
        other => return other.map(drop),
    };
    let with_body = request.method != "HEAD";
    let answer = match refusal(&request, tcp.local_addr()?.ip()) {
        Some(refusal) => refusal,
        None => spawn_blocking(move || pages(path(&request))).await?,
    };
    tcp.write_all(&answer.to_bytes(with_body)).await?;
    tcp.shutdown().await
}

/// Without what is asked of it.
fn path(request: &Request) -> &str {
    request.path.split_once('?').map_or(&request.path, |(path, _)| path)
}

fn refusal(request: &Request, here: IpAddr) -> Option<Answer> {
    if !matches!(&*request.method, "GET" | "HEAD") {
        return Some(Answer::refused("405 Method Not Allowed", "there is nothing but to read\n"));
    }
    let is_meant = request.host.as_deref().is_some_and(|host| is_here(host, here));
    let line = "ask for the address that is listened on, or for localhost\n";
    (!is_meant).then(|| Answer::refused("421 Misdirected Request", line))
}

/// Whether a `Host` names this end of the connection. Any port will do, for it may be forwarded;
/// and beyond this machine any address will, for it may be translated. No address can be rebound.
fn is_here(host: &str, here: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = literal.parse::<IpAddr>();
    let is_ours = |address: IpAddr| address == here || !here.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_us_is_answered() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        for host in ["127.0.0.1", "127.0.0.1:9464", "localhost", "LOCALHOST:1"] {
            assert!(is_here(host, loopback), "{host}");
        }
        let elsewhere =
            ["", "example.com", "localhost.example.com:80", "192.0.2.1", "127.0.0.1.", "[::1]"];
        for host in elsewhere {
            assert!(!is_here(host, loopback), "{host}");
        }
        assert!(is_here("[::1]:9464", IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])));
        let beyond = IpAddr::from([192, 0, 2, 1]);
        assert!(is_here("198.51.100.7:80", beyond) && !is_here("rebound.example", beyond));
    }

    #[test]
    fn a_head_tells_the_length_of_the_body_it_goes_without() {
        let answer = Answer::found("text/plain", "four");
        let [head, whole] = [false, true].map(|with_body| answer.to_bytes(with_body));
        assert_eq!(whole, [&head[..], b"four"].concat());
        assert!(String::from_utf8_lossy(&head).contains("Content-Length: 4\r\n"));
    }
}
