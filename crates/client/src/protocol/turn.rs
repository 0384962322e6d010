//! The frames in which the manager and a program that carries TLS records itself take turns.
//!
//! A frame is a word of one byte, the length of its body as three bytes in big-endian order, and the body. Bodies are
//! not read here.

use super::Malformed;

/// The bytes before each body.
pub const FRAME_HEAD_BYTES: usize = 4;
/// The longest body. Only that of [`Reply::Message`] may be longer, as long as an answer.
pub const FRAME_BYTES: usize = 64 * 1024;

/// A frame of the program, one at each turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A piece of what the server sent; an empty one asks whether there is anything for the server.
    Records,
    /// Plaintext for the server.
    Plaintext,
    /// The end of the plaintext.
    Done,
    /// The end of the server's stream.
    Ended,
    /// The program goes on, and has verified the server.
    Verified,
    /// The program goes on, and has not verified it.
    Accepted,
}

impl Turn {
    /// Reads a frame's word and the length of its body.
    ///
    /// # Errors
    /// [`Malformed`] if there is no such word, or its body cannot have this length.
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

/// A frame of the manager. A turn has any number of them, of which [`Over`](Self::Over) is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Records for the server.
    Records,
    /// Plaintext from the server.
    Plaintext,
    /// An [`Answer`](super::Answer), without its length.
    Message,
    /// The server's close_notify.
    Done,
    /// The end of the manager's turn.
    Over,
}

impl Reply {
    /// Writes the head of a frame. The length of the body is within its bounds.
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
