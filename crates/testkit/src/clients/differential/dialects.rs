//! The protocols above TLS, as far as the programs need them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use openssl::ssl::SslStream;

use super::faults::Point;
use super::server::{Behaviour, Framing};

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Http,
    WebSocket,
    Postgres,
    Mqtt,
}

/// A server's end of a connection.
pub(super) struct Speaker {
    pub(super) stream: SslStream<TcpStream>,
    pub(super) behaviour: Behaviour,
    /// All that the client said before the answer.
    pub(super) said: String,
    /// The bytes that it said afterwards.
    pub(super) last: Vec<u8>,
}

impl Dialect {
    /// Answers what a client says before TLS.
    pub(super) fn before_tls(self, tcp: &mut TcpStream) -> io::Result<()> {
        if self == Self::Postgres {
            tcp.read_exact(&mut [0; 8])?;
            tcp.write_all(b"S")?;
        }
        Ok(())
    }

    /// Returns a client's last bytes as text, without chance: a WebSocket's are masked by random bytes (RFC 6455, 5.3),
    /// and whether a client of MQTT still says that it goes depends on its turn.
    pub(super) fn text(self, mut bytes: &[u8]) -> String {
        const DISCONNECT: &[u8] = &[0xe0, 0];
        let mut plain = Vec::new();
        if self == Self::Mqtt {
            bytes = bytes.strip_prefix(DISCONNECT).unwrap_or(bytes);
        }
        while self == Self::WebSocket
            && let [kind, length, mask @ ..] = bytes
            && let Some((mask, rest)) = mask.split_at_checked(4)
            && let Some((masked, rest)) = rest.split_at_checked(usize::from(length & 0x7f))
        {
            plain.push(*kind);
            plain.extend(masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
            bytes = rest;
        }
        plain.extend(bytes);
        String::from_utf8_lossy(&plain).into_owned()
    }

    /// Reads what the client asks, and answers.
    pub(super) fn speak(self, speaker: &mut Speaker, folder: &Path) -> io::Result<()> {
        match self {
            Self::Http => http(speaker, folder),
            Self::WebSocket => web_socket(speaker),
            Self::Postgres => postgres(speaker),
            Self::Mqtt => mqtt(speaker),
        }
    }
}

/// A request of HTTP.
struct Request {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(speaker: &mut Speaker) -> io::Result<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            speaker.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let fields: Vec<_> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut request = Self { method, target, fields, body: Vec::new() };
        let length = request.field("content-length").and_then(|length| length.parse().ok());
        request.body = vec![0; length.unwrap_or(0)];
        speaker.read_exact(&mut request.body)?;
        // A WebSocket's key is random.
        let shown = head.lines().filter(|line| !line.starts_with("Sec-WebSocket-Key"));
        speaker.said = shown.map(|line| format!("{line}\n")).collect();
        if !request.body.is_empty() {
            speaker.said += &super::visits::digest(&request.body);
        }
        Ok(request)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Serves a folder's files, and its repositories by `git http-backend`.
fn http(speaker: &mut Speaker, folder: &Path) -> io::Result<()> {
    let request = Request::read(speaker)?;
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let (status, kind, body) = if path.starts_with("/git/") {
        backend(&request, folder, path, query)?
    } else {
        let path = path.trim_start_matches('/');
        let file = if path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
        let kind = if file.ends_with(".html") { "text/html" } else { "application/octet-stream" };
        match std::fs::read(folder.join(file)) {
            Ok(body) => ("200 OK".to_owned(), kind.to_owned(), body),
            Err(_) => ("404 Not Found".to_owned(), kind.to_owned(), Vec::new()),
        }
    };
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n");
    if speaker.behaviour.framing == Framing::Length {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    let is_asked = request.method != "HEAD";
    speaker.answer(head.as_bytes(), if is_asked { &body } else { &[] })
}

/// An answer by `git http-backend` (`git-http-backend(1)`): status, kind and body.
fn backend(
    request: &Request,
    folder: &Path,
    path: &str,
    query: &str,
) -> io::Result<(String, String, Vec<u8>)> {
    let mut git = Command::new("git");
    if query == "service=git-receive-pack" {
        // Everybody pushes into an empty one.
        let pushed = folder.join(path.trim_start_matches('/').trim_end_matches("/info/refs"));
        let _ = std::fs::remove_dir_all(&pushed);
        git.args(["init", "--quiet", "--bare"]).arg(&pushed).status()?;
        git = Command::new("git");
    }
    git.arg("http-backend").env("GIT_PROJECT_ROOT", folder).env("GIT_HTTP_EXPORT_ALL", "1");
    git.env("PATH_INFO", path).env("QUERY_STRING", query);
    git.env("REQUEST_METHOD", &request.method).env("REMOTE_USER", "a");
    git.env("CONTENT_LENGTH", request.body.len().to_string());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null");
    for (variable, field) in [
        ("CONTENT_TYPE", "content-type"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("GIT_PROTOCOL", "git-protocol"),
    ] {
        git.env(variable, request.field(field).unwrap_or_default());
    }
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut git = git.spawn()?;
    // A repository of one commit: nobody waits for a full pipe.
    git.stdin.take().expect("piped").write_all(&request.body)?;
    let said = git.wait_with_output()?.stdout;
    let end = said.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&said[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let status = field("Status:").unwrap_or_else(|| "200 OK".to_owned());
    Ok((status, field("Content-Type:").unwrap_or_default(), said[end + 4..].to_vec()))
}

/// Accepts a WebSocket (RFC 6455), sends one message, and closes.
fn web_socket(speaker: &mut Speaker) -> io::Result<()> {
    const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let request = Request::read(speaker)?;
    let key = request.field("sec-websocket-key").unwrap_or_default();
    let accept =
        openssl::base64::encode_block(&openssl::sha::sha1(format!("{key}{MAGIC}").as_bytes()));
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    let message = vec![b'm'; 60_000];
    let mut frames = vec![0x82, 126];
    frames.extend((message.len() as u16).to_be_bytes());
    frames.extend(message);
    // Closed with 1000, which is well.
    frames.extend([0x88, 2, 0x03, 0xe8]);
    speaker.answer(head.as_bytes(), &frames)
}

/// A message of PostgreSQL's protocol.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], content].concat()
}

/// Lets a client of PostgreSQL in, and answers one query with one row.
fn postgres(speaker: &mut Speaker) -> io::Result<()> {
    let mut length = [0; 4];
    speaker.read_exact(&mut length)?;
    let mut startup = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    speaker.read_exact(&mut startup)?;
    speaker.said = String::from_utf8_lossy(&startup).into_owned();
    let welcome = [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.0\0"),
        message(b'S', b"client_encoding\0UTF8\0"),
        message(b'Z', b"I"),
    ];
    speaker.stream.write_all(&welcome.concat())?;
    let mut head = [0; 5];
    speaker.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut query = vec![0; length.saturating_sub(4)];
    speaker.read_exact(&mut query)?;
    speaker.said += &String::from_utf8_lossy(&query);
    let text = 25_u32.to_be_bytes();
    let column = [&[0, 1][..], b"a\0", &[0; 6], &text, &[0xff; 2], &[0xff; 4], &[0; 2]].concat();
    let value = vec![b'v'; 50_000];
    let row = [&[0, 1][..], &(value.len() as u32).to_be_bytes(), &value].concat();
    let answer = [
        message(b'T', &column),
        message(b'D', &row),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ];
    speaker.answer(&[], &answer.concat())?;
    if speaker.behaviour.point == Point::All {
        // A client that has all takes an end before its own word for a loss.
        speaker.read_exact(&mut [0; 5])?;
    }
    Ok(())
}

/// Reads one packet of MQTT 3.1.1: its first byte and its content.
fn packet(speaker: &mut Speaker) -> io::Result<(u8, Vec<u8>)> {
    let mut byte = [0];
    speaker.read_exact(&mut byte)?;
    let kind = byte[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        speaker.read_exact(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut content = vec![0; length];
    speaker.read_exact(&mut content)?;
    speaker.said += &format!("{kind:x} {}\n", String::from_utf8_lossy(&content));
    Ok((kind, content))
}

/// Acknowledges one message of a client, or publishes one to it.
fn mqtt(speaker: &mut Speaker) -> io::Result<()> {
    const SUBSCRIBE: u8 = 0x82;
    packet(speaker)?;
    speaker.stream.write_all(&[0x20, 2, 0, 0])?;
    let (kind, content) = packet(speaker)?;
    if content.len() < 2 {
        // It says that it goes.
        return Ok(());
    }
    let number = |at: usize| [content[at], content[at + 1]];
    if kind == SUBSCRIBE {
        let [high, low] = number(0);
        speaker.stream.write_all(&[0x90, 3, high, low, 0])?;
        let payload = [&[0, 1, b't'][..], &[b'p'; 10_000]].concat();
        let length = payload.len();
        let published = [0x30, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
        return speaker.answer(&published, &payload);
    }
    // Behind the topic.
    let at = 2 + usize::from(u16::from_be_bytes(number(0)));
    let [high, low] = number(at);
    speaker.answer(&[0x40, 2], &[high, low])
}
