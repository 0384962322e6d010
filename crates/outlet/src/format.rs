//! The servers that read keys from files: what each can hold, and which of its keys encrypts.

use rejoin_tickets::{KeyRing, Schedule, ServerKeyForm};

/// The form of files, by the server that reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A folder with a file for each key, and `keys.conf`, which the configuration includes.
    Nginx,
    /// `tls-ticket-keys`: three keys in base64, one per line.
    Haproxy,
    /// `SSLSessionTicketKeyFile`: one key.
    Apache,
    /// A file of the secret discovery service.
    Envoy,
    /// A manifest of a Secret, as Cilium synchronises it to Envoy.
    Kubernetes,
    /// `ticketKeys` of `tls.createServer`: one key.
    Node,
    /// All keys one after another, each of 80 bytes.
    Raw80,
    /// All keys one after another, each of 48 bytes.
    Raw48,
    /// The keys with their states, as programs get them from a share.
    Json,
}

impl Format {
    /// The form of each key.
    pub fn form(self) -> ServerKeyForm {
        match self {
            Self::Nginx | Self::Envoy | Self::Kubernetes | Self::Raw80 | Self::Json => {
                ServerKeyForm::Raw80
            }
            Self::Haproxy => ServerKeyForm::Haproxy,
            Self::Apache | Self::Node | Self::Raw48 => ServerKeyForm::Raw48,
        }
    }

    /// The most keys that the server holds.
    pub fn most_keys(self) -> usize {
        match self {
            Self::Apache | Self::Node => 1,
            Self::Haproxy => 3,
            // `tls.sessionticket.key` and `tls.sessionticket.key.1` to `.9`.
            Self::Kubernetes => 10,
            _ => KeyRing::MOST_KEYS,
        }
    }

    /// Returns the consequence of a schedule that needs more keys than the server holds, or `None` if it holds all.
    pub fn shortfall(self, schedule: &Schedule) -> Option<String> {
        let (turn_s, lifetime_s) = (schedule.rotate_every_s(), schedule.ticket_lifetime_s());
        let most = self.most_keys() as u64;
        if most == 1 {
            return Some(
                "the server holds one key: at each rotation the tickets of the key before become full handshakes"
                    .to_owned(),
            );
        }
        // One key encrypts, and one may be upcoming.
        let opens_s = (most - 2) * turn_s;
        (opens_s < lifetime_s).then(|| {
            format!(
                "the server holds {most} keys: it refuses tickets {opens_s} s after their key's turn, although they are \
                 valid for {lifetime_s} s; rotate every {} s or less often to lose none",
                lifetime_s.div_ceil(most - 2)
            )
        })
    }
}

impl Format {
    /// Returns a fault of the server in its use of the file, or `None` if it uses all of it.
    pub fn fault(self) -> Option<&'static str> {
        const OF_APACHE: &str = "Apache on OpenSSL 3 leaves the file's HMAC key unused, and authenticates tickets by no secret; \
            let Rejoin in instead, by `rejoin enable apache2` (docs/keys.md)";
        (self == Self::Apache).then_some(OF_APACHE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_few_keys_is_told_of() {
        let schedule = |turn_s| Schedule::with_usual_lead(turn_s, 86_400).expect("a schedule");
        assert_eq!(Format::Haproxy.shortfall(&schedule(86_400)), None);
        let told = Format::Haproxy.shortfall(&schedule(43_200)).expect("two days are needed");
        assert!(told.contains("43200 s after") && told.contains("every 86400 s"), "{told}");
        assert!(Format::Apache.shortfall(&schedule(86_400)).is_some());
        assert_eq!(Format::Kubernetes.shortfall(&schedule(10_800)), None);
        assert!(Format::Kubernetes.shortfall(&schedule(10_000)).is_some());
        assert_eq!(Format::Envoy.shortfall(&schedule(43_200)), None);
    }
}
