//! Arguments that several subcommands share.

use std::net::SocketAddr;

use clap::ValueEnum;
#[cfg(feature = "lab")]
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rejoin_cache::Prediction;
use rejoin_serve::KeyType;
use rejoin_serve::{Resumption, Stack, Versions};

/// An error in how the command was called: arguments that are well-formed but make no sense together.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// A value of `--tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tls {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
    Both,
}

impl From<Tls> for Versions {
    fn from(tls: Tls) -> Self {
        match tls {
            Tls::Tls12 => Self::Tls12,
            Tls::Tls13 => Self::Tls13,
            Tls::Both => Self::Both,
        }
    }
}

/// A value of `--stack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackName {
    Openssl,
    Rustls,
    /// no TLS: plain HTTP, for comparison
    None,
}

impl From<StackName> for Stack {
    fn from(stack: StackName) -> Self {
        match stack {
            StackName::Openssl => Self::OpenSsl,
            StackName::Rustls => Self::Rustls,
            StackName::None => Self::None,
        }
    }
}

/// A value of `--key-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum KeyName {
    #[value(name = "rsa-2048", alias = "rsa2048")]
    Rsa2048,
    #[value(name = "p-256", alias = "p256")]
    P256,
    /// post-quantum; TLS 1.3 only, OpenSSL 3.5 or later
    #[value(name = "ml-dsa-65")]
    MlDsa65,
}

impl From<KeyName> for KeyType {
    fn from(key: KeyName) -> Self {
        match key {
            KeyName::Rsa2048 => Self::Rsa2048,
            KeyName::P256 => Self::P256,
            KeyName::MlDsa65 => Self::MlDsa65,
        }
    }
}

/// A value of `--resumption`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum ResumptionName {
    /// Rejoin's cache, evicting by predicted return time
    Predictive,
    /// Rejoin's cache, evicting the least recently used session
    Lru,
    /// OpenSSL's internal cache
    Openssl,
    /// stateless tickets
    Tickets,
    /// full handshakes only
    None,
}

impl From<ResumptionName> for Resumption {
    fn from(resumption: ResumptionName) -> Self {
        match resumption {
            ResumptionName::Predictive => Self::Predictive,
            ResumptionName::Lru => Self::Lru,
            ResumptionName::Openssl => Self::OpenSsl,
            ResumptionName::Tickets => Self::Tickets,
            ResumptionName::None => Self::None,
        }
    }
}

/// A value of `--prediction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PredictionName {
    /// the times that clients announce, taken at their word
    Hint,
    /// the clients' past visits
    Learned,
    /// announced times, as far as the client's past visits support them
    Both,
}

impl From<PredictionName> for Prediction {
    fn from(prediction: PredictionName) -> Self {
        match prediction {
            PredictionName::Hint => Self::Hint,
            PredictionName::Learned => Self::Learned,
            PredictionName::Both => Self::Both,
        }
    }
}

#[cfg(feature = "lab")]
impl PredictionName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hint => "hint",
            Self::Learned => "learned",
            Self::Both => "both",
        }
    }
}

/// Returns a parser of all values of an enumeration but one.
#[cfg(feature = "lab")]
pub(crate) fn all_but<T>(left_out: T) -> impl TypedValueParser<Value = T>
where
    T: ValueEnum + PartialEq + Send + Sync + 'static,
{
    let values = T::value_variants().iter().filter(|value| **value != left_out);
    PossibleValuesParser::new(values.filter_map(ValueEnum::to_possible_value))
        .try_map(|name| T::from_str(&name, false))
}

/// Reads an address with a port. `localhost` means 127.0.0.1 and is not looked up.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = port.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "give ADDRESS:PORT, such as 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_have_ports_and_one_has_a_name() {
        for known in ["127.0.0.1:9464", "localhost:9464"] {
            assert_eq!(address(known).map(|known| known.to_string()), Ok("127.0.0.1:9464".into()));
        }
        for wrong in ["9464", ":9464", "localhost", "localhost:", "example.com:9464", ""] {
            assert!(address(wrong).is_err_and(|why| why.contains("127.0.0.1:9464")), "{wrong}");
        }
    }
}
