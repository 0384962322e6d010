//! Individual handshakes: a line of text, a CSV row, and an explanation of the class.

use rejoin_report::printable;

use crate::handshake::{Class, Evidence, Handshake, Method};

/// The CSV columns of a handshake. Their names and order are stable.
pub const COLUMNS: [&str; 19] = [
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
];

/// The CSV fields of a handshake's JSON record, in the order of [`COLUMNS`]. Unknown values are
/// empty. Untrusted text is escaped for terminals and spreadsheets.
pub fn fields(record: &serde_json::Value) -> [String; COLUMNS.len()] {
    COLUMNS.map(|column| match &record[column] {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => {
            let quote =
                if text.starts_with(['=', '+', '-', '@']) && text.len() > 1 { "'" } else { "" };
            format!("{quote}{}", printable(text))
        }
        value => value.to_string(),
    })
}

/// One line of text from a handshake's JSON record (whose names may be pseudonyms).
pub fn line(record: &serde_json::Value) -> String {
    let [
        _,
        time,
        client,
        client_port,
        server,
        server_port,
        carrier,
        name,
        version,
        class,
        method,
        ..,
    ] = fields(record);
    // The ServerHello gives the time if the ClientHello was not captured.
    let time: Option<f64> = time.parse().ok().or_else(|| record["t_sh"].as_f64());
    let time = time.map_or_else(|| "-".to_owned(), |time| format!("{time:.6}"));
    let name = if name.is_empty() { "-" } else { &name };
    let version = match (carrier.as_str(), version.as_str()) {
        ("quic", _) => "QUIC",
        (_, "") => "-",
        (_, version) => version,
    };
    let method = if method.is_empty() { String::new() } else { format!(" by {method}") };
    let class = class.replace('_', " ").replace("serverhello", "server hello");
    format!(
        "{time}  {client}:{client_port} > {server}:{server_port}  {name}  {version}  {class}{method}"
    )
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
