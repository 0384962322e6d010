//! A program that speaks the protocol by hand: it follows `docs/manager-protocol.md`, and not the
//! manager's own types.

use std::io::{IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use crate::process::DEADLINE;

#[derive(Clone)]
pub struct Program {
    socket: PathBuf,
}

/// An established connection.
#[derive(Debug)]
pub struct Connection {
    pub stream: UnixStream,
    pub facts: Value,
}

impl Program {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub fn dial(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("a manager");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream
    }

    pub fn ask(&self, request: &Value) -> (UnixStream, Value) {
        let mut stream = self.dial();
        send(&mut stream, request);
        let answer = answer(&mut stream);
        (stream, answer)
    }

    /// Asks with a socket, which goes with the request.
    pub fn ask_passing(&self, request: &Value, socket: &dyn AsFd) -> (UnixStream, Value) {
        let mut stream = self.dial();
        pass(&stream, &message(request), socket);
        let answer = answer(&mut stream);
        (stream, answer)
    }

    /// A connection to a name, at a port of this machine.
    pub fn connect(&self, host: &str, port: u16, wishes: Value) -> Result<Connection, Value> {
        self.connect_with(host, port, wishes, &[])
    }

    /// The same, with plaintext right behind the request.
    pub fn connect_with(
        &self,
        host: &str,
        port: u16,
        wishes: Value,
        first: &[u8],
    ) -> Result<Connection, Value> {
        let mut wish = json!({"host": host, "port": port, "addresses": ["127.0.0.1"]});
        for (field, value) in wishes.as_object().expect("an object") {
            wish[field] = value.clone();
        }
        let mut message = message(&json!({"rejoin": 1, "connect": wish}));
        message.extend(first);
        let mut stream = self.dial();
        stream.write_all(&message).expect("taken");
        let mut answer = answer(&mut stream);
        match answer["connected"].take() {
            Value::Null => Err(answer["error"].take()),
            facts => Ok(Connection { stream, facts }),
        }
    }

    /// Connects, and returns the kind of the error that is expected.
    pub fn kind(&self, host: &str, port: u16, wishes: Value) -> String {
        match self.connect(host, port, wishes) {
            Ok(Connection { facts, .. }) => format!("connected: {facts}"),
            Err(error) => error["kind"].as_str().expect("a kind").to_owned(),
        }
    }

    /// Connects, exchanges a word with an `s_server -rev` or one that behaves like it, and ends. Sessions
    /// that the server issued are stored when this returns. Returns why it was resumed, or not.
    pub fn visit(&self, host: &str, port: u16, wishes: Value) -> String {
        let connection = self.connect(host, port, wishes);
        connection.unwrap_or_else(|error| panic!("{host}: {error}")).talk()
    }

    pub fn end(&self, connection: &Value) -> String {
        let (_, answer) = self.ask(&json!({"rejoin": 1, "end": {"connection": connection}}));
        answer["end"].as_str().expect("an end").to_owned()
    }

    pub fn stats(&self) -> Value {
        self.ask(&json!({"rejoin": 1, "stats": {}})).1["stats"].take()
    }
}

impl Connection {
    /// The word that the server sends back follows its tickets, in TLS 1.3.
    pub fn talk(mut self) -> String {
        self.stream.write_all(b"hello\n").expect("taken");
        let mut word = [0; 6];
        self.stream.read_exact(&mut word).expect("an answer");
        assert_eq!(&word, b"olleh\n");
        self.why().to_owned()
    }

    pub fn why(&self) -> &str {
        self.facts["why"].as_str().expect("a word")
    }
}

pub fn send(stream: &mut UnixStream, request: &Value) {
    stream.write_all(&message(request)).expect("taken");
}

fn message(request: &Value) -> Vec<u8> {
    let request = request.to_string();
    let length = (request.len() as u32).to_be_bytes();
    [&length, request.as_bytes()].concat()
}

pub fn answer(stream: &mut UnixStream) -> Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).expect("an answer");
    serde_json::from_slice(&answer).expect("JSON")
}

/// Sends bytes, and a socket with the first.
pub fn pass(stream: &UnixStream, bytes: &[u8], socket: &dyn AsFd) {
    pass_with(stream, bytes, socket, SendFlags::empty());
}

pub fn pass_with(stream: &UnixStream, bytes: &[u8], socket: &dyn AsFd, flags: SendFlags) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let socket = [socket.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&socket)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, flags);
    assert_eq!(sent, Ok(bytes.len()));
}
