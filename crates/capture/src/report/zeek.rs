//! Handshakes as rows of Zeek's logs, `ssl.log` and `conn.log` (Zeek's manual, "Log Formats"), for the programs that read
//! those.
//!
//! A field that Zeek would know and a capture's handshake does not show is unset. So is `resumed` where the class is
//! unknown: Zeek itself writes `F` there.

use std::fmt::Write as _;

use serde_json::Value;

use crate::digest::Digest;

/// A log of Zeek. Both have a row for each handshake, with the same `uid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeekLog {
    /// The handshakes.
    Ssl,
    /// Their connections.
    Conn,
}

/// A name, Zeek's type, and the value, which is empty if it is unset.
type Column = (&'static str, &'static str, fn(&Value) -> String);

/// The columns that all logs of connections begin with.
const CONNECTION: [Column; 6] = [
    ("ts", "time", time),
    ("uid", "string", uid),
    ("id.orig_h", "addr", |record| text(&record["client_ip"])),
    ("id.orig_p", "port", |record| text(&record["client_port"])),
    ("id.resp_h", "addr", |record| text(&record["server_ip"])),
    ("id.resp_p", "port", |record| text(&record["server_port"])),
];

const SSL: [Column; 15] = [
    ("version", "string", version),
    ("cipher", "string", |record| text(&record["cipher"])),
    ("curve", "string", |record| text(&record["group"])),
    ("server_name", "string", |record| text(&record["sni"])),
    ("resumed", "bool", resumed),
    ("last_alert", "string", unset),
    ("next_protocol", "string", |record| text(&record["alpn"])),
    ("established", "bool", |record| truth(record["completed"] == true)),
    ("ssl_history", "string", unset),
    ("cert_chain_fps", "vector[string]", |record| text(&record["certificate"]["sha256"])),
    ("client_cert_chain_fps", "vector[string]", unset),
    ("subject", "string", unset),
    ("issuer", "string", unset),
    ("client_subject", "string", unset),
    ("client_issuer", "string", unset),
];

const CONN: [Column; 15] = [
    ("proto", "enum", protocol),
    ("service", "string", service),
    ("duration", "interval", unset),
    ("orig_bytes", "count", unset),
    ("resp_bytes", "count", unset),
    ("conn_state", "string", unset),
    ("local_orig", "bool", unset),
    ("local_resp", "bool", unset),
    ("missed_bytes", "count", unset),
    ("history", "string", unset),
    ("orig_pkts", "count", unset),
    ("orig_ip_bytes", "count", unset),
    ("resp_pkts", "count", unset),
    ("resp_ip_bytes", "count", unset),
    ("tunnel_parents", "set[string]", unset),
];

impl ZeekLog {
    /// Both logs.
    pub const ALL: [Self; 2] = [Self::Ssl, Self::Conn];

    /// The name of the file, as Zeek has it.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Ssl => "ssl.log",
            Self::Conn => "conn.log",
        }
    }

    /// The lines before the first row.
    pub fn head(self) -> String {
        let path = self.file_name().trim_end_matches(".log");
        let mut head = format!(
            "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\t{path}\n#fields"
        );
        self.columns().for_each(|(name, ..)| head.extend(["\t", name]));
        head += "\n#types";
        self.columns().for_each(|(_, kind, _)| head.extend(["\t", kind]));
        head + "\n"
    }

    /// The row of a handshake's JSON record, which ends in a newline.
    pub fn row(self, record: &Value) -> String {
        let fields = self.columns().map(|(.., value)| field(&value(record)));
        fields.collect::<Vec<_>>().join("\t") + "\n"
    }

    fn columns(self) -> impl Iterator<Item = &'static Column> {
        let own = match self {
            Self::Ssl => &SSL,
            Self::Conn => &CONN,
        };
        CONNECTION.iter().chain(own)
    }
}

/// Escapes a value, which may be untrusted, as Zeek does: control characters, its separators, and `-` alone by number.
fn field(value: &str) -> String {
    if value.is_empty() {
        return "-".to_owned();
    }
    let mut field = String::with_capacity(value.len());
    for letter in value.chars() {
        let is_lone = matches!(value, "-" | "(empty)") && field.is_empty();
        match letter {
            '\\' => field += "\\\\",
            letter if letter.is_control() || is_lone => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(field, "\\x{byte:02x}");
                }
            }
            letter => field.push(letter),
        }
    }
    field
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn truth(value: bool) -> String {
    if value { "T" } else { "F" }.to_owned()
}

fn unset(_: &Value) -> String {
    String::new()
}

/// The time of the ClientHello, or else of the ServerHello.
fn time(record: &Value) -> String {
    let time = record["t_ch"].as_f64().or_else(|| record["t_sh"].as_f64());
    time.map_or_else(String::new, |time| format!("{time:.6}"))
}

/// A name of the handshake that is the same whenever the capture is read.
fn uid(record: &Value) -> String {
    let parts = ["file", "t_ch", "t_sh", "client_ip", "client_port", "server_ip", "server_port"];
    let whole = parts.map(|part| text(&record[part])).join(" ");
    Digest::of(whole.as_bytes()).map_or_else(String::new, |digest| format!("C{digest}"))
}

/// The version by Zeek's name, such as `TLSv12`.
fn version(record: &Value) -> String {
    let version = text(&record["version"]);
    match version.split_once("TLS") {
        Some((before, number)) => format!("{before}TLSv{}", number.replace('.', "")),
        None => version,
    }
}

fn resumed(record: &Value) -> String {
    match record["cls"].as_str() {
        Some("resumed") => truth(true),
        Some("full") => truth(false),
        _ => String::new(),
    }
}

/// The transport protocol, which a tunnel's record does not tell.
fn protocol(record: &Value) -> String {
    match record["carrier"].as_str() {
        Some("tls") if record["via"] == "tunnel" => String::new(),
        Some("tls") => "tcp".to_owned(),
        _ => "udp".to_owned(),
    }
}

fn service(record: &Value) -> String {
    if record["carrier"] == "quic" { "quic,ssl" } else { "ssl" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_zeek_does() {
        for (value, written) in [
            ("", "-"),
            ("-", "\\x2d"),
            ("(empty)", "\\x28empty)"),
            ("a\tb\n", "a\\x09b\\x0a"),
            ("a\\b", "a\\\\b"),
            ("\u{85}ü", "\\xc2\\x85ü"),
        ] {
            assert_eq!(field(value), written);
        }
    }

    #[test]
    fn what_is_unknown_is_unset() {
        let record = |cls: &str| serde_json::json!({ "cls": cls, "version": "DTLS1.2" });
        let of = |cls| resumed(&record(cls));
        assert_eq!([of("full"), of("resumed"), of("unknown")], ["F", "T", ""]);
        assert_eq!(version(&record("full")), "DTLSv12");
        let columns = |text: &str| text.trim_end().split('\t').count();
        for log in ZeekLog::ALL {
            let head = log.head();
            let counts: Vec<_> = head.lines().rev().take(2).map(columns).collect();
            assert_eq!(counts, [22, 22]);
            assert_eq!(columns(&log.row(&record("unknown"))), 21);
        }
    }
}
