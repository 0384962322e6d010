//! Ticket keys from a file, in Apache and in nginx.

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use rejoin_testkit::site::{Site, Versions};

use super::NGINX;

/// The bytes of each part of the file, and of a ticket's HMAC.
const PART_BYTES: usize = 16;
const MAC_BYTES: usize = 32;

/// Starts a server with a key file. Returns the file's three parts, and a ticket. `None`: it is not installed.
fn ticket_of(
    site: &mut Site,
    server: &[&str],
    text: &str,
) -> Option<([[u8; PART_BYTES]; 3], Vec<u8>)> {
    let mut parts = [[0; PART_BYTES]; 3];
    openssl::rand::rand_bytes(parts.as_flattened_mut()).expect("random numbers");
    std::fs::write(site.file("keys"), parts.as_flattened()).expect("a file");
    site.write("configuration", text);
    let configuration = site.shown("configuration");
    let words = [&server[1..], &[&configuration]].concat();
    site.start(server[0], &words)?;
    let mut client = site.client(Versions::Tls12);
    assert!(!client.connect() && client.connect(), "it issues no tickets");
    let session = client.session.lock().expect("no panic").take().expect("a session");
    let session = session.to_der().expect("bytes");
    Some((parts, ticket(&session).to_vec()))
}

/// Returns the ticket in a session (`ssl/ssl_asn1.c` of OpenSSL): octets under tag 10, each with its length in one byte.
fn ticket(session: &[u8]) -> &[u8] {
    let is_start = |five: &[u8]| matches!(five, [0xaa, 0x81, _, 0x04, 0x81]);
    let start = session.windows(5).position(is_start).expect("a ticket") + 5;
    &session[start + 1..][..usize::from(session[start])]
}

/// Returns true if a key authenticates the ticket (RFC 5077, section 4).
fn is_by(key: &[u8], ticket: &[u8]) -> bool {
    let (signed, mac) = ticket.split_at(ticket.len() - MAC_BYTES);
    let key = PKey::hmac(key).expect("a key");
    let mut signer = Signer::new(MessageDigest::sha256(), &key).expect("HMAC");
    signer.sign_oneshot_to_vec(signed).expect("HMAC") == mac
}

/// The guides warn of it. If this fails, Apache was mended, and they may say so.
#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache_alone_authenticates_tickets_by_no_key_of_its_file() {
    let mut nginx = Site::new("fault-keys-nginx");
    nginx.environment.clear();
    let text = NGINX.replace("ssl_session_tickets off;", "ssl_session_ticket_key FOLDER/keys;");
    let (parts, ticket) =
        ticket_of(&mut nginx, &["nginx", "-c"], &text.replace("@MORE@", "")).expect("installed");
    assert!(ticket.starts_with(&parts[0]) && is_by(&parts[2], &ticket), "as nginx keeps them");
    let more = "StartServers 1\nSSLEngine on\nSSLSessionTicketKeyFile FOLDER/keys\n";
    let text = crate::ways::apache("event", more);
    let apache = ["apache2", "-D", "FOREGROUND", "-f"];
    for rejoin in [false, true] {
        let mut site = Site::new(&format!("fault-keys-apache-{rejoin}"));
        site.configure("");
        if !rejoin {
            site.environment.clear();
        }
        let Some((parts, ticket)) = ticket_of(&mut site, &apache, &text) else { return };
        assert_eq!(ticket.starts_with(&parts[0]), !rejoin, "the name of the file's key");
        assert!(!is_by(&parts[1], &ticket), "docs/keys.md and docs/apache.md warn of it");
        assert!(!rejoin || !is_by(&[0; PART_BYTES], &ticket));
    }
}
