//! The part of HTTP/1.1 that the reference server and simulated devices need.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The field in which a client announces when it connects next, in seconds from now, with decimals
/// if needed: `Next-Connect: 60`.
pub const NEXT_CONNECT: &str = "Next-Connect";

/// The longest request head.
const LONGEST_HEAD_BYTES: usize = 16 * 1024;
/// The longest request body, which is skipped.
const LONGEST_BODY_BYTES: u64 = 1 << 20;
/// The longest `Next-Connect`, 49 days. Longer ones are ignored.
const LONGEST_NEXT_CONNECT_S: f64 = 49.0 * 86_400.0;

/// A request, as far as the server uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The `Host` field, if there is exactly one.
    pub host: Option<String>,
    /// The `Accept` fields, separated by commas.
    pub accept: Option<String>,
    /// True if the client may send another request.
    pub keep_alive: bool,
    /// The time in which the client announces to connect again.
    pub next_connect_ms: Option<u64>,
}

/// Reads a request. `rest` keeps the bytes read beyond it for the next call. Returns `None` at the end
/// of the stream.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for anything else, and those of the stream.
pub async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    rest: &mut Vec<u8>,
) -> io::Result<Option<Request>> {
    loop {
        if let Some((request, head_bytes, body_bytes)) = parse(rest)? {
            rest.drain(..head_bytes);
            skip(stream, rest, body_bytes).await?;
            return Ok(Some(request));
        }
        if rest.len() >= LONGEST_HEAD_BYTES {
            return Err(invalid("request head too long"));
        }
        if stream.read_buf(rest).await? == 0 {
            return if rest.is_empty() { Ok(None) } else { Err(invalid("request cut short")) };
        }
    }
}

fn parse(bytes: &[u8]) -> io::Result<Option<(Request, usize, u64)>> {
    // A head that arrives byte by byte is not parsed at every byte.
    let has = |end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
    if !has(b"\n\r\n") && !has(b"\n\n") {
        return Ok(None);
    }
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(invalid)? else {
        return Ok(None);
    };
    let field = |name: &str| {
        let found = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
    };
    let body_bytes = field("Content-Length").map_or(Ok(0), str::parse::<u64>).map_err(invalid)?;
    if field("Transfer-Encoding").is_some() || body_bytes > LONGEST_BODY_BYTES {
        return Err(invalid("request body too long"));
    }
    let connection = field("Connection").unwrap_or_default();
    let named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("Host");
    let host = field("Host").filter(|_| head.headers.iter().filter(named).count() == 1);
    let request = Request {
        method: head.method.unwrap_or("GET").to_owned(),
        path: head.path.unwrap_or("/").to_owned(),
        host: host.map(str::to_owned),
        accept: list(head.headers, "Accept"),
        keep_alive: head.version == Some(1) && !connection.eq_ignore_ascii_case("close"),
        next_connect_ms: field(NEXT_CONNECT).and_then(milliseconds),
    };
    Ok(Some((request, head_bytes, body_bytes)))
}

/// Returns the values of all fields of this name as one list (RFC 9110, section 5.3).
fn list(fields: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let named = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    let values: Vec<_> = named.filter_map(|field| std::str::from_utf8(field.value).ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Reads a plausible number of seconds; anything else is no hint.
fn milliseconds(seconds: &str) -> Option<u64> {
    let seconds: f64 = seconds.parse().ok()?;
    (0.0..=LONGEST_NEXT_CONNECT_S).contains(&seconds).then_some((seconds * 1_000.0) as u64)
}

async fn skip(
    stream: &mut (impl AsyncRead + Unpin),
    rest: &mut Vec<u8>,
    bytes: u64,
) -> io::Result<()> {
    let there = rest.len().min(bytes as usize);
    rest.drain(..there);
    let mut body = stream.take(bytes - there as u64);
    tokio::io::copy(&mut body, &mut tokio::io::sink()).await.map(drop)
}

/// Returns a response of exactly `total_bytes`, or as few more as its head needs.
pub(crate) fn padded_response(total_bytes: usize, keep_alive: bool) -> Vec<u8> {
    let head = |body| response_head(body, keep_alive).len();
    let mut body = total_bytes.saturating_sub(head(total_bytes));
    body += total_bytes.saturating_sub(head(body) + body);
    response(body, keep_alive)
}

/// Returns a response with a body of this many bytes.
pub(crate) fn response(body_bytes: usize, keep_alive: bool) -> Vec<u8> {
    let mut response = response_head(body_bytes, keep_alive).into_bytes();
    response.resize(response.len() + body_bytes, b'.');
    response
}

fn response_head(body_bytes: usize, keep_alive: bool) -> String {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\
         Connection: {connection}\r\n\r\n"
    )
}

/// Returns the length of a whole response, which is 200 and says how long its body is. `None`: its head is not there yet.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for anything else.
pub fn response_bytes(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(invalid)? else {
        return match bytes.len() < LONGEST_HEAD_BYTES {
            true => Ok(None),
            false => Err(invalid("response head too long")),
        };
    };
    let length = list(head.headers, "Content-Length").and_then(|length| length.parse().ok());
    match (head.code, length) {
        (Some(200), Some(length)) => Ok(Some(head_bytes.saturating_add(length))),
        (Some(200), None) => Err(invalid("the answer does not say its length")),
        _ => Err(invalid("the answer is not HTTP 200")),
    }
}

/// Returns a device's request of exactly `total_bytes`, or as few more as its head needs.
pub fn padded_request(
    host: &str,
    next_connect_ms: Option<u64>,
    total_bytes: usize,
    keep_alive: bool,
) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let hint = next_connect_ms.map_or_else(String::new, |ms| {
        format!("{NEXT_CONNECT}: {}.{:03}\r\n", ms / 1_000, ms % 1_000)
    });
    let mut request =
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n{hint}User-Agent: ");
    let end = "\r\n\r\n";
    let padding = total_bytes.saturating_sub(request.len() + end.len());
    request.extend(std::iter::repeat_n('r', padding.max(1)));
    request.push_str(end);
    request.into_bytes()
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> io::Result<Option<Request>> {
        read_request(&mut &*bytes, &mut Vec::new()).await
    }

    #[tokio::test]
    async fn a_device_is_understood() {
        let bytes = padded_request("localhost", Some(1_500), 773, false);
        assert_eq!(bytes.len(), 773);
        let request = read(&bytes).await.expect("valid").expect("a request");
        let expected = Request {
            method: "GET".into(),
            path: "/".into(),
            host: Some("localhost".into()),
            accept: None,
            keep_alive: false,
            next_connect_ms: Some(1_500),
        };
        assert_eq!(request, expected);
    }

    #[tokio::test]
    async fn requests_follow_each_other_on_one_stream() {
        let bytes = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzGET /b HTTP/1.1\r\n\r\n";
        let (mut stream, mut rest) = (&bytes[..], Vec::new());
        for path in ["/a", "/b"] {
            let request = read_request(&mut stream, &mut rest).await.expect("valid");
            assert_eq!(request.expect("a request").path, path);
        }
        assert_eq!(read_request(&mut stream, &mut rest).await.expect("the end"), None);
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        assert!(read(b"\x16\x03\x01 not http\r\n\r\n").await.is_err());
        assert!(read(b"GET / HTTP/1.1\r\nHost").await.is_err());
        assert!(read(&[b'a'; 20_000]).await.is_err());
        assert!(read(b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n").await.is_err());
    }

    #[tokio::test]
    async fn two_hosts_are_none() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n";
        assert_eq!(read(bytes).await.expect("valid").expect("a request").host, None);
    }

    #[tokio::test]
    async fn what_is_accepted_may_come_in_several_fields() {
        let bytes = b"GET / HTTP/1.1\r\nAccept: a/b\r\nHost: c\r\naccept: d/e;q=0.5,f/g\r\n\r\n";
        let request = read(bytes).await.expect("valid").expect("a request");
        assert_eq!(request.accept.as_deref(), Some("a/b,d/e;q=0.5,f/g"));
    }

    #[test]
    fn only_sensible_hints_count() {
        assert_eq!(milliseconds("60"), Some(60_000));
        assert_eq!(milliseconds("0.25"), Some(250));
        for nonsense in ["", "-1", "NaN", "inf", "1e99", "soon"] {
            assert_eq!(milliseconds(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_end_of_a_response_is_known_by_its_head() {
        let whole = response(300, true);
        assert_eq!(response_bytes(&whole).expect("valid"), Some(whole.len()));
        assert_eq!(response_bytes(&whole[..40]).expect("valid so far"), None);
        for nonsense in [
            &b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"\x16\x03\x01",
        ] {
            assert!(response_bytes(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn responses_are_of_the_size_asked_for() {
        for bytes in [200, 1_405, 36_864, 1 << 20] {
            assert_eq!(padded_response(bytes, false).len(), bytes);
        }
    }
}
