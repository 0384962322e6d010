//! A read-only port over plain HTTP: counters for Prometheus, pages for people.
//!
//! Every client that reaches the port can read everything it serves, and change nothing. A browser on
//! the same machine can be made to reach the port by any web site. A request must therefore name the
//! address itself, not a host name that an attacker's name server resolves to it (DNS rebinding), and
//! the pages may load nothing from elsewhere.
//!
//! Not supported: persistent connections, bodies, ranges, compression, TLS.

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
use crate::metrics::{Format, Meters};

/// The largest number of open connections. One more closes the oldest: a request takes a millisecond,
/// so that slow clients keep nobody out.
const MOST_CONNECTIONS: usize = 64;
/// The longest time of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bytes read after a request was refused before its end. Closing a connection with unread bytes
/// resets it, and the client may never see the answer.
const LONGEST_REST_BYTES: u64 = 256 * 1024;

/// Fields of every answer. A page loads nothing from elsewhere, and no other site can embed or read
/// it.
const PROTECTION: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    status: &'static str,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    /// A content type, and a text of it.
    Text(&'static str, Cow<'static, str>),
    /// Metrics, in the format that the client accepts.
    Metrics(Meters),
}

impl Answer {
    /// Returns an answer with the requested content.
    pub fn found(content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status: "200 OK", content: Content::Text(content_type, body.into()) }
    }

    /// Returns an answer with metrics, in the format that the client accepts.
    pub fn metrics(meters: Meters) -> Self {
        Self { status: "200 OK", content: Content::Metrics(meters) }
    }

    /// Returns an answer for an unknown path, with a line that names the known ones.
    pub fn not_found(line: &'static str) -> Self {
        Self::refused("404 Not Found", line)
    }

    fn refused(status: &'static str, line: &'static str) -> Self {
        Self { status, content: Content::Text("text/plain; charset=utf-8", line.into()) }
    }

    fn to_bytes(&self, accept: Option<&str>, with_body: bool) -> Vec<u8> {
        let Self { status, content } = self;
        let (content_type, body) = match content {
            Content::Text(content_type, text) => (*content_type, Cow::Borrowed(&**text)),
            Content::Metrics(meters) => {
                let format = Format::accepted(accept);
                (format.content_type(), meters.text(format).into())
            }
        };
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             {allow}{PROTECTION}Connection: close\r\n\r\n"
        );
        let body = if with_body { &*body } else { "" };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

/// A listening port.
#[derive(Debug)]
pub struct StatusPort(TcpListener);

impl StatusPort {
    /// Listens on an address. For port 0 the system chooses the port.
    ///
    /// # Errors
    /// An address in use, or not this machine's.
    pub async fn listen(address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        listener.map(Self).map_err(|source| Error::Listen { address, source })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers requests until it is dropped. `pages` returns the answer for a path, on a thread that may
    /// block.
    pub async fn serve(&self, pages: impl Fn(&str) -> Answer + Send + Sync + 'static) {
        let pages = Arc::new(pages);
        let mut open = Open::default();
        loop {
            let Ok((tcp, _)) = self.0.accept().await else {
                // No free descriptors, or the client has gone. Both are temporary.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let pages = Arc::clone(&pages);
            open.add(tokio::spawn(async move {
                // A client that is too slow or gone gets no answer.
                let _ = timeout(PATIENCE, converse(tcp, pages)).await;
            }));
        }
    }
}

/// The open connections, oldest first, which are aborted on drop.
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

/// Answers one request.
async fn converse(
    mut tcp: TcpStream,
    pages: Arc<impl Fn(&str) -> Answer + Send + Sync + 'static>,
) -> io::Result<()> {
    let request = match read_request(&mut tcp, &mut Vec::new()).await {
        Ok(Some(request)) => request,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let refused = Answer::refused("400 Bad Request", "not a valid HTTP request\n");
            tcp.write_all(&refused.to_bytes(None, true)).await?;
            tcp.shutdown().await?;
            return copy(&mut tcp.take(LONGEST_REST_BYTES), &mut sink()).await.map(drop);
        }
        other => return other.map(drop),
    };
    let here = tcp.local_addr()?.ip();
    let answer = spawn_blocking(move || {
        let answer = refusal(&request, here).unwrap_or_else(|| pages(path(&request)));
        answer.to_bytes(request.accept.as_deref(), request.method != "HEAD")
    });
    tcp.write_all(&answer.await?).await?;
    tcp.shutdown().await
}

/// Returns the path without the query.
fn path(request: &Request) -> &str {
    request.path.split_once('?').map_or(&request.path, |(path, _)| path)
}

fn refusal(request: &Request, here: IpAddr) -> Option<Answer> {
    if !matches!(&*request.method, "GET" | "HEAD") {
        return Some(Answer::refused(
            "405 Method Not Allowed",
            "only GET and HEAD are supported\n",
        ));
    }
    let is_meant = request.host.as_deref().is_some_and(|host| is_here(host, here));
    let line = "use the address that the port listens on, or localhost\n";
    (!is_meant).then(|| Answer::refused("421 Misdirected Request", line))
}

/// Returns true if a `Host` names this end of the connection. Any port is accepted, because ports may
/// be forwarded; from other machines any address is, because addresses may be translated. DNS
/// rebinding needs a name, never an address.
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
        let [head, whole] = [false, true].map(|with_body| answer.to_bytes(None, with_body));
        assert_eq!(whole, [&head[..], b"four"].concat());
        assert!(String::from_utf8_lossy(&head).contains("Content-Length: 4\r\n"));
    }
}
