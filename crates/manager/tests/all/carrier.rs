//! A program that carries records between its own TCP socket and the manager.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use rejoin_testkit::house::House;
use rejoin_testkit::house::program::{answer, send};

pub(crate) struct Carrier {
    pub(crate) stream: UnixStream,
    tcp: TcpStream,
}

/// The frames of one turn of the manager. Records among them have been sent to the server.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The words of its frames.
    pub(crate) words: String,
    pub(crate) plaintext: Vec<u8>,
    pub(crate) message: Value,
}

/// A frame as the program writes it.
pub(crate) fn frame(word: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[word][..], &length, body].concat()
}

impl Carrier {
    /// Offers a connection to the manager. Returns the manager's error if it refuses.
    pub(crate) fn offer(house: &House, port: u16, wishes: Value) -> Result<Self, Value> {
        let mut wish = json!({"host": "server.test", "port": port, "address": "127.0.0.1"});
        for (field, value) in wishes.as_object().expect("an object") {
            wish[field] = value.clone();
        }
        let mut stream = house.program().dial();
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        send(&mut stream, &json!({"rejoin": 1, "records": wish}));
        let mut said = answer(&mut stream);
        if said["ready"] != json!({}) {
            return Err(said["error"].take());
        }
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
        tcp.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Ok(Self { stream, tcp })
    }

    /// Offers a connection to a server that the manager may call itself.
    pub(crate) fn trusting(house: &House, port: u16) -> Result<Self, Value> {
        Self::offer(house, port, json!({"trust": {"bundle": house.authority.pem()}}))
    }

    /// Offers a connection. Returns the kind of the error, or `ready`.
    pub(crate) fn kind(house: &House, port: u16, wishes: Value) -> String {
        match Self::offer(house, port, wishes) {
            Ok(_) => "ready".to_owned(),
            Err(error) => error["kind"].as_str().expect("a kind").to_owned(),
        }
    }

    /// Takes one turn of each side. `None`: the manager has closed the connection.
    pub(crate) fn turn(&mut self, word: u8, body: &[u8]) -> Option<Heard> {
        self.stream.write_all(&frame(word, body)).ok()?;
        self.replies()
    }

    pub(crate) fn replies(&mut self) -> Option<Heard> {
        let mut heard = Heard::default();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head).ok()?;
            let [word, high, middle, low] = head;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            assert!(length <= 64 * 1024 || word == b'j', "{length} bytes of {word}");
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).ok()?;
            match word {
                b'r' => self.tcp.write_all(&body).unwrap_or_default(),
                b'p' => heard.plaintext.extend(body),
                b'j' => heard.message = serde_json::from_slice(&body).expect("JSON"),
                b'c' | b'.' => assert!(body.is_empty()),
                _ => panic!("a frame {word}"),
            }
            if word == b'.' {
                return Some(heard);
            }
            heard.words.push(char::from(word));
        }
    }

    /// Takes a turn with the server's next bytes, or with its end.
    pub(crate) fn carry(&mut self) -> Option<Heard> {
        let mut piece = vec![0; 64 * 1024];
        match self.tcp.read(&mut piece) {
            Ok(read @ 1..) => self.turn(b'r', &piece[..read]),
            _ => self.turn(b'e', &[]),
        }
    }

    /// Carries the server's bytes until a frame of this kind comes. Returns everything up to it.
    pub(crate) fn carry_until(&mut self, word: char) -> Heard {
        let mut all = Heard::default();
        for _ in 0..10 {
            let Heard { words, plaintext, message } = self.carry().expect("the manager");
            all.words.push_str(&words);
            all.plaintext.extend(plaintext);
            if words.contains(word) {
                return Heard { message, ..all };
            }
        }
        panic!("no {word}: {all:?}");
    }

    /// Performs the handshake. Returns the manager's message at its end.
    pub(crate) fn shake(&mut self) -> Option<Value> {
        let mut heard = self.turn(b'r', &[])?;
        while heard.message.is_null() {
            heard = self.carry()?;
        }
        assert_eq!(heard.plaintext, b"", "nobody has gone on");
        Some(heard.message)
    }

    /// Performs the handshake, and goes on. Returns the description of the connection.
    pub(crate) fn connect(&mut self, word: u8) -> Value {
        let mut said = self.shake().expect("a handshake");
        assert_eq!(said["rejoin"], 1);
        assert_eq!(self.turn(word, &[]).expect("it goes on").words, "");
        said["connected"].take()
    }

    /// Reads at least this many bytes of plaintext.
    pub(crate) fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while read.len() < bytes {
            read.extend(self.carry().expect("the manager").plaintext);
        }
        read
    }

    /// Exchanges a line with a server that sends lines back reversed.
    pub(crate) fn talk(&mut self) {
        assert_eq!(self.turn(b'p', b"hello\n").expect("a turn").words, "r");
        assert_eq!(self.read(6), b"olleh\n");
    }
}

/// Makes a connection, verifies the server, and exchanges a line. Returns the reason why it was resumed or not.
pub(crate) fn carried(house: &House, port: u16, wishes: Value) -> String {
    let mut carrier = Carrier::offer(house, port, wishes).expect("taken");
    let facts = carrier.connect(b'v');
    carrier.talk();
    facts["why"].as_str().expect("a word").to_owned()
}
