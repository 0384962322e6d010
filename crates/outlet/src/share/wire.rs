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

/// Writes a message. Fails if the client does not take it in time: with [`Refusal::Broken`] if it has a part of it, because it
/// would take what comes next for the rest.
pub(super) async fn write(stream: &mut UnixStream, message: &[u8]) -> Result<(), Refusal> {
    let length = u32::try_from(message.len()).map_err(|_| Refusal::Broken)?;
    let mut frame = Zeroizing::new(Vec::with_capacity(4 + message.len()));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    let mut rest = &frame[..];
    let written = timeout(Share::PATIENCE, stream.write_all_buf(&mut rest)).await;
    match written {
        Ok(written) => written.map_err(|_| Refusal::Broken),
        Err(_) if rest.len() == frame.len() => Err(Refusal::Untaken),
        Err(_) => Err(Refusal::Broken),
    }
}

/// Tells the client why the connection ends.
pub(super) async fn refuse(stream: &mut UnixStream, refusal: &Refusal) {
    let error = serde_json::json!({"kind": refusal.kind(), "message": refusal.to_string()});
    let message = serde_json::json!({"rejoin": 1, "error": error}).to_string();
    // The connection ends in any case.
    let _ = write(stream, message.as_bytes()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody reads at the other end of these.
    #[tokio::test]
    async fn a_part_of_an_answer_is_told_from_none() {
        let [(mut one, _other), (mut parted, _far)] =
            [(); 2].map(|()| UnixStream::pair().expect("a pair"));
        let whole = async {
            loop {
                if let Err(refusal) = write(&mut one, &[7; 1_000]).await {
                    break refusal;
                }
            }
        };
        let (whole, part) = tokio::join!(whole, write(&mut parted, &[7; 8 << 20]));
        assert_eq!((whole, part), (Refusal::Untaken, Err(Refusal::Broken)));
    }
}
