//! Individual handshakes: a line of text, a CSV row, and an explanation of the class.

use rejoin_report::printable;
use serde_json::Value;

use crate::handshake::{Class, Evidence, Handshake, Method};

/// The CSV columns of a handshake. Their names and order are stable.
pub const COLUMNS: [&str; 52] = [
    "file",
    "t_ch",
    "client_ip",
    "client_port",
    "server_ip",
    "server_port",
    "carrier",
    "sni",
    "version",
    "cls",
    "method",
    "evidence",
    "hrr",
    "client_auth",
    "completed",
    "direct",
    "bytes_from_client",
    "bytes_from_server",
    "ch_random",
    "cipher",
    "group",
    "alpn",
    "alpn_offered",
    "ja4",
    "ech_offered",
    "via",
    "proxied_client",
    "ch_whole",
    "psk_offered",
    "early_data_offered",
    "offered_sid_len",
    "offered_sid_hash",
    "offered_ticket_len",
    "offered_ticket_hash",
    "ticket_issued",
    "issued_ticket_len",
    "issued_ticket_lifetime_s",
    "issued_ticket_hash",
    "issued_sid_len",
    "session_id_hash",
    "sh_random_part",
    "t_sh",
    "t_done",
    "frame_ch",
    "frame_sh",
    "proof_frame",
    "certificate_sha256",
    "certificate_names",
    "program",
    "process",
    "server_program",
    "server_process",
];

/// The CSV fields of a handshake's JSON record, in the order of [`COLUMNS`]. Unknown values are
/// empty. Untrusted text is escaped for terminals and spreadsheets.
pub fn fields(record: &Value) -> [String; COLUMNS.len()] {
    COLUMNS.map(|column| match column {
        "certificate_sha256" => field(&record["certificate"]["sha256"]),
        "certificate_names" => names(&record["certificate"]["names"]),
        column => field(&record[column]),
    })
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => {
            let quote =
                if text.starts_with(['=', '+', '-', '@']) && text.len() > 1 { "'" } else { "" };
            format!("{quote}{}", printable(text))
        }
        value => value.to_string(),
    }
}

/// Names, separated by spaces.
fn names(value: &Value) -> String {
    let names = value.as_array().into_iter().flatten().map(field);
    names.collect::<Vec<_>>().join(" ")
}

/// One line of text from a handshake's JSON record (whose names may be pseudonyms).
pub fn line(record: &Value) -> String {
    let text = |column: &str| field(&record[column]);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    // The ServerHello gives the time if the ClientHello was not captured.
    let time = record["t_ch"].as_f64().or_else(|| record["t_sh"].as_f64());
    let time = time.map_or_else(|| "-".to_owned(), |time| format!("{time:.6}"));
    let [client, server] = [("client_ip", "client_port"), ("server_ip", "server_port")]
        .map(|(ip, port)| format!("{}:{}", text(ip), text(port)));
    let version = match record["carrier"].as_str() {
        Some("quic") => "QUIC".to_owned(),
        _ => or_dash(text("version")),
    };
    let class = text("cls").replace('_', " ").replace("serverhello", "server hello");
    let method = text("method");
    let method = if method.is_empty() { method } else { format!(" by {method}") };
    let protocol = if record["alpn"].is_null() { text("alpn_offered") } else { text("alpn") };
    let hello = if record["ech_offered"] == true { "ECH" } else { "" };
    let name = or_dash(text("sni"));
    let mut line = format!("{time}  {client} > {server}  {name}  {version}  {class}{method}");
    for more in [text("cipher"), protocol, text("ja4"), hello.to_owned(), text("program")] {
        if !more.is_empty() {
            line += "  ";
            line += &more;
        }
    }
    line
}

/// Explains in one sentence why a handshake has its class.
pub fn explained(handshake: &Handshake) -> String {
    let frame =
        |frame: Option<u64>| frame.map_or_else(|| "?".to_owned(), |frame| frame.to_string());
    let (hello, answer) = (frame(handshake.frame_ch), frame(handshake.frame_sh));
    let proof = frame(handshake.proof_frame);
    let verdict = match (handshake.cls, handshake.evidence) {
        (Class::NoServerhello, _) => {
            return format!("ClientHello in frame {hello}; no ServerHello in the capture");
        }
        (Class::Unknown, _) => {
            return format!(
                "ServerHello in frame {answer}; the capture does not show all that would decide"
            );
        }
        (_, Some(Evidence::KeyExchange)) => {
            format!("frame {proof} has a certificate or a key exchange, which a resumption has not")
        }
        (_, Some(Evidence::ShWithoutPsk)) => {
            format!("the ServerHello in frame {answer} accepts no pre-shared key")
        }
        (_, Some(Evidence::ShPreSharedKey)) => {
            format!("the ServerHello in frame {answer} accepts a pre-shared key")
        }
        (_, Some(Evidence::ServerCcsFirstNoCert)) => format!(
            "the server's ChangeCipherSpec in frame {proof} follows its ServerHello without a key \
             exchange, and no byte between them is missing"
        ),
        (_, Some(Evidence::ClientCcsNoCke)) => format!(
            "the client's ChangeCipherSpec in frame {proof} follows its ClientHello without a key \
             exchange, and no byte between them is missing"
        ),
        (_, Some(Evidence::NothingOffered)) => {
            format!("the whole ClientHello in frame {hello} offers nothing to resume")
        }
        (_, Some(Evidence::ShOnly) | None) => format!("ServerHello in frame {answer}"),
    };
    let offered = match handshake.method {
        Some(Method::Ticket) => {
            format!("; ticket of {} bytes offered", handshake.offered_ticket_len.unwrap_or(0))
        }
        Some(Method::Id) => {
            format!("; session id of {} bytes offered", handshake.offered_sid_len.unwrap_or(0))
        }
        _ => String::new(),
    };
    verdict + &offered
}
