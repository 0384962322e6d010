//! The frames in which the manager and a program that carries TLS records itself take turns.
//!
//! A frame is a word of one byte, the length of its body, three bytes, big-endian, and the body. What is in
//! bodies is not read here.

use super::Malformed;

/// The bytes before each body.
pub const FRAME_HEAD_BYTES: usize = 4;
/// The longest body, but for that of [`Reply::Message`], which is as long as an answer.
pub const FRAME_BYTES: usize = 64 * 1024;

/// What a program says, a frame at a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A piece of what the server sent; an empty one asks whether there is anything for the server.
    Records,
    /// Plaintext for the server.
    Plaintext,
    /// There will be no more of it.
    Done,
    /// The server's stream has ended.
    Ended,
    /// The program goes on, and has verified the server.
    Verified,
    /// The program goes on, and has not verified it.
    Accepted,
}

impl Turn {
    /// The frame's word, and how long its body is.
    ///
    /// # Errors
    /// [`Malformed`]: there is no such word, or its body has another length.
    pub fn read(head: [u8; FRAME_HEAD_BYTES]) -> Result<(Self, usize), Malformed> {
        let [word, length @ ..] = head;
        let (turn, most) = match word {
            b'r' => (Self::Records, FRAME_BYTES),
            b'p' => (Self::Plaintext, FRAME_BYTES),
            b'c' => (Self::Done, 0),
            b'e' => (Self::Ended, 0),
            b'v' => (Self::Verified, 0),
            b'a' => (Self::Accepted, 0),
            _ => return Err(Malformed::Text(format!("no frame is called {word:#04x}"))),
        };
        let [high, middle, low] = length;
        match u32::from_be_bytes([0, high, middle, low]) as usize {
            bytes if bytes <= most => Ok((turn, bytes)),
            bytes => {
                let name = char::from(word);
                let wrong = format!("a frame {name} of {bytes} bytes: at most {most}");
                Err(Malformed::Text(wrong))
            }
        }
    }
}

/// What the manager says, in none to many frames at a turn, of which [`Over`](Self::Over) is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Records for the server.
    Records,
    /// Plaintext from the server.
    Plaintext,
    /// An [`Answer`](super::Answer), without its length.
    Message,
    /// The server has said that there will be no more of it.
    Done,
    /// It is the program's turn.
    Over,
}

impl Reply {
    /// What stands before a body of so many bytes, of which there are no more than bounds let be.
    pub fn head(self, bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
        let word = match self {
            Self::Records => b'r',
            Self::Plaintext => b'p',
            Self::Message => b'j',
            Self::Done => b'c',
            Self::Over => b'.',
        };
        let [_, high, middle, low] = (bytes as u32).to_be_bytes();
        [word, high, middle, low]
    }
}

/// Three bytes say how long an answer is.
const _: () = assert!(super::ANSWER_BYTES < 1 << 24 && FRAME_BYTES <= super::ANSWER_BYTES);
