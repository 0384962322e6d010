//! Frames: a length of four bytes, and that many bytes of JSON.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::Share;
use super::messages::{LONGEST_BYTES, Refusal};

/// Reads a message. `None` at the end of the connection.
pub(super) async fn read(stream: &mut UnixStream) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
    let Ok(length) = stream.read_u32().await else { return Ok(None) };
    if length > LONGEST_BYTES {
        return Err(Refusal::TooLarge);
    }
    let mut message = Zeroizing::new(vec![0; length as usize]);
    let rest = stream.read_exact(&mut message);
    // A client that stops in the middle of a message holds a place.
    let read = timeout(Share::PATIENCE, rest).await.map_err(|_| Refusal::Late)?;
    read.map(|_| Some(message)).map_err(|_| Refusal::Broken)
}

/// Writes a message. Fails if the client does not take it in time.
pub(super) async fn write(stream: &mut UnixStream, message: &[u8]) -> Result<(), Refusal> {
    let written = async {
        let length = u32::try_from(message.len()).map_err(std::io::Error::other)?;
        let mut frame = Zeroizing::new(Vec::with_capacity(4 + message.len()));
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(message);
        stream.write_all(&frame).await
    };
    let in_time = timeout(Share::PATIENCE, written).await.map_err(|_| Refusal::Late)?;
    in_time.map_err(|_| Refusal::Broken)
}

/// Tells the client why the connection ends.
pub(super) async fn refuse(stream: &mut UnixStream, refusal: &Refusal) {
    let error = serde_json::json!({"kind": refusal.kind(), "message": refusal.to_string()});
    let message = serde_json::json!({"rejoin": 1, "error": error}).to_string();
    // The connection ends in any case.
    let _ = write(stream, message.as_bytes()).await;
}
