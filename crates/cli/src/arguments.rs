//! Arguments that several subcommands share.

use std::net::SocketAddr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rejoin_cache::Prediction;
use rejoin_serve::{KeyType, Resumption, Versions};

/// An error in how the command was called: arguments that are well-formed but make no sense together.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// A value of an option: its names, of which only the first is shown, and its help, or nothing.
pub(crate) type Choice<T> = (T, &'static str, &'static str);

/// Returns the first name of a value.
#[cfg(feature = "lab")]
pub(crate) fn name_of<T: PartialEq>(choices: &'static [Choice<T>], value: T) -> &'static str {
    let found = choices.iter().find(|(known, ..)| *known == value);
    found.and_then(|(_, names, _)| names.split(' ').next()).unwrap_or_default()
}

/// Returns a parser of one of these values.
pub(crate) fn one_of<T>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let shown = choices.iter().map(|(_, names, help)| {
        let mut names = names.split(' ');
        let value = PossibleValue::new(names.next().unwrap_or_default()).aliases(names);
        if help.is_empty() { value } else { value.help(*help) }
    });
    PossibleValuesParser::new(shown).try_map(move |name| {
        let is_it = |(_, names, _): &&Choice<T>| names.split(' ').any(|known| known == name);
        choices.iter().find(is_it).map(|(value, ..)| *value).ok_or("an unknown value")
    })
}

/// The values of `--tls`.
pub(crate) const TLS: &[Choice<Versions>] =
    &[(Versions::Tls12, "1.2", ""), (Versions::Tls13, "1.3", ""), (Versions::Both, "both", "")];

/// The values of `--key-type`.
pub(crate) const KEY_TYPES: &[Choice<KeyType>] = &[
    (KeyType::Rsa2048, "rsa-2048 rsa2048", ""),
    (KeyType::P256, "p-256 p256", ""),
    (KeyType::MlDsa65, "ml-dsa-65", "post-quantum; TLS 1.3 only, OpenSSL 3.5 or later"),
];

/// The values of `--resumption`.
pub(crate) const RESUMPTIONS: &[Choice<Resumption>] = &[
    (Resumption::Predictive, "predictive", "Rejoin's cache, evicting by predicted return time"),
    (Resumption::Lru, "lru", "Rejoin's cache, evicting the least recently used session"),
    (Resumption::OpenSsl, "openssl", "OpenSSL's internal cache"),
    (Resumption::Tickets, "tickets", "stateless tickets"),
    (Resumption::None, "none", "full handshakes only"),
];

/// Returns each version of several values of `--tls` once.
#[cfg(feature = "lab")]
pub(crate) fn each_version(tls: &[Versions]) -> Vec<Versions> {
    rejoin_report::distinct(tls.iter().flat_map(|tls| tls.each()).copied())
}

/// The values of `--prediction`.
pub(crate) const PREDICTIONS: &[Choice<Prediction>] = &[
    (Prediction::Hint, "hint", "the times that clients announce, taken at their word"),
    (Prediction::Learned, "learned", "the clients' past visits"),
    (Prediction::Both, "both", "announced times, as far as the client's past visits support them"),
];

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
