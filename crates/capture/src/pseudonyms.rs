//! Anonymous results: names, addresses and file names replaced by consistent pseudonyms.

use std::hash::Hasher;
use std::net::SocketAddr;

use serde_json::Value;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::report::Report;
use crate::sharing::{Party, Service};

/// Replaces everything that could identify a person. Without the key, nobody can reverse a
/// pseudonym or test a guess. The same key gives the same pseudonyms, so that results can be
/// compared. Times, lengths and counts are kept.
#[derive(Clone)]
pub struct Pseudonyms {
    key: [u8; 16],
}

impl Pseudonyms {
    /// Creates the pseudonyms of a key, which must be random and secret.
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The pseudonym of a text: its kind, and 12 hexadecimal digits.
    pub fn of(&self, kind: &str, text: &str) -> String {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(kind.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(text.as_bytes());
        format!("{kind}-{:012x}", hasher.finish128().as_u128() & 0xffff_ffff_ffff)
    }

    /// The pseudonym of a requested server name, in any case; it may be an IP address.
    fn of_name(&self, name: &str) -> String {
        let name = name.to_ascii_lowercase();
        let kind = if name.parse::<std::net::IpAddr>().is_ok() { "host" } else { "name" };
        self.of(kind, &name)
    }

    /// Replaces the names in a handshake's JSON record.
    pub fn replace(&self, record: &mut Value) {
        const KINDS: [(&str, &str); 11] = [
            ("file", "file"),
            ("client_ip", "host"),
            ("server_ip", "host"),
            ("ch_random", "random"),
            ("sh_random_part", "random"),
            ("offered_ticket_hash", "ticket"),
            ("issued_ticket_hash", "ticket"),
            ("session_id_hash", "session"),
            ("offered_sid_hash", "session"),
            ("program", "program"),
            ("server_program", "program"),
        ];
        for (field, kind) in KINDS {
            if let Some(Value::String(text)) = record.get_mut(field) {
                *text = self.of(kind, text);
            }
        }
        // The pseudonym of its address, which other connections show, too. Its port stays, as all ports do.
        if let Some(Value::String(client)) = record.get_mut("proxied_client") {
            *client = match client.parse::<SocketAddr>() {
                Ok(known) => {
                    format!("{}:{}", self.of("host", &known.ip().to_string()), known.port())
                }
                Err(_) => self.of("host", client),
            };
        }
        if let Some(Value::String(name)) = record.get_mut("sni") {
            *name = self.of_name(name);
        }
        // Logs of the machine tell whose process it was.
        for field in ["process", "server_process"] {
            if let Some(process) = record.get_mut(field) {
                *process = Value::Null;
            }
        }
        // A certificate identifies its owner even without its names.
        if let Some(certificate) = record.get_mut("certificate") {
            *certificate = Value::Null;
        }
    }

    /// Replaces the names in a report.
    pub fn replace_in(&self, report: &mut Report) {
        for service in &mut report.findings.top_services {
            service.name = self.of_name(&service.name);
            for host in &mut service.hosts {
                host.address = self.of("host", &host.address);
            }
            service.sort_hosts();
        }
        // Sort again, so that the order reveals nothing about the names.
        report.findings.top_services.sort_by(Service::order);
        let not_resumed = &mut report.findings.not_resumed;
        for parties in [&mut not_resumed.by_server, &mut not_resumed.by_client] {
            for party in parties.iter_mut() {
                party.address = self.of("host", &party.address);
            }
            parties.sort_by(Party::order);
        }
        for left_out in &mut report.captured.left_out {
            left_out.file = self.of("file", &left_out.file);
        }
    }
}

/// Hides the key.
impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pseudonyms(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_stands_for_the_same_under_one_key() {
        let (one, other) = (Pseudonyms::new([1; 16]), Pseudonyms::new([2; 16]));
        assert_eq!(one.of("name", "example.org"), one.of("name", "example.org"));
        assert_ne!(one.of("name", "example.org"), one.of("name", "example.com"));
        assert_ne!(one.of("name", "example.org"), other.of("name", "example.org"));
        assert_eq!(format!("{one:?}"), "Pseudonyms(…)");
    }

    #[test]
    fn a_record_names_nobody() {
        let mut record = serde_json::json!({
            "file": "phone.pcap", "sni": "example.org", "client_ip": "192.0.2.1",
            "server_ip": "192.0.2.2", "ch_random": "00ff", "cls": "full",
            "program": "firefox", "process": 4711, "server_program": "nginx",
            "certificate": {"sha256": "aa", "names": ["example.org"]},
        });
        Pseudonyms::new([7; 16]).replace(&mut record);
        let text = record.to_string();
        for name in ["phone", "firefox", "4711", "nginx", "example", "192.0.2", "00ff", "aa\""] {
            assert!(!text.contains(name), "{name} in {text}");
        }
        assert_eq!(record["cls"], "full");
    }

    /// A client that a balancer names has the pseudonym of its address, whatever its port.
    #[test]
    fn a_client_behind_a_balancer_has_one_pseudonym() {
        let pseudonyms = Pseudonyms::new([7; 16]);
        for address in ["192.0.2.1", "2001:db8::1"] {
            let ip: std::net::IpAddr = address.parse().unwrap();
            let mut record = serde_json::json!({ "client_ip": address });
            for port in [4_000, 4_001] {
                record["proxied_client"] = SocketAddr::new(ip, port).to_string().into();
                record["client_ip"] = address.into();
                pseudonyms.replace(&mut record);
                let expected = format!("{}:{port}", record["client_ip"].as_str().unwrap());
                assert_eq!(record["proxied_client"], expected.as_str());
            }
        }
    }
}
