//! Arguments that several subcommands share, and how they are written.

use std::str::FromStr;

use clap::ValueEnum;
use rejoin_cache::{Capacity, Prediction};
use rejoin_serve::KeyType;
use rejoin_serve::{Resumption, Stack, Versions};

/// Arguments that are well-formed one by one and make no sense together.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// `--tls`
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

/// `--stack`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackName {
    Openssl,
    Rustls,
    /// no TLS: HTTP in clear, to compare with
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

/// `--key`, and `--key-type`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum KeyName {
    #[value(name = "rsa-2048", alias = "rsa2048")]
    Rsa2048,
    #[value(name = "p-256", alias = "p256")]
    P256,
    /// post-quantum, in TLS 1.3 alone; OpenSSL from 3.5 on
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

/// `--resumption`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum ResumptionName {
    /// our cache, evicting by return time
    Predictive,
    /// our cache, evicting the least recently used
    Lru,
    /// OpenSSL's own cache
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

/// `--prediction`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PredictionName {
    /// what clients announce, taken at their word
    Hint,
    /// clients' own past visits
    Learned,
    /// announcements, as far as the client's past supports them
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

/// A number of bytes: `4096`, `64KiB`, `512MiB`, `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            Capacity::Bytes(bytes) | Capacity::Sessions(bytes) => Ok(Self(bytes)),
        }
    }
}

/// A positive number of seconds, a fraction allowed, as milliseconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    const LONGEST_S: f64 = 3.2e9;
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    let valid = seconds > 0.0 && seconds <= LONGEST_S;
    valid
        .then_some((seconds * 1_000.0).round() as u64)
        .ok_or_else(|| "a number of seconds above 0, a century at most".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!("7".parse(), Ok(Bytes(7)));
        for wrong in ["", "MiB", "1MB", "-1", "99999999999GiB"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(seconds("0.25"), Ok(250));
        for wrong in ["0", "-1", "NaN", "inf", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
