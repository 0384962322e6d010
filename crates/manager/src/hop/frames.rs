//! What a program that carries records says at its turn, and what it is answered: frames on its socket.

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

/// What a program said, and the frame's body.
pub(crate) type TurnMessage = (Turn, Vec<u8>);

/// The body of a frame comes in that time.
const WHOLE: Duration = Duration::from_secs(30);

/// Waits for the program's turn. Between turns nothing is held for it.
pub(crate) async fn read(line: &ProgramSocket) -> io::Result<Result<TurnMessage, Malformed>> {
    let mut head = [0; FRAME_HEAD_BYTES];
    // Descriptors have no business here.
    messages::fill(line, &mut head, &mut Vec::new()).await?;
    let (turn, bytes) = match Turn::read(head) {
        Ok(read) => read,
        Err(malformed) => return Ok(Err(malformed)),
    };
    let mut body = vec![0; bytes];
    // Who has begun goes on: meanwhile there is room for all of it.
    let whole = timeout(WHOLE, messages::fill(line, &mut body, &mut Vec::new())).await;
    whole.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(Ok((turn, body)))
}

/// What the manager answers at one turn.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    /// What there is for the server.
    pub(crate) fn records(&mut self, tls: &mut ClientConnection) {
        // Memory takes all of it.
        while tls.wants_write() && tls.write_tls(self).is_ok() {}
    }

    /// What there is of the server's.
    pub(crate) fn plaintext(&mut self, plaintext: &[u8]) {
        for piece in plaintext.chunks(FRAME_BYTES) {
            self.push(Reply::Plaintext, piece);
        }
    }

    /// That there will be no more of it.
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

    /// Ends the manager's turn. Waits until the program has room for it.
    pub(crate) async fn send(mut self, line: &ProgramSocket) -> io::Result<()> {
        self.push(Reply::Over, &[]);
        messages::write_all(line, &self.0).await
    }

    fn push(&mut self, reply: Reply, body: &[u8]) {
        self.0.extend(reply.head(body.len()));
        self.0.extend(body);
    }
}

/// As rustls writes records.
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
