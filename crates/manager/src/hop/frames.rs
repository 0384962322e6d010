//! The frames between the manager and a program that carries records: the program's turns, and the answers.

use std::io;
use std::time::Duration;

use rustls::ClientConnection;
use tokio::time::timeout;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::messages;
use crate::failure::Failure;
use crate::protocol::{
    Answer, FRAME_BYTES, FRAME_HEAD_BYTES, LENGTH_BYTES, Malformed, Reply, Turn,
};

/// The kind of a program's turn, and the frame's body.
pub(crate) type TurnMessage = (Turn, Vec<u8>);

/// The time in which the body of a frame must arrive.
const WHOLE: Duration = Duration::from_secs(30);

/// Waits for the program's turn. Uses no buffer while it waits.
pub(crate) async fn read(socket: &ProgramSocket) -> io::Result<Result<TurnMessage, Malformed>> {
    let mut head = [0; FRAME_HEAD_BYTES];
    // Descriptors that come along are closed.
    messages::fill(socket, &mut head, &mut Vec::new()).await?;
    let (turn, bytes) = match Turn::read(head) {
        Ok(read) => read,
        Err(malformed) => return Ok(Err(malformed)),
    };
    let mut body = vec![0; bytes];
    // The buffer for the body is held only while the body arrives.
    let whole = timeout(WHOLE, messages::fill(socket, &mut body, &mut Vec::new())).await;
    whole.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(Ok((turn, body)))
}

/// The manager's answer to one turn.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    /// Adds the TLS records that are ready for the server.
    pub(crate) fn records(&mut self, tls: &mut ClientConnection) {
        // Writing to memory never fails.
        while tls.wants_write() && tls.write_tls(self).is_ok() {}
    }

    /// Adds plaintext from the server.
    pub(crate) fn plaintext(&mut self, plaintext: &[u8]) {
        for piece in plaintext.chunks(FRAME_BYTES) {
            self.push(Reply::Plaintext, piece);
        }
    }

    /// Announces the end of the plaintext.
    pub(crate) fn done(&mut self) {
        self.push(Reply::Done, &[]);
    }

    pub(crate) fn message(&mut self, answer: Answer) -> io::Result<()> {
        let message = messages::message(answer)?;
        self.push(Reply::Message, &message[LENGTH_BYTES..]);
        Ok(())
    }

    pub(crate) fn failure(&mut self, failure: Failure) -> io::Result<()> {
        self.message(Answer::Error(failure.into()))
    }

    /// Ends the manager's turn. Waits until the program has taken all frames.
    pub(crate) async fn send(mut self, socket: &ProgramSocket) -> io::Result<()> {
        self.push(Reply::Over, &[]);
        messages::write_all(socket, &self.0).await
    }

    fn push(&mut self, reply: Reply, body: &[u8]) {
        self.0.extend(reply.head(body.len()));
        self.0.extend(body);
    }
}

/// Receives the records that rustls writes.
impl io::Write for Frames {
    fn write(&mut self, records: &[u8]) -> io::Result<usize> {
        let piece = &records[..records.len().min(FRAME_BYTES)];
        self.push(Reply::Records, piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
