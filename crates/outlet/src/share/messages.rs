//! Messages of programs, parsed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_cache::{SecretBytes, SessionId};
use rejoin_tickets::{LONGEST_TICKET_LIFETIME_S, ServerKeyForm};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::Context;

/// The longest message of a program, in bytes.
pub const LONGEST_BYTES: u32 = 128 * 1024;

/// The first message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// It follows the keys of a context.
    Keys {
        /// The context.
        context: Context,
        /// The form of the keys.
        form: ServerKeyForm,
    },
    /// It keeps the sessions of a context.
    Sessions {
        /// The context.
        context: Context,
    },
}

/// A request for sessions.
#[derive(Debug)]
pub enum Request {
    /// Returns a session and removes it.
    Take(SessionId),
    /// Returns a session.
    Get(SessionId),
    /// Stores a session.
    Put(Put),
    /// Records when the client of a session returns.
    Hint {
        /// The session.
        id: SessionId,
        /// The time until then, in milliseconds.
        returns_in_ms: u64,
    },
    /// Removes a session.
    Remove(SessionId),
}

/// A session to store.
#[derive(Debug)]
pub struct Put {
    /// Its id.
    pub id: SessionId,
    /// The session.
    pub session: SecretBytes,
    /// Its lifetime, in milliseconds.
    pub lifetime_ms: u64,
    /// The session that its client presented.
    pub after: Option<SessionId>,
    /// True if the handshake resumed a session. `None`: the program does not say, and `after` tells it.
    pub resumed: Option<bool>,
    /// The application's hint: the time until the client returns, in milliseconds.
    pub returns_in_ms: Option<u64>,
}

/// The reason why a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The protocol has another version.
    Version,
    /// The message is no request of this protocol.
    BadRequest(String),
    /// The message is too long.
    TooLarge,
    /// There are too many connections.
    Busy,
    /// No message came in time.
    Late,
    /// No answer was taken in time.
    Untaken,
    /// The connection is broken.
    Broken,
}

impl Refusal {
    /// The word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::BadRequest(_) | Self::Late | Self::Untaken | Self::Broken => "bad_request",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("this share speaks version 1: send \"rejoin\": 1 first"),
            Self::BadRequest(why) => f.write_str(why),
            Self::TooLarge => write!(f, "a message has at most {LONGEST_BYTES} bytes"),
            Self::Busy => {
                write!(f, "the share has {} connections: try again", super::Share::MOST_CONNECTIONS)
            }
            Self::Late => f.write_str("no message came in ten seconds"),
            Self::Untaken => f.write_str("an answer was not taken in ten seconds"),
            Self::Broken => f.write_str("the connection is broken"),
        }
    }
}

impl First {
    /// Parses a message.
    ///
    /// # Errors
    /// Another version; a message of another form.
    pub fn parse(message: &[u8]) -> Result<Self, Refusal> {
        let version: Version = parsed(message)?;
        if version.rejoin != Some(1) {
            return Err(Refusal::Version);
        }
        let context = |name: String| Context::new(&name).map_err(|error| bad(&error));
        match parsed(message)? {
            FirstText { keys: Some(wanted), sessions: None, .. } => {
                let form = match wanted.form.as_str() {
                    "raw80" => ServerKeyForm::Raw80,
                    "raw48" => ServerKeyForm::Raw48,
                    "raw32" => ServerKeyForm::Raw32,
                    _ => {
                        // It may be long, and an answer has a limit.
                        let what = "there is no such form: ask for raw80, raw48 or raw32";
                        return Err(Refusal::BadRequest(what.to_owned()));
                    }
                };
                Ok(Self::Keys { context: context(wanted.context)?, form })
            }
            FirstText { keys: None, sessions: Some(wanted), .. } => {
                Ok(Self::Sessions { context: context(wanted.context)? })
            }
            _ => Err(Refusal::BadRequest("ask for keys or for sessions".to_owned())),
        }
    }
}

impl Request {
    /// Parses a message.
    ///
    /// # Errors
    /// A message of another form.
    pub fn parse(message: &[u8]) -> Result<Self, Refusal> {
        Ok(match parsed(message)? {
            RequestText::Take(id) => Self::Take(session_id(&id)?),
            RequestText::Get(id) => Self::Get(session_id(&id)?),
            RequestText::Remove(id) => Self::Remove(session_id(&id)?),
            RequestText::Hint(HintText { id, returns_in_s }) => {
                Self::Hint { id: session_id(&id)?, returns_in_ms: milliseconds(returns_in_s)? }
            }
            RequestText::Put(put) => Self::Put(put.parse()?),
        })
    }
}

/// The version, whatever else is there.
#[derive(Deserialize)]
struct Version {
    rejoin: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstText {
    #[serde(rename = "rejoin")]
    _rejoin: u64,
    keys: Option<KeysText>,
    sessions: Option<SessionsText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysText {
    context: String,
    form: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionsText {
    context: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequestText {
    Take(String),
    Get(String),
    Put(PutText),
    Hint(HintText),
    Remove(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutText {
    id: String,
    #[serde(deserialize_with = "secret")]
    session: Zeroizing<String>,
    lifetime_s: u64,
    after: Option<String>,
    resumed: Option<bool>,
    returns_in_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HintText {
    id: String,
    returns_in_s: f64,
}

impl PutText {
    fn parse(&self) -> Result<Put, Refusal> {
        if !(1..=LONGEST_TICKET_LIFETIME_S).contains(&self.lifetime_s) {
            let what = format!("lifetime_s is 1 to {LONGEST_TICKET_LIFETIME_S}");
            return Err(Refusal::BadRequest(what));
        }
        let mut session = SecretBytes::default();
        let room = session.resize(self.session.len() / 4 * 3 + 3);
        let decoded = STANDARD.decode_slice(self.session.as_bytes(), room);
        let length =
            decoded.map_err(|_| Refusal::BadRequest("session is not base64".to_owned()))?;
        session.resize(length);
        Ok(Put {
            id: session_id(&self.id)?,
            session,
            lifetime_ms: self.lifetime_s * 1_000,
            after: self.after.as_deref().map(session_id).transpose()?,
            resumed: self.resumed,
            returns_in_ms: self.returns_in_s.map(milliseconds).transpose()?,
        })
    }
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(from).map(Zeroizing::new)
}

fn parsed<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<T, Refusal> {
    // The text of an error may quote a secret.
    serde_json::from_slice(message).map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Data => "the message has unknown, missing or wrong fields",
            _ => "the message is not JSON",
        };
        Refusal::BadRequest(format!("{kind} (column {})", error.column()))
    })
}

fn bad(error: &crate::Error) -> Refusal {
    Refusal::BadRequest(error.to_string())
}

fn session_id(text: &str) -> Result<SessionId, Refusal> {
    let bad = || Refusal::BadRequest("an id is base64 of 1 to 32 bytes".to_owned());
    let mut bytes = [0; 36];
    let length = STANDARD.decode_slice(text, &mut bytes).map_err(|_| bad())?;
    SessionId::new(&bytes[..length]).map_err(|_| bad())
}

fn milliseconds(seconds: f64) -> Result<u64, Refusal> {
    const MOST_S: f64 = 49.0 * 86_400.0;
    let fits = (0.0..=MOST_S).contains(&seconds);
    let bad = || Refusal::BadRequest("returns_in_s is 0 to 4,233,600".to_owned());
    if fits { Ok((seconds * 1_000.0) as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> String {
        let first = First::parse(message.as_bytes()).map(|_| ());
        first.expect_err("refused").to_string()
    }

    #[test]
    fn first_messages_are_parsed() {
        let context = Context::new("shop").expect("a context");
        let keys = br#"{"rejoin": 1, "keys": {"context": "shop", "form": "raw48"}}"#;
        let form = ServerKeyForm::Raw48;
        assert_eq!(First::parse(keys), Ok(First::Keys { context: context.clone(), form }));
        let sessions = br#"{"sessions": {"context": "shop"}, "rejoin": 1}"#;
        assert_eq!(First::parse(sessions), Ok(First::Sessions { context }));
        let version = "this share speaks version 1: send \"rejoin\": 1 first";
        assert_eq!(refused(r#"{"rejoin": 2, "keys": {"more": 1}}"#), version);
        assert_eq!(refused("{}"), version);
        assert_eq!(refused(r#"{"rejoin": 1}"#), "ask for keys or for sessions");
        assert!(
            refused(r#"{"rejoin": 1, "keys": {"context": "", "form": "raw48"}}"#)
                .contains("1 to 255")
        );
        let form = "\\u200b".repeat(20_000);
        let keys = format!(r#"{{"rejoin": 1, "keys": {{"context": "a", "form": "{form}"}}}}"#);
        assert_eq!(refused(&keys), "there is no such form: ask for raw80, raw48 or raw32");
        assert!(
            refused(r#"{"rejoin": 1, "sessions": {"context": "a", "b": 1}}"#).contains("unknown")
        );
        assert!(refused("{").contains("not JSON"));
    }

    #[test]
    fn a_put_is_bounded() {
        let put = |fields: &str| {
            let message =
                format!(r#"{{"put": {{"id": "aWQ=", "session": "c2VjcmV0", {fields}}}}}"#);
            Request::parse(message.as_bytes())
        };
        let Ok(Request::Put(whole)) =
            put(r#""lifetime_s": 60, "after": "b2xk", "returns_in_s": 1.5"#)
        else {
            panic!("a put");
        };
        assert_eq!((whole.id.as_bytes(), &whole.session[..]), (&b"id"[..], &b"secret"[..]));
        assert_eq!((whole.lifetime_ms, whole.returns_in_ms), (60_000, Some(1_500)));
        assert_eq!(whole.after.map(|id| id.as_bytes().to_vec()), Some(b"old".to_vec()));
        for wrong in [r#""lifetime_s": 0"#, r#""lifetime_s": 604801"#, r#""lifetime_s": -1"#] {
            assert!(put(wrong).is_err(), "{wrong}");
        }
        assert!(put(r#""lifetime_s": 60, "returns_in_s": -1"#).is_err());
        assert!(put(r#""lifetime_s": 60, "returns_in_s": 1e300"#).is_err());
        assert!(put(r#""lifetime_s": 60, "after": """#).is_err());
        let long = format!(r#"{{"take": "{}"}}"#, "A".repeat(44));
        assert!(Request::parse(long.as_bytes()).is_err(), "33 bytes");
    }

    #[test]
    fn an_error_quotes_no_session() {
        let error = Request::parse(
            br#"{"put": {"id": "aWQ=", "session": 12345, "lifetime_s": "c2VjcmV0"}}"#,
        );
        let text = error.expect_err("refused").to_string();
        assert!(!text.contains("12345") && !text.contains("c2VjcmV0"), "{text}");
    }
}
