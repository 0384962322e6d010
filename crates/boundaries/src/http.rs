//! Requests of HTTP/1.1 in pieces of any size: the sizes change nothing, and memory is bounded.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use rejoin_serve::{Request, read_request};
use rejoin_testkit::memory::peak_bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// The longest head, and more than a buffer has beyond it.
const MOST_BYTES: usize = 128 << 10;
const LONGEST_HINT_MS: u64 = 49 * 86_400_000;

pub(crate) fn check(bytes: &[u8]) {
    let Some(([size, other], said)) = bytes.split_first_chunk() else { return };
    let sizes = [usize::MAX, 1, 1 + usize::from(*size), 1 + 64 * usize::from(*other)];
    let [whole, rest @ ..] = sizes.map(|size| {
        let mut heard = None;
        let peak = peak_bytes(|| heard = Some(hear(said, size)));
        let heard = heard.expect("it was heard");
        assert!(peak < MOST_BYTES + 8 * said.len(), "{peak} bytes");
        heard
    });
    for request in &whole.0 {
        assert!(request.next_connect_ms.is_none_or(|ms| ms <= LONGEST_HINT_MS));
        assert!(
            !request.method.is_empty() && request.method.len() + request.path.len() <= said.len()
        );
    }
    for pieces in rest {
        assert_eq!(whole, pieces);
    }
}

/// Reads all requests. The flag is true if they ended well.
fn hear(said: &[u8], size: usize) -> (Vec<Request>, bool) {
    let (mut pieces, mut rest, mut heard) = (Pieces { said, size }, Vec::new(), Vec::new());
    loop {
        match ready(read_request(&mut pieces, &mut rest)) {
            Ok(Some(request)) => heard.push(request),
            Ok(None) => return (heard, true),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                return (heard, false);
            }
        }
    }
}

/// A stream whose reads give so many bytes.
struct Pieces<'s> {
    said: &'s [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.said.len().min(self.size).min(into.remaining());
        let (piece, rest) = self.said.split_at(length);
        into.put_slice(piece);
        self.said = rest;
        Poll::Ready(Ok(()))
    }
}

/// Returns the result of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
    panic!("it waits for more than its stream");
}
